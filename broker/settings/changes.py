"""Alters settings on request: checks the resource and the values, and writes the settings to ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.settings.alterations import Alteration, check_segments
from holdfast_log.broker.settings.in_force import SettingsInForce
from holdfast_log.broker.settings.internal_topics import check_internal_topic
from holdfast_log.broker.settings.view import SettingsView
from holdfast_log.clients.settings import SettingError
from holdfast_log.coordinator.cluster.dynamic_configs import DEFAULT_ENTITY, DynamicConfigs
from holdfast_log.coordinator.controller.topic_rules import INTERNAL_TOPICS
from holdfast_log.coordinator.znodes.json_values import BadZnode
from holdfast_log.coordinator.zookeeper.interface import RequestTooLarge
from holdfast_log.protocol.configs import ResourceType
from holdfast_log.protocol.errors import BrokerError, ErrorCode

TOPICS = "topics"
BROKERS = "brokers"
"""The kinds of entities in /config whose settings can be altered."""

Change = Callable[[dict[str, str]], dict[str, str]]


class SettingChanges:
    """Alters the settings of topics, of this broker, and of all brokers together (named "").

    Any broker may alter the settings of a broker that is down: otherwise an alteration that prevents its
    start could not be reverted.
    """

    def __init__(
        self,
        broker_id: int,
        view: SettingsView,
        settings: SettingsInForce,
        dynamic: DynamicConfigs,
        metadata: MetadataCache,
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._settings = settings
        self._dynamic = dynamic
        self._metadata = metadata

    def alter(
        self, resource_type: int, name: str, alterations: Sequence[Alteration], *, validate_only: bool
    ) -> Deferred[BrokerError | None]:
        """Alter some settings and keep the others. The result is None, or the error that prevented it."""
        if resource_type == ResourceType.BROKER:
            return self._update_broker(
                name, lambda own: self._settings.altered(own, alterations), validate_only
            )
        return self._update_topic(
            resource_type, name, lambda own: self._view.altered(own, alterations), validate_only
        )

    def replace(
        self, resource_type: int, name: str, configs: Mapping[str, str | None], *, validate_only: bool
    ) -> Deferred[BrokerError | None]:
        """Replace all settings. The result is None, or the error that prevented it."""
        check = self._settings.check if resource_type == ResourceType.BROKER else self._view.check

        def change(own: dict[str, str]) -> dict[str, str]:
            check(configs)
            return {name: value for name, value in configs.items() if value is not None}

        if resource_type == ResourceType.BROKER:
            return self._update_broker(name, change, validate_only)
        return self._update_topic(resource_type, name, change, validate_only)

    def _update_broker(self, name: str, change: Change, validate_only: bool) -> Deferred[BrokerError | None]:
        try:
            if not self._is_absent(name):
                check_is_this_broker(name, self._broker_id)
        except BrokerError as error:
            return succeed(error)
        return self._update(BROKERS, name or DEFAULT_ENTITY, change, validate_only)

    def _is_absent(self, name: str) -> bool:
        return name.isascii() and name.isdigit() and not self._metadata.is_live(int(name))

    def _update_topic(
        self, resource_type: int, name: str, change: Change, validate_only: bool
    ) -> Deferred[BrokerError | None]:
        if resource_type != ResourceType.TOPIC:
            return succeed(
                BrokerError(ErrorCode.INVALID_REQUEST, f"resources of type {resource_type} have no settings")
            )
        if name not in self._metadata.topics:
            missing = BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
            return succeed(missing)
        return self._update(TOPICS, name, change, validate_only)

    def _update(
        self, kind: str, name: str, change: Change, validate_only: bool
    ) -> Deferred[BrokerError | None]:
        def bounded(own: dict[str, str]) -> dict[str, str]:
            changed = change(own)
            bounds = self._settings.segment_bounds
            is_topic = kind == TOPICS
            check_segments(changed, own, bounds.of_topic() if is_topic else bounds.of_broker())
            if is_topic and name in INTERNAL_TOPICS:
                check_internal_topic(name, changed, own, self._replicas_of(name))
            return changed

        if validate_only:
            try:
                bounded(dict(self._dynamic.get(kind, name)))
            except (SettingError, BrokerError) as error:
                return succeed(_as_broker_error(error))
            return succeed(None)
        return self._dynamic.update(kind, name, bounded).addCallbacks(lambda _: None, _refused)

    def _replicas_of(self, topic: str) -> int | None:
        """The smallest number of replicas of the topic's partitions; None if the topic has none."""
        partitions = self._metadata.topics[topic].partitions.values()
        return min((len(partition.replicas) for partition in partitions), default=None)


def check_is_this_broker(name: str, local_id: int) -> None:
    """Raises BrokerError INVALID_REQUEST for the name of another broker: clients must ask that broker.

    An empty name stands for all brokers together.
    """
    if name not in ("", str(local_id)):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {local_id}, but received {name}. Send it to that broker",
        )


def check_is_named_broker(name: str, local_id: int) -> None:
    """Raises BrokerError INVALID_REQUEST for another broker's name, and for that of all brokers: loggers
    belong to one process."""
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "name one broker: loggers have no common defaults")
    check_is_this_broker(name, local_id)


def _refused(failure: Failure) -> BrokerError:
    failure.trap(SettingError, BrokerError, BadZnode, RequestTooLarge)
    if failure.check(RequestTooLarge):
        return BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"the settings are too long: {failure.getErrorMessage()}",
        )
    if failure.check(BadZnode):
        return BrokerError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the present settings cannot be read, so nothing was changed: {failure.getErrorMessage()}; "
            "repair or remove the znode",
        )
    return _as_broker_error(failure.value)


def _as_broker_error(error: BaseException | None) -> BrokerError:
    if isinstance(error, BrokerError):
        return error
    return BrokerError(ErrorCode.INVALID_CONFIG, str(error))
