"""Where resources are decided about: partitions at their leaders, names at the coordinator of their group."""

from __future__ import annotations

from typing import Protocol

from clients.connection.connection import ANY_NODE, Connection
from clients.connection.link import Call, Reply
from clients.connection.metadata import NO_NODE
from clients.errors import is_retriable
from clients.groups.coordinator import find_coordinator_request, place_in
from protocol.messages.find_coordinator import FindCoordinatorResponse
from protocol.topic_partition import TopicPartition


class Decider(Protocol):
    """The broker that decides about a resource."""

    def node(self) -> int:
        """Its id, NO_NODE while it is not known; then it is looked for."""

    def forget(self) -> None:
        """It has proved to be another: look for it again."""


class LeaderDecider:
    """The leader of a partition, as the metadata have it."""

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
        self._metadata.renew()


class CoordinatorDecider:
    """The coordinator of a group, which is asked for."""

    def __init__(self, group: str, retry_backoff_ms: int) -> None:
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
        self._node = NO_NODE

    def calls(self, now_ms: int) -> list[Call]:
        """What is to be asked to find it."""
        if not self._is_searched() or now_ms < self._not_before_ms:
            return []
        self._search = Call(ANY_NODE, find_coordinator_request(self._group))
        return [self._search]

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was one to such a call. Raises what will not pass by itself."""
        if reply.call is not self._search:
            return False
        self._search = None
        self._not_before_ms = now_ms + self._retry_backoff_ms
        try:
            if reply.error is not None:
                raise reply.error
            assert isinstance(reply.response, FindCoordinatorResponse)
            self._node = place_in(reply.response).node
        except Exception as error:
            if not is_retriable(error):
                raise
        return True

    def next_event_ms(self) -> int | None:
        """When `calls` has something by itself."""
        return self._not_before_ms if self._is_searched() else None

    def _is_searched(self) -> bool:
        return self._is_wanted and self._node == NO_NODE and self._search is None
