"""Where a consumer stands in its partitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_log.protocol.batches import BatchHeader
from holdfast_log.protocol.topic_partition import TopicPartition


class StoredBatch(NamedTuple):
    """A fetched batch that is not taken yet; `header` has its place in `records`.

    `is_skipped` marks control batches and batches of aborted transactions.
    """

    records: memoryview
    header: BatchHeader
    is_skipped: bool


@dataclass(slots=True)
class Position:
    """Where a consumer stands in one partition."""

    topic: str
    partition: int
    offset: int | None = None
    """The offset of the next record for the application; None until it is known."""
    reset_to: int | None = None
    """The time (or EARLIEST, LATEST) whose offset will be looked up and become the position."""
    is_paused: bool = False
    """Suspended by the application's `pause`: nothing is fetched or returned."""
    is_held: bool = False
    """Suspended by the group, while the partition is revoked or rewound."""
    is_unowned: bool = False
    """Suspended until this consumer is the partition's exclusive or attached reader."""
    is_pending: bool = False
    """Whether the group's committed offset is being fetched; `auto.offset.reset` does not apply meanwhile."""
    high_watermark: int | None = None
    """The offset after the last record that this consumer may see, as of the last fetch."""
    log_start_offset: int | None = None
    fetch_offset: int = 0
    """The offset after the last fetched batch."""
    fetch_epoch: int = -1
    """The leader epoch of the last fetched batch; -1 if none was fetched since the position was set."""
    checked_epoch: int = -1
    """The last leader epoch whose log is known to have the fetched records."""
    store: deque[StoredBatch] = field(default_factory=deque)
    """Fetched batches that are not taken yet."""
    stored_bytes: int = 0
    near: int | None = None
    """The follower in the consumer's rack to which the leader has sent it; None: it reads from the leader."""
    settled_until_ms: int = 0
    """Until then the choice of `near` stands. After that the leader may send the consumer elsewhere."""
    failures: int = 0
    """How many requests in a row have failed, or have brought nothing that was asked for."""
    generation: int = 0
    """Rises whenever the position is set; answers to requests of earlier generations are ignored."""
    not_before_ms: int = 0
    last_error: Exception | None = None
    """Why the last fetch or look-up failed."""
    unreadable: Exception | None = None
    """Why the record at `offset` cannot be deserialized. Nothing is fetched or returned until the position is
    set."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_suspended(self) -> bool:
        """Whether the application, the group or an owner has suspended the partition."""
        return self.is_paused or self.is_held or self.is_unowned

    @property
    def is_silent(self) -> bool:
        """Whether nothing is fetched or returned."""
        return self.is_suspended or self.unreadable is not None

    def source(self, leader: int, now_ms: int, busy: Container[int]) -> int:
        """The broker to fetch from: the follower, while that choice stands and its answer is awaited, or else
        the leader."""
        if self.near is not None and now_ms >= self.settled_until_ms and self.near not in busy:
            self.near = None
        return leader if self.near is None else self.near

    def may_be_sent(self, now_ms: int) -> bool:
        """Whether the leader may send the consumer to a follower."""
        return self.near is None and now_ms >= self.settled_until_ms

    def read_from(self, node: int, until_ms: int) -> None:
        """Read from a follower until a time, unless it fails before."""
        self.near, self.settled_until_ms = node, until_ms

    def read_from_leader(self, until_ms: int) -> None:
        """The follower, or what the leader has said of it, is of no use: read from the leader, at least until
        a time."""
        self.near, self.settled_until_ms = None, until_ms

    def go_to(self, offset: int) -> None:
        """Continue at `offset`."""
        self._forget()
        self.offset = self.fetch_offset = offset
        self.reset_to = None

    def go_to_time(self, time: int) -> None:
        """Continue at the offset of `time`, which will be looked up."""
        self._forget()
        self.offset = None
        self.reset_to = time

    def keep(self, records: memoryview, header: BatchHeader, is_skipped: bool) -> None:
        """Store a fetched batch, unless it was fetched before."""
        if header.last_offset >= self.fetch_offset:
            self.store.append(StoredBatch(records, header, is_skipped))
            self.stored_bytes += header.size
            self.fetch_offset = header.next_offset
            self.fetch_epoch = header.leader_epoch

    def must_be_checked(self, leader_epoch: int) -> bool:
        """Whether the leader may have another log than the one that was read (KIP-320)."""
        return self.fetch_epoch >= 0 and leader_epoch > self.checked_epoch

    def _forget(self) -> None:
        self.generation += 1
        self.is_pending = False
        self.store.clear()
        self.stored_bytes = 0
        self.not_before_ms = 0
        self.unreadable = None
        self.fetch_epoch = self.checked_epoch = -1
