"""Which broker decides about a resource: a partition's leader, or the coordinator of a name's group."""

from __future__ import annotations

from typing import Protocol

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import is_retriable
from holdfast_log.clients.groups.coordinator import coordinator_in, find_coordinator_request
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorResponse
from holdfast_log.protocol.topic_partition import TopicPartition


class Decider(Protocol):
    """The broker that decides about a resource."""

    def node(self) -> int:
        """The broker's id; NO_NODE while it is unknown, and then a search begins."""

    def forget(self) -> None:
        """Search again, at another broker: this one does not decide, whatever it says of itself."""


class LeaderDecider:
    """The leader of a partition, taken from the metadata."""

    def __init__(self, connection: Connection, partition: TopicPartition) -> None:
        self._metadata = connection.metadata
        self._partition = partition

    def node(self) -> int:
        self._metadata.want(self._partition.topic)
        node = self._metadata.leader(*self._partition)
        if node == NO_NODE:
            self._metadata.renew()
        return node

    def forget(self) -> None:
        self._metadata.doubt_leader(*self._partition)


class CoordinatorDecider:
    """The coordinator of a group, found by FindCoordinator."""

    def __init__(self, connection: Connection, group: str, retry_backoff_ms: int) -> None:
        self._metadata = connection.metadata
        self._group = group
        self._retry_backoff_ms = retry_backoff_ms
        self._node = NO_NODE
        self._is_wanted = False
        self._search: Call | None = None
        self._not_before_ms = 0

    def node(self) -> int:
        self._is_wanted = True
        return self._node

    def forget(self) -> None:
        if self._node != NO_NODE:
            self._metadata.doubt(self._node)
        self._node = NO_NODE

    def calls(self, now_ms: int) -> list[Call]:
        """The search to send now, if one is due."""
        if not self._is_search_needed() or now_ms < self._not_before_ms:
            return []
        self._search = Call(ANY_NODE, find_coordinator_request(self._group))
        return [self._search]

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply. False if it does not answer the search. Raises errors that are not retriable."""
        if reply.call is not self._search:
            return False
        self._search = None
        self._not_before_ms = now_ms + self._retry_backoff_ms
        try:
            if reply.error is not None:
                raise reply.error
            assert isinstance(reply.response, FindCoordinatorResponse)
            self._node = coordinator_in(reply.response).node
        except Exception as error:
            if not is_retriable(error):
                raise
        return True

    def next_event_ms(self) -> int | None:
        """When the next search is due; None if no search is needed."""
        return self._not_before_ms if self._is_search_needed() else None

    def _is_search_needed(self) -> bool:
        return self._is_wanted and self._node == NO_NODE and self._search is None
