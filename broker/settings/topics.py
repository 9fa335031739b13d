"""Settings of topics while the broker runs: taken over by the logs when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from broker.log.manager import LogManager
from broker.settings.changes import TOPICS
from broker.settings.view import ConfigView
from clients.settings import SettingError
from coordinator.cluster.dynamic_configs import DynamicConfigs

_log = logging.getLogger(__name__)


class TopicConfigs:
    """`changed(topic)` is called after a topic's settings have changed and its logs have taken them over."""

    def __init__(
        self,
        view: ConfigView,
        dynamic: DynamicConfigs,
        logs: LogManager,
        changed: Callable[[str], None],
    ) -> None:
        self._view = view
        self._dynamic = dynamic
        self._logs = logs
        self._changed = changed
        dynamic.add_listener(self._on_change)

    def unclean_election_allowed(self, topic: str) -> bool:
        """What `unclean.leader.election.enable` is for a topic."""
        return self._view.unclean_election_allowed(self._dynamic.get(TOPICS, topic))

    def _on_change(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        if kind != TOPICS:
            return
        try:
            self._logs.configs.set_topic(name, configs)
        except SettingError as error:
            # Written past this software; what held before goes on to hold.
            _log.error("Settings of topic %s are left as they were: %s", name, error)
            return
        self._changed(name)
