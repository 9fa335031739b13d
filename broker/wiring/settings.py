"""Builds the settings in force: from the broker's file, altered through ZooKeeper, and of topics."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.settings.broker_settings import BrokerSettings
from holdfast_log.broker.settings.changes import SettingChanges
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.loggers import LoggerLevels
from holdfast_log.broker.settings.topic_settings import TopicSettings
from holdfast_log.broker.settings.view import SettingsView
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.clients.settings import Settings
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs


@dataclass(frozen=True, slots=True)
class SettingsParts:
    """The present settings of this broker and of topics."""

    static: Settings
    in_force: SettingsInForce
    dynamic_configs: DynamicConfigs
    view: SettingsView
    broker: BrokerSettings
    topics: TopicSettings
    changes: SettingChanges
    loggers: LoggerLevels


def build_settings(
    settings: Settings, around: Surroundings, broker_id: int, logs: LogManager, metadata: MetadataCache
) -> SettingsParts:
    dynamic_configs = DynamicConfigs(around.zookeeper, around.clock)
    in_force = SettingsInForce(settings)
    view = SettingsView(in_force)
    return SettingsParts(
        static=settings,
        in_force=in_force,
        dynamic_configs=dynamic_configs,
        view=view,
        broker=BrokerSettings(broker_id, in_force, dynamic_configs),
        topics=TopicSettings(view, in_force, dynamic_configs, logs, metadata),
        changes=SettingChanges(broker_id, view, in_force, dynamic_configs, metadata),
        loggers=LoggerLevels(),
    )
