"""Where a consumer stands in its partitions."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.batches import BatchHeader
from protocol.topic_partition import TopicPartition


class StoredBatch(NamedTuple):
    """A batch that was fetched and not yet taken: `header` says where in `records` it is.

    `is_skipped` where nothing of it is to be handed out: markers of transactions, and what these aborted.
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
    """The offset of the next record to hand out; None until it is known."""
    reset_to: int | None = None
    """The time (or EARLIEST, LATEST) whose offset is to be looked up for a position."""
    is_paused: bool = False
    """By the application: nothing is fetched or handed out until it says otherwise."""
    is_held: bool = False
    """By the group: the same, while the partition is about to change hands."""
    is_unowned: bool = False
    """While this consumer has not got the partition that it wants for itself: the same."""
    is_pending: bool = False
    """Whether the position is yet to be what the group has committed: it is not reset meanwhile."""
    high_watermark: int | None = None
    """The offset after the last record that this consumer may see, as of the last fetch."""
    log_start_offset: int | None = None
    fetch_offset: int = 0
    """The offset after what has been fetched."""
    fetch_epoch: int = -1
    """The leader epoch of what has been fetched last; -1 where nothing was since the position was set."""
    checked_epoch: int = -1
    """The last leader epoch in which what has been fetched is known to be in the log."""
    store: deque[StoredBatch] = field(default_factory=deque)
    """Whole batches, fetched and not yet taken."""
    stored_bytes: int = 0
    generation: int = 0
    """Counts the times that the position was set: what was asked for before does not count any more."""
    not_before_ms: int = 0
    last_error: Exception | None = None
    """Why the last fetch or look-up brought nothing."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is fetched or handed out."""
        return self.is_paused or self.is_held or self.is_unowned

    def go_to(self, offset: int) -> None:
        """Continue at `offset`."""
        self._forget()
        self.offset = self.fetch_offset = offset
        self.reset_to = None

    def go_to_time(self, time: int) -> None:
        """Continue at the offset of `time`, which has to be looked up."""
        self._forget()
        self.offset = None
        self.reset_to = time

    def keep(self, records: memoryview, header: BatchHeader, is_skipped: bool) -> None:
        """Put a batch in store that came with a fetch, unless all of it came before."""
        if header.last_offset >= self.fetch_offset:
            self.store.append(StoredBatch(records, header, is_skipped))
            self.stored_bytes += header.size
            self.fetch_offset = header.next_offset
            self.fetch_epoch = header.leader_epoch

    def must_be_checked(self, leader_epoch: int) -> bool:
        """Whether the leader may have another log than the one that was read from (KIP-320)."""
        return self.fetch_epoch >= 0 and leader_epoch > self.checked_epoch

    def _forget(self) -> None:
        self.generation += 1
        self.is_pending = False
        self.store.clear()
        self.stored_bytes = 0
        self.not_before_ms = 0
        self.fetch_epoch = self.checked_epoch = -1
