"""The broker's settings in force: its properties file, overlaid with alterations at run time (KIP-226).

The value in force is the first of: this broker's alteration, the alteration for all brokers, the value in the
file, the default. Only settings with a dynamic row can be altered. As in Kafka, an alteration of a setting
that brokers do not have is stored and shown, and has no effect: it may be for another version.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast_log.broker.log.settings import LogSettings, topic_defaults
from holdfast_log.broker.settings.alterations import Alteration, SegmentBounds, altered, worded_as_in_kafka
from holdfast_log.clients.settings import Setting, SettingError, Settings, closest_name, shown_value

_log = logging.getLogger(__name__)


class SettingsInForce(Mapping[str, Any]):
    """The present checked values by setting name.

    `own` and `shared` are the alterations in force, of this broker and of all brokers. `topic_defaults` are
    the defaults of topic settings; `static_topic_defaults` are those without alterations.
    """

    def __init__(self, static: Settings) -> None:
        self.static = static
        self.own: Mapping[str, str] = {}
        self.shared: Mapping[str, str] = {}
        self._altered: dict[str, Any] = {}
        self._checks: list[Callable[[Mapping[str, Any]], None]] = []
        self.static_topic_defaults = self.topic_defaults = topic_defaults(static)

    def add_check(self, check: Callable[[Mapping[str, Any]], None]) -> None:
        """Call `check` with the settings that a client's alteration would put into force; it raises
        `SettingError` for those that cannot work."""
        self._checks.append(check)

    @property
    def rows(self) -> Mapping[str, Setting]:
        return self.static.rows

    @property
    def segment_bounds(self) -> SegmentBounds:
        """How small clients may make segments, and how sparse their indexes."""
        return SegmentBounds(self["log.segment.bytes.min"], self["log.segment.ms.min"])

    def __getitem__(self, name: str) -> Any:
        return self._altered[name] if name in self._altered else self.static[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.static)

    def __len__(self) -> int:
        return len(self.static)

    def overlay(self, own: Mapping[str, str], shared: Mapping[str, str]) -> None:
        """Put alterations into force. Invalid ones, which other software must have written, are ignored and
        logged."""
        own, shared = self._sound(own), self._sound(shared)
        try:
            self._check({**shared, **own})
        except SettingError as error:
            _log.error(
                "The settings in /config/brokers contradict each other; the previous ones stay in force: %s",
                error,
            )
            return
        self._warn_of_unknown({**shared, **own})
        self.own, self.shared = own, shared
        self._altered = self._parsed({**shared, **own})
        self.topic_defaults = topic_defaults(self)

    def _warn_of_unknown(self, altered: Mapping[str, str]) -> None:
        for name in sorted(altered.keys() - self.rows.keys() - self.own.keys() - self.shared.keys()):
            closest = closest_name(name, self.rows)
            hint = f"; did you mean {closest}?" if closest else ""
            _log.warning(
                "Brokers have no setting %s, so its value in /config/brokers has no effect%s", name, hint
            )

    def _sound(self, configs: Mapping[str, str]) -> dict[str, str]:
        sound = {}
        for name, value in configs.items():
            try:
                self._check({name: value})
            except SettingError as error:
                _log.error("Ignoring an invalid setting in /config/brokers: %s", error)
            else:
                sound[name] = value
        return sound

    def _parsed(self, configs: Mapping[str, str]) -> dict[str, Any]:
        return {name: self.rows[name].parse(value) for name, value in configs.items() if name in self.rows}

    # Checks of alterations

    def check(self, configs: Mapping[str, str | None]) -> None:
        """Raises `SettingError` for values that are not allowed, alone or together, for those that the broker
        cannot carry out, and for settings that cannot be altered while it runs. Any value of an unknown
        setting is allowed."""
        self._check(configs)
        given = {name: value for name, value in configs.items() if value is not None}
        for check in self._checks:
            check({**self, **self._parsed(given)})

    def _check(self, configs: Mapping[str, str | None]) -> None:
        given = {}
        for name, value in configs.items():
            row = self.rows.get(name)
            if row is not None and not row.dynamic:
                raise SettingError(
                    f"Cannot update these configs dynamically: Set({name}). Set it in the broker's "
                    "properties file, and restart the broker"
                )
            if value is None:
                raise SettingError(f"{name} has no value")
            given[name] = value
        with worded_as_in_kafka():
            LogSettings.of({}, topic_defaults({**self.static, **self._parsed(given)}))

    def altered(self, own: Mapping[str, str], alterations: Sequence[Alteration]) -> dict[str, str]:
        """`own` with some alterations applied, checked. Raises as `check` does."""
        result = altered(own, alterations, self.rows, lambda name: shown_value(self.static[name]))
        # Present settings that are not altered may belong to other software: do not check them.
        touched = {alteration.name for alteration in alterations}
        self.check(
            {name: value for name, value in result.items() if name in touched or self._is_dynamic(name)}
        )
        return result

    def _is_dynamic(self, name: str) -> bool:
        return name in self.rows and self.rows[name].dynamic
