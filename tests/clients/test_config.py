"""Properties with Kafka's names and defaults, from dicts and files, and the errors for invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.clients.config import (
    admin_settings,
    consumer_settings,
    producer_settings,
    required_acks,
    split_address,
)
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.settings import read_properties

HOME = Path(__file__).parents[2]
BROKER = {"bootstrap.servers": "localhost:9092"}


def test_defaults_are_kafka_s_except_for_batch_size() -> None:
    producer, consumer = producer_settings(BROKER), consumer_settings(BROKER)
    assert (producer["acks"], producer["batch.size"], producer["linger.ms"]) == ("all", 131_072, 5)
    assert producer["enable.idempotence"] is True and required_acks(producer) == -1
    assert (consumer["auto.offset.reset"], consumer["max.poll.records"]) == ("latest", 500)


def test_keyword_names_of_python_clients_are_accepted() -> None:
    settings = producer_settings({"bootstrap_servers": ["a:1", "b:2"], "linger_ms": 7})
    assert settings["bootstrap.servers"] == ("a:1", "b:2") and settings["linger.ms"] == 7


@pytest.mark.parametrize(("name", "load"), [("producer", producer_settings), ("consumer", consumer_settings)])
def test_the_files_in_config_can_be_loaded(name: str, load: object) -> None:
    assert callable(load)
    assert load(HOME / "config" / f"{name}.properties")["bootstrap.servers"] == ("localhost:9092",)


@pytest.mark.parametrize(("name", "load"), [("producer", producer_settings), ("consumer", consumer_settings)])
def test_the_files_in_config_show_the_real_defaults(name: str, load: object, tmp_path: Path) -> None:
    text = (HOME / "config" / f"{name}.properties").read_text()
    shown = tmp_path / "shown.properties"
    shown.write_text(
        "\n".join(line[1:] for line in text.splitlines() if line.startswith("#") and "=" in line[:40])
    )
    assert callable(load)
    defaults = load(BROKER)
    for key, value in read_properties(shown).items():
        if value:
            assert defaults.rows[key].parse(value) == defaults[key], key


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({}, r"bootstrap\.servers is missing"),
        ({"bootstrap.servers": "localhost"}, "expected host:port"),
        ({"bootstrap.servers": ""}, "expected host:port"),
        ({**BROKER, "request.timeout.ms": "soon"}, r"request\.timeout\.ms='soon' is not allowed"),
        (
            {**BROKER, "clientid": "x"},
            r"clientid is not a property of an admin client; did you mean client\.id\?",
        ),
        ({**BROKER, "nonsense": "x"}, "nonsense is not a property of an admin client$"),
        ({**BROKER, "servers": "x"}, r"did you mean bootstrap\.servers\?"),
        ({"metadata.broker.list": "x", **BROKER}, r"did you mean bootstrap\.servers\?"),
        ({**BROKER, "linger_ms": 5}, "not a property of an admin client; it is one of a producer$"),
        ({**BROKER, "group.id": "x"}, "not a property of an admin client; it is one of a consumer$"),
        ({**BROKER, "value_serializer": str}, "it is an argument of the constructor, value_serializer="),
        ({**BROKER, "sasl.kerberos.service.name": "x"}, "there is no GSSAPI .Kerberos.: set sasl.mechanism"),
        ({**BROKER, "sasl_plain_username": "x"}, r"did you mean sasl\.username\?"),
        ({**BROKER, "sasl.mechanism": "GSSAPI"}, "expected one of PLAIN, SCRAM-SHA-256"),
        ({**BROKER, 5: "x"}, "the name of a property is a str, not int 5"),
        ({**BROKER, "client.id": b"x"}, r"client\.id=b'x' is not allowed: expected text"),
        ({**BROKER, "client.id": object()}, r"client\.id=.* is not allowed: expected text"),
        ({**BROKER, "client.id": None}, r"client\.id=None is not allowed: expected text"),
        ({**BROKER, "request.timeout.ms": None}, r"request\.timeout\.ms=None is not allowed"),
        ({"bootstrap.servers": 9092}, r"bootstrap\.servers=9092 is not allowed: expected"),
        ({"bootstrap.servers": {"localhost:9092"}, "request.timeout.ms": [1]}, "expected a whole number"),
    ],
)
def test_an_invalid_property_is_named_in_the_error(properties: dict[Any, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        admin_settings(properties)


def test_a_missing_properties_file_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.properties"):
        consumer_settings(tmp_path / "absent.properties")


def test_an_address_instead_of_properties_is_answered_with_the_right_spelling() -> None:
    with pytest.raises(ConfigError, match=r'write \{"bootstrap.servers": \'localhost:9092\'\}'):
        admin_settings("localhost:9092")


@pytest.mark.parametrize("properties", [None, 5, ["localhost:9092"], b"localhost:9092"])
def test_what_are_no_properties_are_refused(properties: Any) -> None:
    with pytest.raises(TypeError, match="properties must be a dict of properties, or the path"):
        admin_settings(properties)


@pytest.mark.parametrize(
    ("address", "parts"), [("localhost:9092", ("localhost", 9092)), ("[::1]:9092", ("::1", 9092))]
)
def test_bootstrap_servers_are_parsed_into_hosts_and_ports(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts
