"""The broker's settings: accepted values, refused values, and the errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.settings.command_line import read_settings
from holdfast_log.broker.settings.rows import ROWS, broker_settings
from holdfast_log.clients.settings import SettingError, read_properties

NEEDED = {"zookeeper.connect": "127.0.0.1:2181"}


def test_defaults_are_kafkas() -> None:
    settings = broker_settings(NEEDED)
    assert settings["num.partitions"] == 1
    assert settings["zookeeper.session.timeout.ms"] == 18_000
    assert settings["message.max.bytes"] == 1_048_588
    assert settings["replica.lag.time.max.ms"] == 30_000
    assert settings["auto.create.topics.enable"] is True


@pytest.mark.parametrize(
    "servers", ["zk", "zk:2181", "zk-1:2181, zk-2:2181/kafka", "[::1]:2181/a/b", "10.0.0.1/"]
)
def test_a_zookeeper_connect_string_is_accepted_as_by_its_own_clients(servers: str) -> None:
    assert broker_settings({"zookeeper.connect": servers})["zookeeper.connect"] == servers


def test_a_file_that_is_not_a_properties_file_is_refused_as_such(tmp_path: Path) -> None:
    (tmp_path / "bad.properties").write_text("key=\\u12zz\n")
    with pytest.raises(SettingError, match=r"bad\.properties is not a valid properties file"):
        read_properties(tmp_path / "bad.properties")


def test_no_setting_is_declared_twice() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("num.partitions", "none", "a whole number"),
        ("num.partitions", "0", "a whole number from 1"),
        ("auto.create.topics.enable", "perhaps", "true or false"),
        ("broker.id", "1001", "from -1 to 1000 (reserved.broker.max.id)"),
        ("replica.socket.timeout.ms", "100", "at least 500 (replica.fetch.wait.max.ms)"),
        ("zookeeper.connect", "", "at least one host:port"),
        ("zookeeper.connect", "http://zookeeper:2181", "at least one host:port"),
        ("zookeeper.connect", "zookeeper:port", "at least one host:port"),
        ("zookeeper.connect", "zookeeper:2181,:2181", "at least one host:port"),
        ("zookeeper.connect", "zookeeper:99999", "at least one host:port"),
        ("zookeeper.connect", "zookeeper:2181/a//b", "a path of names"),
        ("zookeeper.connect", "zookeeper:2181/../b", "a path of names"),
        ("log.dirs", "", "at least one directory"),
        ("log.dirs", "/data/1,/data/2,/data/1/", "each directory once"),
    ],
)
def test_an_invalid_value_is_refused_with_key_value_and_allowed_values(
    key: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingError) as refused:
        broker_settings({**NEEDED, key: value})
    assert key in str(refused.value)
    assert value in str(refused.value)
    assert allowed in str(refused.value)


def test_zookeeper_connect_is_required() -> None:
    with pytest.raises(SettingError, match=r"zookeeper\.connect is missing"):
        broker_settings({})


def test_the_command_line_takes_precedence_over_the_file(tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("zookeeper.connect=z:1\nnum.partitions=2\nbroker.id=7\n")
    settings = read_settings(str(properties), ["num.partitions=5"])
    assert (settings["num.partitions"], settings["broker.id"]) == (5, 7)
    with pytest.raises(SettingError, match="expected key=value"):
        read_settings(str(properties), ["num.partitions"])
    with pytest.raises(SettingError, match=r"cannot read .*nosuch\.properties: No such file"):
        read_settings(str(tmp_path / "nosuch.properties"), [])


def test_the_file_in_config_has_no_unknown_key() -> None:
    file = Path(__file__).parents[3] / "config" / "server.properties"
    assert broker_settings(read_properties(file)).unknown == {}
