"""Creates topics that clients ask for: the controller creates them, with its default settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_log = logging.getLogger(__name__)

DEFAULT = -1
TIMEOUT_MS = 10_000


class AutoCreation:
    """`ask_controller` sends a request to the cluster's controller. `special` maps topics to the settings
    with which they are created. `names_clients`: whether the controller may be told for whom a topic is
    created; brokers of earlier versions of the protocol between brokers do not tell it."""

    def __init__(
        self,
        ask_controller: Callable[[CreateTopicsRequest], Deferred[CreateTopicsResponse]],
        log: RepeatedLog,
        special: Sequence[CreatableTopic] = (),
        *,
        names_clients: bool = True,
    ) -> None:
        self._names_clients = names_clients
        self._log = log
        self._ask_controller = ask_controller
        self._special = {topic.name: topic for topic in special}

    def create(self, names: list[str], on_behalf_of: str | None = None) -> Deferred[dict[str, ErrorCode]]:
        """Have the controller create topics; the error code of each. Never fails. The controller's audit log
        names the client `on_behalf_of` whom this broker asks, None: this broker. Whether that client may
        create them is decided before."""
        request = CreateTopicsRequest(
            topics=[self._special.get(name) or _ordinary(name) for name in names],
            timeout_ms=TIMEOUT_MS,
            on_behalf_of=on_behalf_of if self._names_clients else None,
        )
        return self._ask_controller(request).addCallbacks(self._answered, self._failed, errbackArgs=(names,))

    def _answered(self, response: CreateTopicsResponse) -> dict[str, ErrorCode]:
        results = {}
        for topic in response.topics:
            code = results[topic.name] = ErrorCode(topic.error_code)
            if code is ErrorCode.NONE:
                _log.info("The controller created topic %s because a client asked for it", topic.name)
            elif code is ErrorCode.NOT_CONTROLLER:
                results[topic.name] = ErrorCode.LEADER_NOT_AVAILABLE
        return results

    def _failed(self, failure: Failure, names: list[str]) -> dict[str, ErrorCode]:
        self._log.warning(
            _log,
            "failed requests to the controller to create topics",
            "The request that the controller create %d topics for a client failed: %s",
            len(names),
            failure.getErrorMessage(),
        )
        return dict.fromkeys(names, ErrorCode.LEADER_NOT_AVAILABLE)


def _ordinary(name: str) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=DEFAULT, replication_factor=DEFAULT, assignments=[], configs=[]
    )
