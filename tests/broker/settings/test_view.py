"""Administrators' view of settings, and alterations of them."""

from __future__ import annotations

import difflib

import pytest

from holdfast_log.broker.log.decompression import MESSAGE_BYTES_MAX
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.broker.settings.alterations import Alteration
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.settings.view import EffectiveSetting, SettingsView
from holdfast_log.clients.settings import SettingError
from holdfast_log.protocol.configs import ConfigOperation, ConfigSource
from holdfast_log.protocol.errors import BrokerError


def view(**broker: str) -> SettingsView:
    given = {name.replace("_", "."): value for name, value in broker.items()}
    return SettingsView(SettingsInForce(broker_settings({"zookeeper.connect": "z:1", **given})))


def entry(entries: list[EffectiveSetting], name: str) -> EffectiveSetting:
    (found,) = [entry for entry in entries if entry.name == name]
    return found


def sources(found: EffectiveSetting) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in found.synonyms]


def test_a_topics_value_is_its_own_then_the_brokers_then_the_default() -> None:
    configs = view(log_retention_ms="5000")
    own = entry(configs.describe_topic({"retention.ms": "1000"}), "retention.ms")
    assert (own.value, own.source) == ("1000", ConfigSource.DYNAMIC_TOPIC)
    assert sources(own) == [
        ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC),
        ("log.retention.ms", "5000", ConfigSource.STATIC_BROKER),
    ]
    inherited = entry(configs.describe_topic({}), "retention.ms")
    assert (inherited.value, inherited.source) == ("5000", ConfigSource.STATIC_BROKER)
    default = entry(view().describe_topic({}), "retention.ms")
    assert (default.value, default.source) == ("604800000", ConfigSource.DEFAULT)


@pytest.mark.parametrize(
    ("name", "value", "listed"),
    [
        ("segment.bytes", "1073741824", [("log.segment.bytes", "1073741824", ConfigSource.DEFAULT)]),
        # Kafka's brokers have no default of log.retention.ms, but one of log.retention.hours.
        ("retention.ms", "604800000", []),
        ("segment.ms", "604800000", []),
        # Brokers have no setting of this kind.
        ("leader.replication.throttled.replicas", "", []),
    ],
)
def test_a_default_is_a_synonym_only_where_the_brokers_setting_has_one(
    name: str, value: str, listed: list[tuple[str, str, ConfigSource]]
) -> None:
    found = entry(view().describe_topic({}), name)
    assert (found.value, found.source, sources(found)) == (value, ConfigSource.DEFAULT, listed)


def test_a_brokers_setting_in_a_coarser_unit_counts() -> None:
    found = entry(view(log_retention_hours="1").describe_topic({}), "retention.ms")
    assert (found.value, found.source) == ("3600000", ConfigSource.STATIC_BROKER)


def test_values_are_shown_as_a_properties_file_has_them() -> None:
    shown = view().describe_topic({})
    assert entry(shown, "cleanup.policy").value == "delete"
    assert entry(shown, "flush.before.ack").value == "false"
    assert entry(view().describe_broker(), "broker.rack").value is None


def test_only_the_requested_settings_are_shown() -> None:
    assert [entry.name for entry in view().describe_topic({}, ["retention.ms"])] == ["retention.ms"]
    assert [entry.name for entry in view().describe_broker(["broker.id"])] == ["broker.id"]


