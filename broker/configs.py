"""Settings as administrators see and alter them: values, where they come from, and what they may be.

A topic's setting is the first of: what the topic's znode says, what the broker's file says, the default.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from broker.log.config import BROKER_SYNONYM, TOPIC_SETTINGS, LogConfig, topic_defaults
from clients.settings import REQUIRED, Setting, SettingError, Settings, SettingType, closest_name
from protocol.configs import ConfigOperation, ConfigSource
from protocol.errors import BrokerError, ErrorCode


class ConfigType(enum.IntEnum):
    """What a value is, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Synonym:
    """A value that would hold if those before it did not."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with its value in force. `synonyms` has that one first; a password's value is not told."""

    row: Setting
    value: str | None
    source: ConfigSource
    read_only: bool
    synonyms: tuple[Synonym, ...]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def is_sensitive(self) -> bool:
        return self.row.type is SettingType.PASSWORD

    @property
    def type(self) -> ConfigType:
        return ConfigType[self.row.type.name]


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a setting."""

    name: str
    operation: ConfigOperation
    value: str | None


_TOPIC_ROWS = {row.name: row for row in TOPIC_SETTINGS}


class ConfigView:
    """The settings of this broker and of topics, over what its file says."""

    def __init__(self, broker: Settings) -> None:
        self._broker = broker
        self._defaults = topic_defaults(broker)

    def check(self, configs: Mapping[str, str | None]) -> None:
        """Raises `SettingError` for settings that a topic does not take."""
        for name, value in configs.items():
            if name not in _TOPIC_ROWS:
                closest = closest_name(name, _TOPIC_ROWS)
                hint = f"; did you mean {closest}?" if closest else ""
                raise SettingError(f"topics have no setting {name}{hint}")
            if value is None:
                raise SettingError(f"{name} has no value")
        LogConfig.of(configs, self._defaults)

    def unclean_election_allowed(self, configs: Mapping[str, str]) -> bool:
        """Whether a topic with these settings of its own may be led by a replica that is not in sync."""
        return LogConfig.of(configs, self._defaults).unclean_leader_election_enable

    def altered(self, configs: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
        """A topic's own settings after some alterations, checked.

        Raises `SettingError`, and BrokerError INVALID_REQUEST for a setting that is named twice.
        """
        names = [alteration.name for alteration in alterations]
        if len(set(names)) != len(names):
            raise BrokerError(ErrorCode.INVALID_REQUEST, "the request names a setting several times")
        result = dict(configs)
        for alteration in alterations:
            if alteration.operation is ConfigOperation.DELETE:
                result.pop(alteration.name, None)
            else:
                result[alteration.name] = self._altered_value(result, alteration)
        self.check(result)
        return result

    def _altered_value(self, configs: Mapping[str, str], alteration: Alteration) -> str:
        name, value = alteration.name, alteration.value
        if value is None:
            raise SettingError(f"{name} has no value")
        if alteration.operation is ConfigOperation.SET:
            return value
        row = _TOPIC_ROWS.get(name)
        if row is None or row.type is not SettingType.LIST:
            raise SettingError(f"{name} is no list: its value can be set or deleted, not added to")
        current = configs.get(name) or shown_value(self._defaults[name]) or ""
        return _edited_list(current, value, alteration.operation)

    def describe_topic(
        self, configs: Mapping[str, str | None], names: Iterable[str] | None = None
    ) -> list[ConfigEntry]:
        """The settings of a topic, all where `names` is None."""
        return [
            self._topic_entry(row, configs) for row in TOPIC_SETTINGS if names is None or row.name in names
        ]

    def _topic_entry(self, row: Setting, configs: Mapping[str, str | None]) -> ConfigEntry:
        synonyms = []
        own = configs.get(row.name)
        if own is not None:
            synonyms.append(Synonym(row.name, own, ConfigSource.DYNAMIC_TOPIC))
        broker_name = BROKER_SYNONYM[row.name]
        if broker_name in self._broker.given:
            value = shown_value(self._broker[broker_name])
            synonyms.append(Synonym(broker_name, value, ConfigSource.STATIC_BROKER))
        elif self._defaults[row.name] != row.default:
            # Set by one of the coarser units of the same setting, such as log.retention.hours.
            value = shown_value(self._defaults[row.name])
            synonyms.append(Synonym(broker_name, value, ConfigSource.STATIC_BROKER))
        synonyms.append(Synonym(broker_name, shown_value(row.default), ConfigSource.DEFAULT))
        return _entry(row, synonyms, read_only=False)

    def describe_broker(self, names: Iterable[str] | None = None) -> list[ConfigEntry]:
        """The settings of this broker, all where `names` is None."""
        entries = []
        for row in self._broker.rows.values():
            if names is not None and row.name not in names:
                continue
            synonyms = []
            if row.name in self._broker.given:
                value = shown_value(self._broker[row.name])
                synonyms.append(Synonym(row.name, value, ConfigSource.STATIC_BROKER))
            if row.default is not REQUIRED:
                synonyms.append(Synonym(row.name, shown_value(row.default), ConfigSource.DEFAULT))
            entries.append(_entry(row, synonyms, read_only=True))
        return entries


def _entry(row: Setting, synonyms: Sequence[Synonym], *, read_only: bool) -> ConfigEntry:
    if row.type is SettingType.PASSWORD:
        synonyms = [Synonym(synonym.name, None, synonym.source) for synonym in synonyms]
    return ConfigEntry(row, synonyms[0].value, synonyms[0].source, read_only, tuple(synonyms))


def shown_value(value: Any) -> str | None:
    """A setting's value as text, in the form in which a properties file has it."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _edited_list(current: str, change: str, operation: ConfigOperation) -> str:
    items = [item for item in current.split(",") if item]
    changed = [item.strip() for item in change.split(",") if item.strip()]
    if operation is ConfigOperation.APPEND:
        items += [item for item in changed if item not in items]
    else:
        items = [item for item in items if item not in changed]
    return ",".join(items)
