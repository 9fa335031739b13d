"""Settings of topics while the broker runs: altered on request, taken over by the logs when they change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from broker.configs import Alteration, ConfigView
from broker.log.manager import LogManager
from broker.metadata import MetadataCache
from clients.settings import SettingError
from coordinator.configs import DynamicConfigs
from protocol.configs import ResourceType
from protocol.errors import BrokerError, ErrorCode

TOPICS = "topics"
"""The kind of entity, among those that have dynamic configs."""


_log = logging.getLogger(__name__)


class TopicConfigs:
    """`changed(topic)` is called after a topic's settings have changed and its logs have taken them over."""

    def __init__(
        self,
        view: ConfigView,
        dynamic: DynamicConfigs,
        metadata: MetadataCache,
        logs: LogManager,
        changed: Callable[[str], None],
    ) -> None:
        self._view = view
        self._dynamic = dynamic
        self._metadata = metadata
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
            self._logs.configure(name, configs)
        except SettingError as error:
            # Written past this software; what held before goes on to hold.
            _log.error("Settings of topic %s are left as they were: %s", name, error)
            return
        self._changed(name)

    def alter(
        self,
        resource_type: int,
        name: str,
        alterations: Sequence[Alteration],
        *,
        validate_only: bool,
    ) -> Deferred[BrokerError | None]:
        """Alter some settings of a topic; the error, if it could not be done."""
        return self._update(
            resource_type, name, lambda own: self._view.altered(own, alterations), validate_only
        )

    def replace(
        self, resource_type: int, name: str, configs: Mapping[str, str | None], *, validate_only: bool
    ) -> Deferred[BrokerError | None]:
        """Replace all settings of a topic; the error, if it could not be done."""

        def change(own: dict[str, str]) -> dict[str, str]:
            self._view.check(configs)
            return {name: value for name, value in configs.items() if value is not None}

        return self._update(resource_type, name, change, validate_only)

    def _update(
        self,
        resource_type: int,
        name: str,
        change: Callable[[dict[str, str]], dict[str, str]],
        validate_only: bool,
    ) -> Deferred[BrokerError | None]:
        if resource_type != ResourceType.TOPIC:
            return succeed(
                BrokerError(ErrorCode.INVALID_REQUEST, "only the settings of topics can be altered")
            )
        if name not in self._metadata.topics:
            return succeed(BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if validate_only:
            try:
                change(dict(self._dynamic.get(TOPICS, name)))
            except (SettingError, BrokerError) as error:
                return succeed(_as_broker_error(error))
            return succeed(None)
        return self._dynamic.update(TOPICS, name, change).addCallbacks(lambda _: None, _refused)


def _refused(failure: Failure) -> BrokerError:
    failure.trap(SettingError, BrokerError)
    return _as_broker_error(failure.value)


def _as_broker_error(error: BaseException | None) -> BrokerError:
    if isinstance(error, BrokerError):
        return error
    return BrokerError(ErrorCode.INVALID_CONFIG, str(error))
