"""A broker's settings in force after alterations while it runs."""

from __future__ import annotations

import pytest

from holdfast_log.broker.settings.alterations import Alteration
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.rows import ROWS, broker_settings
from holdfast_log.broker.settings.view import ConfigType, SettingsView
from holdfast_log.clients.references import resolved
from holdfast_log.clients.settings import Setting, SettingError, Settings, SettingType
from holdfast_log.protocol.configs import ConfigOperation, ConfigSource


def settings(**given: str) -> SettingsInForce:
    static = {name.replace("_", "."): value for name, value in given.items()}
    return SettingsInForce(broker_settings({"zookeeper.connect": "z:1", **static}))


def test_a_value_comes_from_the_broker_then_all_brokers_then_the_file_then_the_default() -> None:
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
    ], "None is no default"
    assert not entry.read_only
    broker.overlay({}, {})
    assert broker["log.retention.ms"] == 4000
    assert broker["num.partitions"] == 1


def test_a_topics_inherited_value_names_its_source() -> None:
    broker = settings()
    broker.overlay({"message.max.bytes": "2000000"}, {"message.max.bytes": "1500000"})
    (entry,) = SettingsView(broker).describe_topic({}, ["max.message.bytes"])
    assert (entry.value, entry.source) == ("2000000", ConfigSource.DYNAMIC_BROKER)
    assert [(each.name, each.value) for each in entry.synonyms] == [
        ("message.max.bytes", "2000000"),
        ("message.max.bytes", "1500000"),
        ("message.max.bytes", "1048588"),
    ]


def test_the_default_of_all_brokers_shows_only_altered_settings() -> None:
    broker = settings(log_retention_ms="4000")
    broker.overlay({"min.insync.replicas": "3"}, {"min.insync.replicas": "2"})
    (entry,) = SettingsView(broker).describe_all_brokers()
    assert (entry.name, entry.value, entry.source) == (
        "min.insync.replicas",
        "2",
        ConfigSource.DYNAMIC_DEFAULT_BROKER,
    )


def test_altering_a_setting_fixed_at_the_start_is_refused_with_advice() -> None:
    with pytest.raises(SettingError, match=r"Cannot update these configs dynamically: Set\(broker.id\)"):
        settings().check({"broker.id": "7"})


def test_a_password_from_elsewhere_is_not_shown() -> None:
    rows = [*ROWS, Setting("key.password", SettingType.PASSWORD, None, "")]
    given = resolved({"zookeeper.connect": "z:1", "key.password": "${env:WORD}"}, {"WORD": "correct-horse"})
    broker = SettingsInForce(Settings(rows, given))

    (entry,) = SettingsView(broker).describe_broker(["key.password"])

    assert broker["key.password"] == "correct-horse"
    assert entry.is_sensitive and "correct-horse" not in repr(entry)


def test_clients_cannot_have_a_broker_read_a_file_or_its_environment() -> None:
    broker = settings()

    with pytest.raises(SettingError, match=r"\$\{env:HOME\}"):
        broker.check({"log.retention.ms": "${env:HOME}"})
    broker.overlay({"x.y": "${env:HOME}"}, {})
    assert broker.own == {"x.y": "${env:HOME}"}


def test_a_setting_that_brokers_do_not_have_is_taken_and_shown_without_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = settings()
    own = broker.altered({}, [Alteration("min.insync.replica", ConfigOperation.SET, "2")])
    assert own == {"min.insync.replica": "2"}
    broker.overlay(own, {"x.y": "1"})
    broker.overlay(own, {"x.y": "1"})
    assert broker["min.insync.replicas"] == 1
    (unknown,) = [
        each for each in SettingsView(broker).describe_broker() if each.name == "min.insync.replica"
    ]
    assert (unknown.value, unknown.source) == (None, ConfigSource.DYNAMIC_BROKER)
    assert (unknown.type, unknown.is_sensitive, unknown.read_only) == (ConfigType.UNKNOWN, True, True)
    (shared,) = SettingsView(broker).describe_all_brokers()
    assert (shared.name, shared.value, shared.type) == ("x.y", None, ConfigType.UNKNOWN)
    assert caplog.messages == [
        "Brokers have no setting min.insync.replica, so its value in /config/brokers has no effect; did you "
        "mean min.insync.replicas?",
        "Brokers have no setting x.y, so its value in /config/brokers has no effect",
    ], "one warning for each"


@pytest.mark.parametrize(
    ("configs", "message"),
    [
        ({"min.insync.replica": None}, "has no value"),
        (
            {"min.insync.replicas": "none"},
            "Invalid value none for configuration min.insync.replicas: expected",
        ),
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
def test_invalid_values_are_refused(configs: dict[str, str | None], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        settings().check(configs)


def test_invalid_values_written_by_other_software_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    broker = settings()
    broker.overlay({"min.insync.replicas": "no", "broker.id": "9", "log.retention.ms": "5"}, {"x.y": "1"})
    assert (broker["min.insync.replicas"], broker["broker.id"], broker["log.retention.ms"]) == (1, -1, 5)
    assert caplog.text.count("Ignoring an invalid setting in /config/brokers") == 2
    broker.overlay({"log.cleaner.min.compaction.lag.ms": "9"}, {"log.cleaner.max.compaction.lag.ms": "8"})
    assert broker["log.retention.ms"] == 5, "all stays as it was"


def test_list_entries_are_appended_to_the_files_value() -> None:
    append = Alteration("log.cleanup.policy", ConfigOperation.APPEND, "compact")
    assert settings().altered({}, [append]) == {"log.cleanup.policy": "delete,compact"}


def test_invalid_values_of_other_software_do_not_prevent_alterations() -> None:
    own = {"of.other.software": "1", "min.insync.replicas": "2"}
    changed = settings().altered(
        own,
        [
            Alteration("log.retention.ms", ConfigOperation.SET, "1"),
            Alteration("min.insync.replicas", ConfigOperation.DELETE, None),
        ],
    )
    assert changed == {"of.other.software": "1", "log.retention.ms": "1"}
