"""Wakes the table: at its next deadline, and soon after changes for which no request waits."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, now_ms

FLUSH_INTERVAL_S = 0.1
"""Delay before changes for which no request waits are written, and failed promotions are tried again."""
_STANDSTILL_MS = 250
"""Lateness of a timer, in ms, beyond which the broker itself has stood still."""


class TableAlarms:
    """The two alarms of a table. `table_changed` is called after each change that they cause; call `set` when
    the table has changed.
    """

    def __init__(self, clock: Clock, table: OwnershipTable, table_changed: Callable[[], None]) -> None:
        self._clock = clock
        self._table = table
        self._table_changed = table_changed
        self._deadline = Alarm(clock, self._tick)
        """Set for the table's next deadline."""
        self._due_ms = 0
        self._read_by_ms = 0
        """Time by which the requests that arrived during the last standstill are read; no session ends
        before."""
        self._flush_alarm = Alarm(clock, self._flush)
        self._is_stopped = False

    def set(self) -> None:
        """Set the alarms that the table needs now."""
        if self._is_stopped:
            return
        next_ms = self._table.next_deadline_ms
        if next_ms is not None:
            due_ms = max(next_ms, self._read_by_ms)
            if not self._deadline.is_set or due_ms < self._due_ms:
                self._set_deadline(due_ms)
        if not self._flush_alarm.is_set and self._table.has_unwritten:
            self._flush_alarm.set(FLUSH_INTERVAL_S)

    def _set_deadline(self, due_ms: int) -> None:
        time_ms = now_ms(self._clock)
        self._due_ms = max(due_ms, time_ms)
        self._deadline.set(max(due_ms - time_ms, 1) / 1000)

    def _tick(self) -> None:
        time_ms = now_ms(self._clock)
        late_ms = time_ms - self._due_ms
        if late_ms > _STANDSTILL_MS:
            # The broker stood still, and has not yet read the requests that owners have sent meanwhile.
            self._read_by_ms = time_ms + _STANDSTILL_MS
            self._set_deadline(self._read_by_ms)
            return
        self._table.tick(time_ms)
        self._table_changed()

    def _flush(self) -> None:
        self._table.flush(now_ms(self._clock))
        self._table_changed()

    def stop(self) -> None:
        """Wake the table no more, because the broker stops."""
        self._is_stopped = True
        self._deadline.cancel()
        self._flush_alarm.cancel()
