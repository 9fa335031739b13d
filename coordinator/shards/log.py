"""The interface to the partition that stores a shard's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.shards.effects import ProducerStamp, ShardRecord

NOTHING_COMMITTED = -1

Replay = Callable[[bytes, bytes | None], None]
"""`replay(key, value)` handles one record; must not raise."""

ReplayOpen = Callable[[ProducerStamp, bytes, bytes | None], None]
"""`replay_open(producer, key, value)` handles one record of an open transaction; must not raise."""


class CommitWatch(Protocol):
    """A registration for calls when the committed offset rises."""

    def cancel(self) -> None:
        """Stop the calls. Harmless if they have stopped."""
        ...


class ShardLog(Protocol):
    """One partition, led by this broker in one leader epoch."""

    def read_all(self, replay: Replay, replay_open: ReplayOpen) -> Deferred[None]:
        """Pass the log's records to `replay`, in order; of records with the same key at least the last.
        Those of a transaction count at their own offsets, once it is committed. Those of transactions that
        the log's end leaves open are passed to `replay_open` afterwards.

        Both are called in a worker thread, one call at a time. When the Deferred fires, `end_offset` is
        past the last record read and the broker's metadata includes all topics. Fails if the log cannot be
        read or this broker no longer leads it.
        """
        ...

    def append(self, records: Sequence[ShardRecord], timestamp_ms: int, stamp: ProducerStamp | None) -> None:
        """Append `records` as one batch, of a producer's transaction if there is a `stamp`.

        Raises BrokerError: nothing was written, except that KAFKA_STORAGE_ERROR leaves this unknown.
        """
        ...

    @property
    def leader_epoch(self) -> int:
        """The leader epoch in which this broker leads the partition."""
        ...

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        ...

    @property
    def committed_offset(self) -> int:
        """The offset after the last committed record, which no leader change can remove.

        `NOTHING_COMMITTED` while nobody can prove that this broker still leads: no request may be answered.
        """
        ...

    def is_current_since(self, since_s: float) -> bool:
        """Whether it is proven that no other broker led the partition at some moment since `since_s`, by the
        broker's clock. What is read without that may be outdated."""
        ...

    def watch(self, check: Callable[[], bool]) -> CommitWatch:
        """Call `check` whenever `committed_offset` may have risen, until it returns True."""
        ...
