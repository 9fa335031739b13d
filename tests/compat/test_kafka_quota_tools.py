"""Kafka's ConfigCommand sets, shows and removes the quotas of clients, users and IP addresses."""

from __future__ import annotations

from holdfast_log.clients.admin import Admin, ClientQuotaEntity
from tests.cluster import BackgroundBroker
from tests.compat.kafka_tools import run_kafka_tool


def config_command(broker: BackgroundBroker, *arguments: str) -> str:
    return run_kafka_tool("kafka.admin.ConfigCommand", "--bootstrap-server", broker.address, *arguments)


def test_kafkas_config_command_sets_shows_and_removes_quotas(broker: BackgroundBroker) -> None:
    user = ("--entity-type", "users", "--entity-name", "anna b")
    both = (*user, "--entity-type", "clients", "--entity-default")
    rates = "producer_byte_rate=1024,consumer_byte_rate=2048,request_percentage=12.5"
    config_command(broker, *both, "--alter", "--add-config", rates)
    config_command(broker, *user, "--alter", "--add-config", "controller_mutation_rate=2.5")
    config_command(broker, "--ip", "192.0.2.7", "--alter", "--add-config", "connection_creation_rate=7")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        assert admin.describe_client_quotas() == {
            ClientQuotaEntity.of(user="anna b"): {"controller_mutation_rate": 2.5},
            ClientQuotaEntity.of(user="anna b", client_id=None): {
                "producer_byte_rate": 1024.0,
                "consumer_byte_rate": 2048.0,
                "request_percentage": 12.5,
            },
            ClientQuotaEntity.of(ip="192.0.2.7"): {"connection_creation_rate": 7.0},
        }
    shown = config_command(broker, *both, "--describe")
    assert "user-principal 'anna b', the default client-id" in shown
    assert "producer_byte_rate=1024.0" in shown
    shown = config_command(broker, "--entity-type", "users", "--describe")
    assert "Quota configs for user-principal 'anna b' are controller_mutation_rate=2.5" in shown
    assert "connection_creation_rate=7.0" in config_command(broker, "--entity-type", "ips", "--describe")
    config_command(broker, *user, "--alter", "--delete-config", "controller_mutation_rate")
    removed = "producer_byte_rate,consumer_byte_rate,request_percentage"
    config_command(broker, *both, "--alter", "--delete-config", removed)
    assert "Quota" not in config_command(broker, "--entity-type", "users", "--describe")
