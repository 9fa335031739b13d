"""The settings of a broker's logs: each topic's own, with the broker's values as defaults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.log.settings import LogSettings
from holdfast_log.clients.settings import SettingError

logger = logging.getLogger(__name__)


class LogSettingsInForce:
    """Applies settings to logs. `defaults` are the broker's values (see `topic_defaults`).

    `logs` returns the present logs; `changed` is called with each log whose settings were replaced.
    """

    def __init__(
        self, defaults: Mapping[str, Any], logs: Iterable[Log], changed: Callable[[Log], None]
    ) -> None:
        self._defaults = defaults
        self._logs = logs
        self._changed = changed
        self._overrides: dict[str, Mapping[str, Any]] = {}
        self._latest: tuple[str, LogSettings] | None = None
        """Cache: topic and settings of the last log created. Logs of one topic are created in sequence."""

    def of(self, topic: str) -> LogSettings:
        """The settings of a new log of a topic.

        If the topic's own settings contradict the broker's defaults, which may have changed, Kafka's defaults
        replace the broker's: otherwise the replica could not be created.
        """
        if self._latest is not None and self._latest[0] == topic:
            return self._latest[1]
        overrides = self._overrides.get(topic, {})
        try:
            settings = LogSettings.of(overrides, self._defaults)
        except SettingError as error:
            logger.error(
                "Topic %s uses Kafka's defaults: its own settings contradict this broker's defaults: %s",
                topic,
                error,
            )
            settings = LogSettings.of(overrides)
        self._latest = topic, settings
        return settings

    def set_topic(self, topic: str, overrides: Mapping[str, Any]) -> None:
        """Apply a topic's own settings at once. Raises `SettingError`, and then nothing has changed."""
        settings = LogSettings.of(overrides, self._defaults)
        self._latest = None
        if overrides:
            self._overrides[topic] = dict(overrides)
        else:
            self._overrides.pop(topic, None)
        for log in self._logs:
            if log.topic_partition.topic == topic:
                self._give(log, settings)

    def set_defaults(self, defaults: Mapping[str, Any]) -> None:
        """Apply other defaults at once.

        A topic whose own settings contradict them keeps its present settings.
        """
        self._defaults = defaults
        self._latest = None
        by_topic: dict[str, LogSettings | None] = {}
        for log in self._logs:
            topic = log.topic_partition.topic
            if topic not in by_topic:
                try:
                    by_topic[topic] = LogSettings.of(self._overrides.get(topic, {}), defaults)
                except SettingError as error:
                    logger.error(
                        "Topic %s keeps its settings, which contradict the new defaults: %s", topic, error
                    )
                    by_topic[topic] = None
            settings = by_topic[topic]
            if settings is not None:
                self._give(log, settings)

    def _give(self, log: Log, settings: LogSettings) -> None:
        log.settings = settings
        self._changed(log)