def test_a_brokers_settings_say_whether_they_were_given() -> None:
    described = view(num_partitions="3").describe_broker()
    given, default = entry(described, "num.partitions"), entry(described, "default.replication.factor")
    assert (given.value, given.source, given.read_only) == ("3", ConfigSource.STATIC_BROKER, True)
    assert (default.value, default.source) == ("1", ConfigSource.DEFAULT)
    required = entry(described, "zookeeper.connect")
    assert sources(required) == [("zookeeper.connect", "z:1", ConfigSource.STATIC_BROKER)]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention", "1", "Unknown topic config name: retention; did you mean retention.ms"),
        ("retention.ms", "soon", "Invalid value soon for configuration retention.ms: expected a whole"),
        ("retention.ms", None, "retention.ms has no value"),
        ("cleanup.policy", "burn", "cleanup.policy"),
    ],
)
def test_an_invalid_topic_setting_is_refused_with_the_reason(
    name: str, value: str | None, message: str
) -> None:
    with pytest.raises(SettingError) as refused:
        view().check({name: value})
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("name", "compared"),
    [("unknown-12-3", 0), ("x" * 10_000, 0), ("retention.mss", 5), ("cleanup.polici", 1)],
)
def test_an_unknown_setting_is_compared_letter_by_letter_with_few(
    name: str, compared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def compare(key: str, names: list[str], **how: float) -> list[str]:
        found.append(len(names))
        return []

    monkeypatch.setattr(difflib, "get_close_matches", compare)
    with pytest.raises(SettingError, match="Unknown topic config name"):
        view().check({name: "1"})
    assert sum(found) <= compared


def alter(own: dict[str, str], *alterations: tuple[str, ConfigOperation, str | None]) -> dict[str, str]:
    return view().altered(own, [Alteration(*alteration) for alteration in alterations])


def test_values_are_set_and_deleted() -> None:
    own = {"retention.ms": "1", "segment.ms": "2"}
    changed = alter(
        own,
        ("retention.ms", ConfigOperation.DELETE, None),
        ("segment.bytes", ConfigOperation.SET, "1000"),
    )
    assert changed == {"segment.ms": "2", "segment.bytes": "1000"}
    assert own == {"retention.ms": "1", "segment.ms": "2"}


def test_a_topic_may_have_no_cleanup_policy() -> None:
    assert alter({}, ("cleanup.policy", ConfigOperation.SET, "")) == {"cleanup.policy": ""}
    settings = LogSettings.of({"cleanup.policy": ""})
    assert settings.cleanup_policy == ()
    assert not settings.is_deleted


def test_the_older_timestamp_setting_counts_where_the_newer_ones_are_not_set() -> None:
    older = LogSettings.of(
        {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "7"}
    )
    assert (older.message_timestamp_before_max_ms, older.message_timestamp_after_max_ms) == (5, 7)
    by_broker = view(log_message_timestamp_difference_max_ms="9").describe_topic({})
    assert entry(by_broker, "message.timestamp.difference.max.ms").value == "9"


def test_timestamps_are_at_most_an_hour_ahead_by_default_as_in_kafka() -> None:
    default = LogSettings.of({})
    assert default == LogSettings()
    assert (default.message_timestamp_before_max_ms, default.message_timestamp_after_max_ms) == (
        2**63 - 1,
        3_600_000,
    )


def test_no_topic_raises_the_size_of_a_batch_beyond_the_brokers_maximum() -> None:
    assert LogSettings.of({"max.message.bytes": 2**31 - 1}).max_message_bytes == MESSAGE_BYTES_MAX


def test_list_entries_are_appended_and_subtracted() -> None:
    added = alter({}, ("cleanup.policy", ConfigOperation.APPEND, "compact"))
    assert added == {"cleanup.policy": "delete,compact"}
    assert alter(added, ("cleanup.policy", ConfigOperation.APPEND, "compact")) == added
    assert alter(added, ("cleanup.policy", ConfigOperation.SUBTRACT, "delete")) == {
        "cleanup.policy": "compact"
    }


def test_a_setting_that_is_not_a_list_cannot_be_appended_to() -> None:
    with pytest.raises(SettingError, match="is not a list"):
        alter({}, ("retention.ms", ConfigOperation.APPEND, "1"))


def test_a_setting_named_twice_is_refused() -> None:
    change = ("retention.ms", ConfigOperation.SET, "1")
    with pytest.raises(BrokerError, match="more than once"):
        alter({}, change, change)


def test_the_outcome_is_checked_as_a_whole() -> None:
    with pytest.raises(SettingError, match=r"min\.compaction\.lag\.ms"):
        alter(
            {"max.compaction.lag.ms": "10"},
            ("min.compaction.lag.ms", ConfigOperation.SET, "20"),
        )


@pytest.mark.parametrize(
    ("broker", "own", "allowed"),
    [
        ("false", {}, False),
        ("true", {}, True),
        ("true", {"unclean.leader.election.enable": "false"}, False),
        ("false", {"unclean.leader.election.enable": "true"}, True),
        ("true", {"unclean.leader.election.enable": "perhaps"}, False),
        # Of settings that contradict each other, this one is still valid.
        ("true", {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, True),
    ],
)
def test_unclean_election_is_allowed_by_the_topic_or_else_the_broker(
    broker: str, own: dict[str, str], allowed: bool
) -> None:
    assert view(unclean_leader_election_enable=broker).unclean_election_allowed(own) is allowed
