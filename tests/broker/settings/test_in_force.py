"""A broker's settings under what is altered while it runs."""

from __future__ import annotations

import pytest

from broker.settings.alterations import Alteration
from broker.settings.in_force import SettingsInForce
from broker.settings.rows import broker_settings
from broker.settings.view import SettingsView
from clients.settings import SettingError
from protocol.configs import ConfigOperation, ConfigSource
from protocol.errors import BrokerError, ErrorCode


def settings(**given: str) -> SettingsInForce:
    static = {name.replace("_", "."): value for name, value in given.items()}
    return SettingsInForce(broker_settings({"zookeeper.connect": "z:1", **static}))


def test_a_value_is_the_brokers_alteration_then_that_of_all_then_the_files_then_the_default() -> None:
    broker = settings(log_retention_ms="4000")
    assert broker["log.retention.ms"] == broker.topic_defaults["retention.ms"] == 4000
    broker.overlay({}, {"log.retention.ms": "3000"})
    assert broker["log.retention.ms"] == broker.topic_defaults["retention.ms"] == 3000
    broker.overlay({"log.retention.ms": "2000"}, {"log.retention.ms": "3000"})
    assert broker["log.retention.ms"] == broker.topic_defaults["retention.ms"] == 2000
    (entry,) = SettingsView(broker).describe_broker(["log.retention.ms"])
    assert [(each.value, each.source) for each in entry.synonyms] == [
        ("2000", ConfigSource.DYNAMIC_BROKER),
        ("3000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("4000", ConfigSource.STATIC_BROKER),
        (None, ConfigSource.DEFAULT),
    ]
    assert not entry.read_only
    broker.overlay({}, {})
    assert broker["log.retention.ms"] == 4000
    assert broker["num.partitions"] == 1


def test_what_a_topic_inherits_tells_where_it_comes_from() -> None:
    broker = settings()
    broker.overlay({"message.max.bytes": "2000000"}, {"message.max.bytes": "1500000"})
    (entry,) = SettingsView(broker).describe_topic({}, ["max.message.bytes"])
    assert (entry.value, entry.source) == ("2000000", ConfigSource.DYNAMIC_BROKER)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        ("message.max.bytes", "2000000"),
        ("message.max.bytes", "1500000"),
        ("message.max.bytes", "1048588"),
    ]


def test_only_what_was_altered_is_told_of_all_brokers_together() -> None:
    broker = settings(log_retention_ms="4000")
    broker.overlay({"min.insync.replicas": "3"}, {"min.insync.replicas": "2"})
    (entry,) = SettingsView(broker).describe_all_brokers()
    assert (entry.name, entry.value, entry.source) == (
        "min.insync.replicas",
        "2",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


def test_settings_that_are_fixed_at_the_start_are_refused_with_what_to_do() -> None:
    with pytest.raises(BrokerError, match="properties file") as refused:
        settings().check({"broker.id": "7"})
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"min.insync.replica": "1"}, "did you mean min.insync.replicas"),
        ({"min.insync.replicas": "none"}, "not allowed"),
        ({"min.insync.replicas": None}, "has no value"),
        (
            {
                "log.cleaner.min.compaction.lag.ms": "9",
                "log.cleaner.max.compaction.lag.ms": "8",
            },
            "at most",
        ),
    ],
)
def test_values_that_do_not_hold_are_refused(configs: dict[str, str | None], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        settings().check(configs)


def test_what_was_written_past_this_software_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    broker = settings()
    broker.overlay({"min.insync.replicas": "no", "broker.id": "9", "log.retention.ms": "5"}, {"x.y": "1"})
    assert (broker["min.insync.replicas"], broker["broker.id"], broker["log.retention.ms"]) == (1, -1, 5)
    assert caplog.text.count("Ignoring an invalid setting in /config/brokers") == 3
    broker.overlay({"log.cleaner.min.compaction.lag.ms": "9"}, {"log.cleaner.max.compaction.lag.ms": "8"})
    assert broker["log.retention.ms"] == 5, "all stays as it was"


def test_lists_are_added_to_what_the_file_has() -> None:
    append = Alteration("log.cleanup.policy", ConfigOperation.APPEND, "compact")
    assert settings().altered({}, [append]) == {"log.cleanup.policy": "delete,compact"}


def test_what_somebody_else_wrote_does_not_hinder_other_alterations() -> None:
    own = {"of.other.software": "1", "min.insync.replicas": "2"}
    changed = settings().altered(
        own,
        [
            Alteration("log.retention.ms", ConfigOperation.SET, "1"),
            Alteration("min.insync.replicas", ConfigOperation.DELETE, None),
        ],
    )
    assert changed == {"of.other.software": "1", "log.retention.ms": "1"}
