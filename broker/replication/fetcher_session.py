"""The follower's side of its fetch session with a leader (KIP-227).

It records which positions the leader knows, so that a request names only the changed ones.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Generic, TypeAlias, TypeVar

from holdfast_log.broker.replication.fetch_sessions import FIRST_EPOCH, NO_SESSION, next_epoch
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, ForgottenTopic

PartitionId: TypeAlias = "tuple[uuid.UUID, int]"
"""Topic id and index."""

SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors after which the follower requests a new session without a pause."""

C = TypeVar("C")


class FetcherSession(Generic[C]):
    """The positions that a leader knows of one follower.

    `C` is the follower's object for a partition: if the object is replaced, the next request names the
    partition again, even at the same position. At most one request of the session may be in flight. If a
    request fails, call `end`: it is unknown whether the leader has seen the request.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[PartitionId, tuple[C, FetchPartition]] = {}
        self._left: dict[PartitionId, None] = {}

    @property
    def is_new(self) -> bool:
        """Whether the next request must name all partitions."""
        return self._epoch == FIRST_EPOCH

    @property
    def known(self) -> Mapping[PartitionId, tuple[C, FetchPartition]]:
        """The partitions of the session, and the follower's position in each when it last named it."""
        return self._known

    def begin(self, request: FetchRequest) -> None:
        """Set the session id and epoch of the session's next request."""
        request.session_id, request.session_epoch = self._id, self._epoch

    def must_name(self, partition: PartitionId, copy: C, position: FetchPartition) -> bool:
        """Whether the request must name a partition. Records the position as known to the leader."""
        self._left.pop(partition, None)
        known = self._known.get(partition)
        if known is not None and known[0] is copy and known[1] == position:
            return False
        self._known[partition] = (copy, position)
        return True

    def leave(self, partition: PartitionId) -> None:
        """Remove a partition from the session, unless it is named before the next request."""
        if partition in self._known:
            self._left[partition] = None

    def forgotten(self) -> list[ForgottenTopic]:
        """The partitions that the request must list as forgotten. Call it after all `must_name` calls."""
        topics: dict[uuid.UUID, ForgottenTopic] = {}
        for topic_id, index in self._left:
            del self._known[topic_id, index]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(index)
        self._left.clear()
        return list(topics.values())

    def answered(self, session_id: int) -> None:
        """Record the leader's response, which has this session id."""
        if session_id == NO_SESSION or (session_id != self._id and not self.is_new):
            self._id = NO_SESSION
            self.end()
        else:
            self._id, self._epoch = session_id, next_epoch(self._epoch)

    def end(self) -> None:
        """Open a new session with the next request, which also closes the present one."""
        self._epoch = FIRST_EPOCH
        # A new dict: the response to the last request may still use the old one.
        self._known = {}
        self._left.clear()
