"""Records that failed and whose outcome nobody has looked at, summed up by partition and cause.

`flush`, `close` and the end of a `with` block raise them. A response whose error was read, whose `result()`
raised it, whose callback was called with it, or that was awaited, counts as looked at.

A failed batch costs an entry here, an acknowledged record or batch costs nothing. Entries are merged by
partition and kind of error, so that their number is bounded however many records fail.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.errors import Loss, UndeliveredError
from protocol.errors import BrokerError

if TYPE_CHECKING:
    from clients.sending.batch import Batch


class LossCount:
    """How many records of one partition failed for one cause, and were not looked at."""

    __slots__ = ("count", "error", "partition", "topic")

    def __init__(self, topic: str, partition: int, error: Exception) -> None:
        self.topic = topic
        self.partition = partition
        self.error = error
        """The first error of this kind."""
        self.count = 0


class Losses:
    """The losses of one producer. The producer's lock must be held for every call."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int, type[Exception], object], LossCount] = {}

    def add(self, batch: Batch, error: Exception) -> None:
        """All records of a batch have failed."""
        code = error.code if isinstance(error, BrokerError) else None
        key = (batch.topic, batch.partition, type(error), code)
        counted = self._counts.get(key)
        if counted is None:
            counted = self._counts[key] = LossCount(batch.topic, batch.partition, error)
        counted.count += len(batch)
        batch.loss = counted

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
