"""The least first offset of each run of entries in an index of aborted transactions.

The entries are in the order of their markers. Behind a transaction that was open for long there are those of
all that were aborted meanwhile, and a reader of few records wants none of most of them: those that began
after what it reads. The runs that have none for it are passed over by these numbers, 8 bytes for 128 entries,
and 128 runs at once.
"""

from __future__ import annotations

from array import array

RUN = 128
"""Entries in a run, and runs in a row."""
_UNKNOWN = -1


class LeastOffsets:
    """What is known of the runs that are whole. A run of which nothing is known has to be read."""

    __slots__ = ("_begun", "_rows", "_runs")

    def __init__(self) -> None:
        self._runs = array("q")
        self._rows = array("q")
        """The least of so many runs, once all of them are known."""
        self._begun: int | None = None
        """The least of the entries of the last run, if all of them have come by `appended`."""

    def clear(self) -> None:
        """Forget everything."""
        self.cut(0)

    def cut(self, count: int) -> None:
        """Forget the entries from number `count` on: they were removed."""
        runs = count // RUN
        del self._runs[runs:], self._rows[runs // RUN :]
        self._begun = None

    def appended(self, number: int, first_offset: int) -> None:
        """Note the entry that was written at the end of the index."""
        place = number % RUN
        if not place:
            self._begun = first_offset
        elif self._begun is not None:
            self._begun = min(self._begun, first_offset)
        if place == RUN - 1 and self._begun is not None:
            self.note(number // RUN, self._begun)

    def note(self, run: int, least: int) -> None:
        """Note the least first offset of a whole run."""
        if run >= len(self._runs):
            self._runs.extend([_UNKNOWN] * (run + 1 - len(self._runs)))
        self._runs[run] = least
        row = run // RUN
        members = self._runs[row * RUN : (row + 1) * RUN]
        if len(members) == RUN and _UNKNOWN not in members:
            if row >= len(self._rows):
                self._rows.extend([_UNKNOWN] * (row + 1 - len(self._rows)))
            self._rows[row] = min(members)

    def passed(self, number: int, end_offset: int) -> int:
        """The first entry from `number` on, which begins a run, that may have begun before `end_offset`."""
        run = number // RUN
        while run < len(self._runs):
            row, place = divmod(run, RUN)
            if not place and row < len(self._rows) and self._rows[row] >= end_offset:
                run += RUN
            elif self._runs[run] >= end_offset:
                run += 1
            else:
                break
        return run * RUN
