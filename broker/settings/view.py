"""Settings as DescribeConfigs returns them: values and their sources. Also checks topics' settings.

The value of a topic's setting is the first of: the value in the topic's znode, the value in force of the
broker setting that is its default (see `broker.settings.in_force`), the default.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast_log.broker.log.settings import BROKER_SYNONYM, TOPIC_SETTINGS, LogSettings
from holdfast_log.broker.settings.alterations import (
    Alteration,
    altered,
    check_segments,
    worded_as_in_kafka,
)
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.internal_topics import check_enough_replicas, check_internal_topic
from holdfast_log.clients.settings import (
    REQUIRED,
    Setting,
    SettingError,
    SettingType,
    closest_name,
    shown_value,
)
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS
from holdfast_log.protocol.configs import ConfigSource


class ConfigType(enum.IntEnum):
    """The type of a value, with its code in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Synonym:
    """A source of a setting's value; the first synonym with a value is in force."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting with its value in force, which is also that of the first synonym, if there is one.

    The value of a password, and of a setting that brokers do not have, is None: it could be a secret.
    """

    row: Setting
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]
    is_known: bool = True

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def is_sensitive(self) -> bool:
        return self.row.type is SettingType.PASSWORD

    @property
    def type(self) -> ConfigType:
        return ConfigType[self.row.type.name] if self.is_known else ConfigType.UNKNOWN


_TOPIC_ROWS = {row.name: row for row in TOPIC_SETTINGS}
_UNCLEAN = "unclean.leader.election.enable"
_MIN_IN_SYNC = "min.insync.replicas"


