"""Kafka's own ConfigCommand sets and shows the settings of retention, of topics and of brokers."""

from __future__ import annotations

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic
from tests.cluster import Cluster
from tests.compat.apache_kafka import class_path, config_command

OF_TOPIC = {
    "cleanup.policy": "compact,delete",
    "file.delete.delay.ms": "10",
    "message.timestamp.difference.max.ms": "100000",
    "retention.bytes": "100000",
    "retention.ms": "5000",
    "segment.bytes": "2000",
    "segment.index.bytes": "1000",
    "segment.ms": "9000",
}
OF_BROKERS = {
    "log.cleanup.policy": "delete",
    "log.index.size.max.bytes": "10000",
    "log.message.timestamp.after.max.ms": "1000",
    "log.message.timestamp.before.max.ms": "2000",
    "log.message.timestamp.type": "LogAppendTime",
    "log.retention.bytes": "1000000",
    "log.retention.ms": "60000",
    "log.roll.ms": "1000000",
    "log.segment.bytes": "100000",
    "log.segment.delete.delay.ms": "1000",
}


@pytest.fixture
def broker(cluster: Cluster) -> BackgroundBroker:
    class_path()  # Skip before anything is started.
    return cluster.start(1)[0]


def listed(settings: dict[str, str]) -> str:
    """The settings as ConfigCommand takes them: a value with a comma is in brackets."""
    return ",".join(f"{name}={f'[{value}]' if ',' in value else value}" for name, value in settings.items())


@pytest.mark.parametrize(
    ("entity", "settings"),
    [
        (("--entity-type", "topics", "--entity-name", "orders"), OF_TOPIC),
        (("--entity-type", "brokers", "--entity-default"), OF_BROKERS),
    ],
    ids=["topic", "brokers"],
)
def test_settings_are_altered_and_shown(
    broker: BackgroundBroker, entity: tuple[str, ...], settings: dict[str, str]
) -> None:
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("orders", 1, 1, {"cleanup.policy": ""})])

    config_command(broker, *entity, "--alter", "--add-config", listed(settings))

    shown = config_command(broker, *entity, "--describe")
    for name, value in settings.items():
        assert any(line.startswith(f"{name}={value} sensitive=false") for line in shown), name


def test_an_empty_cleanup_policy_is_set_and_taken_back(broker: BackgroundBroker) -> None:
    of_topic = ("--entity-type", "topics", "--entity-name", "orders")
    with Admin({"bootstrap.servers": broker.address}) as admin:
        admin.create_topics([NewTopic("orders", 1, 1)])

    config_command(broker, *of_topic, "--alter", "--add-config", "cleanup.policy=")
    shown = config_command(broker, *of_topic, "--describe")
    assert any(line.startswith("cleanup.policy= sensitive=false") for line in shown), shown

    config_command(broker, *of_topic, "--alter", "--delete-config", "cleanup.policy")
    shown = config_command(broker, *of_topic, "--describe")
    assert not any(line.startswith("cleanup.policy") for line in shown)
