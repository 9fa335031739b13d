"""What the coordinator of groups needs of the partition of `__consumer_offsets` under one of its shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred

from coordinator.groups.effects import GroupRecord

NOTHING_COMMITTED = -1

Replay = Callable[[bytes, bytes | None], None]
"""Takes in one record, key and value; raises nothing."""


class CommitWatch(Protocol):
    """Somebody who is told when more has been committed."""

    def cancel(self) -> None:
        """Tell no more. Harmless once it is over."""
        ...


class GroupLog(Protocol):
    """One partition, led by this broker in one leader epoch."""

    def read_all(self, replay: Replay) -> Deferred[None]:
        """Give what is in the log to `replay`, in the log's order, of records with the same key at least the
        last.

        `replay` is called aside, in a worker, by one at a time. When the Deferred fires, `end_offset` is
        behind what was read, and metadata tells of all topics. Fails where the log cannot be read, or is not
        led here any more.
        """
        ...

    def append(self, records: Sequence[GroupRecord], timestamp_ms: int) -> None:
        """Append `records` together. Raises BrokerError; unless it is KAFKA_STORAGE_ERROR, which leaves that
        open, nothing was written then."""
        ...

    @property
    def leader_epoch(self) -> int:
        """In which this broker leads it."""
        ...

    @property
    def end_offset(self) -> int:
        """Behind the last record."""
        ...

    @property
    def committed_offset(self) -> int:
        """Behind the last record that no failure of brokers can take back.

        `NOTHING_COMMITTED` while this broker cannot know whether it still leads: nothing must be told then.
        """
        ...

    def watch(self, check: Callable[[], bool]) -> CommitWatch:
        """Call `check` whenever `committed_offset` may have risen, until it returns True."""
        ...
