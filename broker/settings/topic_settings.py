"""The settings of topics in a running broker: follows /config/topics and applies new settings to logs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.settings.changes import TOPICS
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.view import SettingsView
from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs

_log = logging.getLogger(__name__)


class TopicSettings:
    """Applies the settings in force to logs.

    Call `configs_changed` with each change of dynamic configs, and `defaults_changed` after each change of
    the broker's own settings.
    """

    def __init__(
        self,
        view: SettingsView,
        in_force: SettingsInForce,
        dynamic_configs: DynamicConfigs,
        logs: LogManager,
        metadata: MetadataCache,
    ) -> None:
        self._view = view
        self._in_force = in_force
        self._dynamic_configs = dynamic_configs
        self._logs = logs
        self._metadata = metadata
        self._listeners: list[Callable[[str], None]] = []
        self._unclean_election_listeners: list[Callable[[str], None]] = []

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each topic whose settings may have changed, once its logs have them."""
        self._listeners.append(listener)

    def add_unclean_election_listener(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with each topic whose settings may have changed and allow unclean elections."""
        self._unclean_election_listeners.append(listener)

    def unclean_election_allowed(self, topic: str) -> bool:
        """The value of `unclean.leader.election.enable` for a topic."""
        return self._view.unclean_election_allowed(self._dynamic_configs.get(TOPICS, topic))

    def min_in_sync(self, topic: str) -> int:
        """The value of `min.insync.replicas` for a topic."""
        return self._view.min_in_sync(self._dynamic_configs.get(TOPICS, topic))

    def configs_changed(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Apply the present configs of an entity in ZooKeeper."""
        if kind != TOPICS:
            return
        try:
            self._logs.settings.set_topic(name, configs)
        except SettingError as error:
            # Other software wrote them.
            _log.error("Topic %s keeps its settings, because the new ones are invalid: %s", name, error)
            return
        self._tell(name)

    def defaults_changed(self) -> None:
        """Apply changed settings of the broker, which are the defaults of topics."""
        self._logs.settings.set_defaults(self._in_force.topic_defaults)
        for topic in list(self._metadata.topics):
            self._tell(topic)

    def _tell(self, topic: str) -> None:
        for listener in self._listeners:
            listener(topic)
        if self.unclean_election_allowed(topic):
            for listener in self._unclean_election_listeners:
                listener(topic)
