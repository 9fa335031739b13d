"""What a fetch session remembers: its reader, and of each partition the reader's position and the offsets
last sent to it; and who watches a partition, so that its changes stir it in all sessions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from holdfast_log.broker.replication.admission import NO_TOKEN
from holdfast_log.protocol.messages.fetch import FetchPartition
from holdfast_log.protocol.topic_partition import TopicPartition

_OLD_ENTRIES_MAX = 64
"""So many entries of fetches that wait no more are not worth a search for them."""
_NOT_TOLD = -1
NEVER_MS = -(1 << 62)

NamedPartition: TypeAlias = "tuple[UUID | str, int]"
"""(topic id or name, partition index), as the reader named the partition."""


class Sleeper(Protocol):
    """A waiting fetch of a session."""

    def ask(self, key: SessionPartition) -> None:
        """Check whether the fetch can be answered, now that this partition may have news."""
        ...

    def expire(self) -> None:
        """Answer the fetch now."""
        ...


class FetchReader(NamedTuple):
    """Sender of a fetch. `replica_id` is -1 for a consumer. A session's reader may change its connection."""

    principal: str
    replica_id: int
    broker_epoch: int = -1
    connection_id: int = -1

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0

    @property
    def registration(self) -> tuple[int, int]:
        """(replica id, broker epoch). A follower that registers again must be recorded again in each
        partition."""
        return self.replica_id, self.broker_epoch


@dataclass(slots=True, eq=False)
class SessionPartition:
    """A partition in a session: the reader's position, and the offsets last sent to it."""

    session: FetchSession
    named: NamedPartition
    wanted: FetchPartition
    key: TopicPartition | None = None
    """None while the topic id is unknown."""
    watchers: Watchers | None = None
    """Those of `key`, this one among them."""
    high_watermark: int = _NOT_TOLD
    log_start_offset: int = _NOT_TOLD

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether these offsets differ from those last sent to the reader; they then count as sent."""
        if self.high_watermark == high_watermark and self.log_start_offset == log_start_offset:
            return False
        self.high_watermark, self.log_start_offset = high_watermark, log_start_offset
        return True

    def calm(self) -> None:
        """Mark the partition as without news until something stirs it."""
        self.session.stirred.pop(self, None)

    def step_back(self) -> None:
        """Keep the partition stirred, but move it behind all others in the reading order."""
        stirred = self.session.stirred
        stirred.pop(self, None)
        stirred[self] = None

    def fail(self) -> None:
        """Record that an error was sent to the reader: after the error has ended, all offsets are news."""
        self.high_watermark = self.log_start_offset = _NOT_TOLD
        self.step_back()


@dataclass(slots=True, eq=False)
class FetchSession:
    """One reader's session. `epoch` is the session epoch expected in the next request."""

    id: int
    by_ids: bool
    """Whether the reader names topics by their ids (from version 13 on)."""
    reader: FetchReader
    created_ms: int
    used_ms: int
    epoch: int = 1
    answered_ms: int = NEVER_MS
    """Time in ms of the last response; it may have been sent later."""
    asked_after_ms: int = NEVER_MS
    """Time in ms after which the reader built its last request: that of the response before."""
    partitions: dict[NamedPartition, SessionPartition] = field(default_factory=dict)
    stirred: dict[SessionPartition, None] = field(default_factory=dict)
    """Partitions that may have news, in the order in which they are read."""
    is_closed: bool = False
    """Whether the session has been closed. Its partitions may be among those that are watched for a while."""
    waiting: Sleeper | None = None
    """The waiting fetch of this session; None if no fetch waits."""
    needed: dict[SessionPartition, int] = field(default_factory=dict)
    """How many bytes a partition's log must have had appended before the waiting fetch is worth a look at
    it; partitions that are looked at whenever they change are missing. Set by `need`."""

    def need(self, needed: dict[SessionPartition, int]) -> None:
        """Set `needed`."""
        for partition in self.needed:
            if partition.watchers is not None:
                partition.watchers.wake(partition)
        self.needed = needed

    @property
    def has_fences(self) -> bool:
        """Whether the reader has sent a fence for any of the partitions."""
        return any(each.wanted.owner_token != NO_TOKEN for each in self.partitions.values())

    def close(self) -> Iterable[SessionPartition]:
        """Take note that the session has been closed. Returns its partitions, which it holds no more."""
        partitions, self.partitions = self.partitions, {}
        self.stirred, self.needed = {}, {}
        self.is_closed = True
        return partitions.values()

    def stir_all(self) -> None:
        """Stir all partitions."""
        self.stirred = dict.fromkeys(self.partitions.values())


@dataclass(slots=True, eq=False)
class Watchers:
    """The sessions' entries for one partition. Those of fetches that wait for more bytes sleep once they are
    stirred: records that are too few for them cost nothing more."""

    awake: dict[SessionPartition, None] = field(default_factory=dict)
    asleep: dict[SessionPartition, int] = field(default_factory=dict)
    """Stirred already, with the bytes that must have been appended."""
    _heap: list[tuple[int, int, SessionPartition]] = field(default_factory=list)
    """(bytes, order, entry): one for each of `asleep`, and old ones."""
    _order: int = 0

    def discard(self, partition: SessionPartition) -> None:
        self.awake.pop(partition, None)
        self.asleep.pop(partition, None)

    def sleep(self, partition: SessionPartition, needed: int) -> None:
        """Leave the partition out until so many bytes have been appended, or until `wake`."""
        del self.awake[partition]
        self.asleep[partition] = needed
        self._order += 1
        if len(self._heap) > 2 * len(self.asleep) + _OLD_ENTRIES_MAX:
            self._heap = [entry for entry in self._heap if self.asleep.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (needed, self._order, partition))

    def wake(self, partition: SessionPartition) -> None:
        if self.asleep.pop(partition, None) is not None:
            self.awake[partition] = None

    def wake_all(self) -> None:
        self.awake.update(dict.fromkeys(self.asleep))
        self.asleep.clear()
        self._heap.clear()

    def wake_up_to(self, written_bytes: int) -> None:
        """Wake those for which so many bytes are enough."""
        while self._heap and self._heap[0][0] <= written_bytes:
            needed, _, partition = heapq.heappop(self._heap)
            if self.asleep.get(partition) == needed:
                self.wake(partition)

    def __bool__(self) -> bool:
        return bool(self.awake or self.asleep)
