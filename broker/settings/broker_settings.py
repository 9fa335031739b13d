"""The settings of a running broker: follows /config/brokers and notifies listeners of changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast_log.broker.settings.changes import BROKERS
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.coordinator.cluster.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs


class BrokerSettings:
    """Updates `in_force` with the settings in ZooKeeper of this broker and of all brokers.

    Call `configs_changed` with each change of dynamic configs.
    """

    def __init__(self, broker_id: int, in_force: SettingsInForce, dynamic_configs: DynamicConfigs) -> None:
        self._name = str(broker_id)
        self._in_force = in_force
        self._dynamic_configs = dynamic_configs
        self._listeners: list[Callable[[], object]] = []

    def add_listener(self, listener: Callable[[], object]) -> None:
        """Call `listener` after each change of the settings in force."""
        self._listeners.append(listener)

    def configs_changed(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Apply the present configs of an entity in ZooKeeper."""
        if kind == BROKERS and name in (self._name, DEFAULT_ENTITY):
            self._in_force.overlay(
                self._dynamic_configs.get(BROKERS, self._name),
                self._dynamic_configs.get(BROKERS, DEFAULT_ENTITY),
            )
            for listener in self._listeners:
                listener()
