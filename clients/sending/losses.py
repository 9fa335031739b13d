"""Records that failed and whose outcome nobody has looked at, summed up by partition and cause.

`flush`, `close` and the end of a `with` block raise them. A response whose error was read, whose `result()`
raised it, whose callback was called with it, or that was awaited, counts as looked at.

One event may fail many records: a condition that does not hold fails all that were sent behind it, and a
fenced producer loses everything that it has queued. All these records have the same error. Once the
application has seen it, from one of the records or raised by `send`, it knows of all of them.

A failed batch costs an entry here, an acknowledged record or batch costs nothing. Entries are merged by
partition and kind of error, so that their number is bounded however many records fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.errors import GuardElsewhereError, GuardMismatchError, Loss, UndeliveredError
from protocol.errors import BrokerError, ErrorCode, OffsetMismatchError

if TYPE_CHECKING:
    from clients.sending.batch import Batch

_OF_MANY_RECORDS = (OffsetMismatchError, GuardMismatchError, GuardElsewhereError)
"""Errors of conditions. A record that was sent behind a refused one fails with the error of that one."""
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
"""Errors after which the producer cannot be used any more: everything queued fails with the first."""


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
        self._losses.know(error)


class Losses:
    """The losses of one producer. The producer's lock must be held for every call."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, type[Exception], object], LossCount] = {}
        self._known: Exception | None = None
        """The error of many records that the application saw last."""

    def add(self, batch: Batch, error: Exception) -> None:
        """All records of a batch have failed."""
        if error is self._known:
            return
        code = error.code if isinstance(error, BrokerError) else None
        key = (batch.topic, batch.partition, type(error), code)
        counted = self._counts.get(key)
        if counted is None:
            counted = self._counts[key] = LossCount(self, batch.topic, batch.partition, error)
        counted.count += len(batch)
        batch.loss = counted

    def know(self, error: Exception) -> None:
        """The application has seen an error. If it is one of many records, the others count as looked at,
        those too that still fail with it."""
        if not _is_of_many(error):
            return
        self._known = error
        of_this_kind = [key for key, counted in self._counts.items() if counted.error is error]
        for key in of_this_kind:
            del self._counts[key]

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


def _is_of_many(error: Exception) -> bool:
    if isinstance(error, BrokerError) and error.code in _FENCED:
        return True
    return isinstance(error, _OF_MANY_RECORDS)