class SettingsView:
    """The settings in force, of this broker and of topics."""

    def __init__(self, broker: SettingsInForce) -> None:
        self._broker = broker

    # Topics

    def check(self, configs: Mapping[str, str | None]) -> None:
        """Raises `SettingError` for unknown settings and invalid values of a topic."""
        for name, value in configs.items():
            if name not in _TOPIC_ROWS:
                closest = closest_name(name, _TOPIC_ROWS)
                hint = f"; did you mean {closest}?" if closest else ""
                raise SettingError(f"Unknown topic config name: {name}{hint}")
            if value is None:
                raise SettingError(f"{name} has no value")
        with worded_as_in_kafka():
            LogSettings.of(configs, self._broker.topic_defaults)

    def check_new_topic(self, topic: str, configs: Mapping[str, str | None], replicas: int | None) -> None:
        """Raises `SettingError` for settings with which no client may create a topic, although brokers can
        carry them out. `replicas` is the number that each partition has at least; None for the default."""
        bounds = self._broker.segment_bounds.of_topic()
        if topic not in INTERNAL_TOPICS:
            check_segments(configs, {}, bounds)
            return
        if replicas is None:
            replicas = self._broker["default.replication.factor"]
        # Brokers create it by the same request, with segments as their file says.
        check_segments(configs, {"segment.bytes": str(self._broker["offsets.topic.segment.bytes"])}, bounds)
        check_internal_topic(topic, configs, {}, replicas)
        min_in_sync = self._broker.topic_defaults[_MIN_IN_SYNC]
        if configs.get(_MIN_IN_SYNC) is None:
            check_enough_replicas(topic, min_in_sync, replicas)

    def unclean_election_allowed(self, configs: Mapping[str, str]) -> bool:
        """Whether a topic with these own settings allows an out-of-sync replica to lead.

        An invalid value, which other software must have written, counts as false.
        """
        try:
            allowed: bool = self._value(configs, _UNCLEAN)
        except SettingError:
            return False
        return allowed

    def min_in_sync(self, configs: Mapping[str, str]) -> int:
        """The value of min.insync.replicas for a topic with these settings of its own.

        If the topic's value is not allowed (other software must have written it), the default applies.
        """
        try:
            count: int = self._value(configs, _MIN_IN_SYNC)
        except SettingError:
            count = self._broker.topic_defaults[_MIN_IN_SYNC]
        return count

    def _value(self, configs: Mapping[str, str], name: str) -> Any:
        """The value in force of one of a topic's settings. Raises `SettingError`."""
        own = configs.get(name)
        return self._broker.topic_defaults[name] if own is None else _TOPIC_ROWS[name].parse(own)

    def altered(self, configs: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
        """Apply alterations to a topic's own settings, and check the result.

        Raises `SettingError`, and BrokerError INVALID_REQUEST for a setting that is named twice.
        """
        result = altered(configs, alterations, _TOPIC_ROWS, self._inherited)
        self.check(result)
        return result

    def _inherited(self, name: str) -> str | None:
        return shown_value(self._broker.topic_defaults[name])

    @property
    def settings_of_topics(self) -> int:
        """Number of settings that `describe_topic` returns."""
        return len(TOPIC_SETTINGS)

    @property
    def settings_of_brokers(self) -> int:
        """Number of settings that `describe_broker` returns at least."""
        return len(self._broker.rows)

    def describe_topic(
        self, configs: Mapping[str, str | None], names: Iterable[str] | None = None
    ) -> list[EffectiveSetting]:
        """The settings of a topic with these names; all if `names` is None."""
        return [
            self._topic_entry(row, configs) for row in TOPIC_SETTINGS if names is None or row.name in names
        ]

    def _topic_entry(self, row: Setting, configs: Mapping[str, str | None]) -> EffectiveSetting:
        synonyms = []
        own = configs.get(row.name)
        if own is not None:
            synonyms.append(Synonym(row.name, own, ConfigSource.DYNAMIC_TOPIC))
        broker_name = BROKER_SYNONYM.get(row.name)
        if broker_name is None:
            return _entry(row, synonyms, read_only=False)
        given = self._given(broker_name)
        in_file = self._broker.static_topic_defaults[row.name]
        if broker_name not in self._broker.static.given and in_file != row.default:
            # Set by one of the coarser units of the same setting, such as log.retention.hours.
            given.append(Synonym(broker_name, shown_value(in_file), ConfigSource.STATIC_BROKER))
        synonyms += [*given, *_default(self._broker.rows[broker_name])]
        return _entry(row, synonyms, read_only=False)

    # Brokers

    def describe_broker(self, names: Iterable[str] | None = None) -> list[EffectiveSetting]:
        """The settings of this broker with these names; all if `names` is None."""
        entries = []
        for row in self._broker.rows.values():
            if names is not None and row.name not in names:
                continue
            synonyms = [*self._given(row.name), *_default(row)]
            entries.append(_entry(row, synonyms, read_only=not row.dynamic))
        altered = self._broker.own.keys() | self._broker.shared.keys()
        unknown = sorted(altered - self._broker.rows.keys())
        entries += [_unknown_entry(self._given(name)) for name in unknown if names is None or name in names]
        return entries

    def describe_all_brokers(self, names: Iterable[str] | None = None) -> list[EffectiveSetting]:
        """The alterations for all brokers together."""
        entries = []
        for name, value in sorted(self._broker.shared.items()):
            if names is not None and name not in names:
                continue
            synonym = Synonym(name, value, ConfigSource.DYNAMIC_DEFAULT_BROKER)
            row = self._broker.rows.get(name)
            entries.append(
                _unknown_entry([synonym]) if row is None else _entry(row, [synonym], read_only=False)
            )
        return entries

    def _given(self, name: str) -> list[Synonym]:
        """The set values of a broker setting, without its default, the one in force first."""
        broker = self._broker
        given = []
        if name in broker.own:
            given.append(Synonym(name, broker.own[name], ConfigSource.DYNAMIC_BROKER))
        if name in broker.shared:
            given.append(Synonym(name, broker.shared[name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
        if name in broker.static.given:
            value = shown_value(broker.static[name])
            given.append(Synonym(name, value, ConfigSource.STATIC_BROKER))
        return given


def _default(row: Setting) -> list[Synonym]:
    """The default of a broker's setting, if it has one: as in Kafka, None is no default."""
    if row.default is REQUIRED or row.default is None:
        return []
    return [Synonym(row.name, shown_value(row.default), ConfigSource.DEFAULT)]


def _entry(row: Setting, synonyms: Sequence[Synonym], *, read_only: bool) -> EffectiveSetting:
    if row.type is SettingType.PASSWORD:
        synonyms = [Synonym(synonym.name, None, synonym.source) for synonym in synonyms]
    if not synonyms:
        return EffectiveSetting(row, shown_value(row.default), ConfigSource.DEFAULT, read_only, ())
    return EffectiveSetting(row, synonyms[0].value, synonyms[0].source, read_only, tuple(synonyms))


def _unknown_entry(given: Sequence[Synonym]) -> EffectiveSetting:
    """A setting that brokers do not have, as Kafka shows it: with its sources, without its value."""
    row = Setting(given[0].name, SettingType.PASSWORD, None, "")
    hidden = tuple(Synonym(synonym.name, None, synonym.source) for synonym in given)
    return EffectiveSetting(row, None, hidden[0].source, read_only=True, synonyms=hidden, is_known=False)
