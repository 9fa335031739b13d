"""The broker's own settings while it runs: taken over when they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.settings.changes import BROKERS
from broker.settings.in_force import DynamicSettings
from coordinator.cluster.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs


class BrokerConfigs:
    """Keeps `settings` as ZooKeeper has them for this broker and for all. `changed` is called afterwards."""

    def __init__(
        self, broker_id: int, settings: DynamicSettings, dynamic: DynamicConfigs, changed: Callable[[], None]
    ) -> None:
        self._name = str(broker_id)
        self._settings = settings
        self._dynamic = dynamic
        self._changed = changed
        dynamic.add_listener(self._on_change)

    def _on_change(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        if kind == BROKERS and name in (self._name, DEFAULT_ENTITY):
            self._settings.overlay(
                self._dynamic.get(BROKERS, self._name), self._dynamic.get(BROKERS, DEFAULT_ENTITY)
            )
            self._changed()
