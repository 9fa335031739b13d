"""Forwards requests of the client rewrite from any broker to the group's coordinator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.offsets_topic import OffsetsTopic
from holdfast_log.broker.network.outbound import ChannelError
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode

R = TypeVar("R", bound=Response)


class SendToBroker(Protocol):
    """Sends a request to a broker: `Peers.send`."""

    def __call__(self, broker_id: int, request: Request[R], timeout_ms: int | None = None) -> Deferred[R]: ...


class Forwarding:
    """Finds the coordinators of groups, and sends requests to them."""

    def __init__(
        self, local_id: int, topic: OffsetsTopic, metadata: MetadataCache, send: SendToBroker
    ) -> None:
        self.local_id = local_id
        self._topic = topic
        self._metadata = metadata
        self._send = send

    def find(self, group_id: str) -> Deferred[int]:
        """The broker that coordinates a group. Fails with COORDINATOR_NOT_AVAILABLE."""
        return self._topic.ensure().addCallback(lambda _: self._topic.leader_of(group_id))

    def brokers(self) -> Iterable[int]:
        """Every broker that may coordinate groups."""
        return sorted(self._metadata.brokers)

    def send(self, broker_id: int, request: Request[R]) -> Deferred[R]:
        """The broker's response. Fails with COORDINATOR_NOT_AVAILABLE if there is none."""
        return self._send(broker_id, request).addErrback(_unreachable)

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int]:
        """Address of a broker on the listener; ("", -1) if it has none."""
        node = self._metadata.brokers.get(broker_id)
        return ("", -1) if node is None else node.endpoint(listener) or ("", -1)


def _unreachable(failure: Failure) -> Any:
    failure.trap(ChannelError)
    raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(failure.value))
