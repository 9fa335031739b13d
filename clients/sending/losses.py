"""Records that failed and whose outcome nobody has looked at, summed up by partition and cause.

`flush`, `close` and the end of a `with` block raise them. A response whose error was read, whose `result()`
raised it, whose callback was called with it, or that was awaited, counts as looked at.

One event may fail many records. A condition that does not hold fails all that were sent behind it: once the
application has looked at such a refusal of a partition, it follows what becomes of conditions there, and
they are not counted any more. A fenced producer loses everything that it has queued: once the application has
seen the error, from one of the records or raised by `send`, it knows of all.

A failed batch costs an entry here, an acknowledged record or batch costs nothing. Entries are merged by
partition and kind of error, so that their number is bounded however many records fail.
"""

from __future__ import annotations

from typing import Protocol

from holdfast_log.clients.errors import (
    GuardElsewhereError,
    GuardMismatchError,
    Loss,
    UndeliveredError,
    is_fenced,
)
from holdfast_log.protocol.errors import AppendIdUnknownError, BrokerError, OffsetMismatchError

_OF_CONDITIONS = (OffsetMismatchError, AppendIdUnknownError, GuardMismatchError, GuardElsewhereError)


class LossCount:
    """How many records of one partition failed for one cause, and were not looked at."""

    __slots__ = ("_losses", "count", "error", "partition", "topic")

    def __init__(self, losses: Losses, topic: str, partition: int, error: Exception) -> None:
        self._losses = losses
        self.topic = topic
        self.partition = partition
        self.error = error
        """The first error of this kind."""
        self.count = 0

    def look_at(self, error: Exception, count: int) -> None:
        """The application has looked at so many of these records, which failed with `error`."""
        self.count -= count
        self._losses.know(error, self.topic, self.partition)


class FailedRecords(Protocol):
    """Records of one partition that failed together: a `clients.sending.batch.Batch`."""

    topic: str
    partition: int
    loss: LossCount | None

    def __len__(self) -> int:
        """The number of records."""
        ...


class Losses:
    """The losses of one producer. The producer's lock must be held for every call."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, type[Exception], object], LossCount] = {}
        self._is_fenced = False
        """Whether the application knows that the producer is fenced."""
        self._follows_conditions: set[tuple[str, int]] = set()
        """The partitions of which the application has looked at a refused condition."""

    def add(self, batch: FailedRecords, error: Exception) -> None:
        """All records of a batch have failed."""
        if self._is_known(error, batch.topic, batch.partition):
            return
        code = error.code if isinstance(error, BrokerError) else None
        key = (batch.topic, batch.partition, type(error), code)
        counted = self._counts.get(key)
        if counted is None:
            counted = self._counts[key] = LossCount(self, batch.topic, batch.partition, error)
        counted.count += len(batch)
        batch.loss = counted

    def _is_known(self, error: Exception, topic: str, partition: int) -> bool:
        if isinstance(error, _OF_CONDITIONS):
            return (topic, partition) in self._follows_conditions
        return self._is_fenced and is_fenced(error)

    def know(self, error: Exception, topic: str = "", partition: int = -1) -> None:
        """The application has seen an error: of a partition, or of the producer as a whole."""
        if isinstance(error, _OF_CONDITIONS):
            self._follows_conditions.add((topic, partition))
        elif is_fenced(error):
            self._is_fenced = True
        else:
            return
        for counted in self._counts.values():
            if self._is_known(counted.error, counted.topic, counted.partition):
                counted.count = 0

    def take(self) -> UndeliveredError | None:
        """The error with all that was not looked at, which counts as looked at from here on; None if there is
        nothing."""
        counts, self._counts = self._counts, {}
        losses = [
            Loss(each.topic, None if each.partition < 0 else each.partition, each.count, each.error)
            for each in counts.values()
            if each.count > 0
        ]
        return UndeliveredError(losses) if losses else None
