"""When a leader has a batch examined that its followers refuse as damaged.

A follower repeats its refusal with each fetch. A segment is not examined again at once if nothing wrong was
found: the bits may have changed on the way.
"""

from __future__ import annotations

from holdfast_log.broker.log.log import Log

_EXAMINED_MS = 60_000
"""Minimum time between two examinations of the same batch, in ms."""


class RefusedBatches:
    """The batches of one log that followers have refused."""

    __slots__ = ("_examined", "_log")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._examined: tuple[int, int] | None = None
        """The offset of the batch that was examined last, and when, in ms."""

    def examine(self, replica_id: int, offset: int, now_ms: int) -> None:
        """Have the batch at `offset` examined, which broker `replica_id` has refused."""
        log = self._log
        if not log.log_start_offset <= offset < log.log_end_offset:
            return
        if self._examined is not None:
            before, examined_ms = self._examined
            if before == offset and now_ms - examined_ms < _EXAMINED_MS:
                return
        self._examined = offset, now_ms
        log.suspect_at(offset, f"broker {replica_id} has refused the batch with offset {offset} as damaged")
