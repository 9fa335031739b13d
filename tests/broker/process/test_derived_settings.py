"""Several brokers from one properties file: their ids, ports, directories and machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.log.names import parse_directory, parse_process_directory, process_directory
from holdfast_log.broker.process.derived_settings import (
    process_count,
    settings_of_processes,
    unserved_directories,
)
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.clients.settings import SettingError, Settings


def given(**values: str) -> Settings:
    return broker_settings(
        {"zookeeper.connect": "z:2181", **{name.replace("_", "."): value for name, value in values.items()}}
    )


def test_the_first_process_keeps_the_settings_of_a_single_broker() -> None:
    first, *_ = settings_of_processes(given(broker_id="7", broker_processes="3"), 3, "m")
    assert first == {
        "broker.processes": "1",
        "broker.machine": "m",
        "reserved.broker.max.id": "2007",
    }


def test_each_further_process_gets_an_id_ports_and_directories_of_its_own() -> None:
    settings = given(
        broker_id="7",
        log_dirs="/a,/b",
        listeners="PLAINTEXT://:9092,SSL://h:0,SASL_PLAINTEXT://[::1]:9192",
        advertised_listeners="PLAINTEXT://there:19092",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT,SASL_PLAINTEXT:PLAINTEXT",
        broker_machine="mine",
    )
    assert settings_of_processes(settings, 3, "m")[2] == {
        "broker.processes": "1",
        "broker.machine": "mine",
        "reserved.broker.max.id": "2007",
        "broker.id": "2007",
        "listeners": "PLAINTEXT://:9094,SSL://h:0,SASL_PLAINTEXT://[::1]:9194",
        "advertised.listeners": "PLAINTEXT://there:19094",
        "log.dirs": "/a/process.2,/b/process.2",
    }


def test_derived_settings_are_the_settings_of_a_broker() -> None:
    values = {"zookeeper.connect": "z:2181", "broker.id": "1000", "broker.processes": "auto"}
    for derived in settings_of_processes(broker_settings(values), 5, "m"):
        assert process_count(broker_settings(values | derived)) == 1


def test_brokers_without_an_id_generate_one_each() -> None:
    derived = settings_of_processes(given(), 2, "m")
    assert all("broker.id" not in each for each in derived)
    assert derived[1]["reserved.broker.max.id"] == "1000"


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("PLAINTEXT://:9092,SSL://:9094", "PLAINTEXT and SSL would both use port 9094"),
        ("PLAINTEXT://:65534", "needs 3 successive ports up to 65535"),
    ],
)
def test_processes_that_would_share_a_port_are_refused(listeners: str, message: str) -> None:
    settings = given(listeners=listeners, listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SSL:PLAINTEXT")
    with pytest.raises(SettingError, match=message):
        settings_of_processes(settings, 3, "m")


@pytest.mark.parametrize("count", ["0", "-1", "257", "many", "1.5", "²"])
def test_other_numbers_of_processes_are_refused(count: str) -> None:
    with pytest.raises(SettingError, match=r"broker\.processes=.* is not allowed: expected a whole number"):
        given(broker_processes=count)


def test_auto_is_one_process_for_each_core() -> None:
    assert process_count(given(broker_processes="auto"), cores=6) == 6
    assert process_count(given(broker_processes="auto")) >= 1
    assert process_count(given(broker_processes="4"), cores=6) == 4


def test_data_of_processes_that_do_not_run_any_more_is_found(tmp_path: Path) -> None:
    for name in ("process.1", "process.2", "process.10", "t-3", "process.x"):
        (tmp_path / name).mkdir()
    settings = given(log_dirs=f"{tmp_path},{tmp_path / 'missing'}")
    unserved = [str(tmp_path / "process.10"), str(tmp_path / "process.2")]
    assert unserved_directories(settings, 2) == unserved
    assert unserved_directories(settings, 11) == []


def test_the_directory_of_a_process_is_not_one_of_a_partition() -> None:
    assert parse_directory(process_directory(12)) is None
    assert parse_process_directory(process_directory(12)) == 12
    assert parse_process_directory("process.0") is None
    assert parse_process_directory("process-1") is None
