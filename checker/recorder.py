"""Where the clients of a check record their calls, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Self, TextIO

from holdfast_log.checker.calls import CallHistory, Recorded, to_line
from holdfast_log.clients.boot_clock import boot_s


class Recorder:
    """Keeps all calls in `history`, and writes each to `file` at once if there is one.

    Times are seconds since the recorder was made, by a clock that cannot be set.
    """

    def __init__(self, file: TextIO | None = None, clock: Callable[[], float] = boot_s) -> None:
        self.history = CallHistory()
        self._file = file
        self._clock = clock
        self._began_s = clock()
        self._lock = threading.Lock()

    def now_s(self) -> float:
        """The time for `asked_s` or `answered_s`."""
        return round(self._clock() - self._began_s, 6)

    def add(self, recorded: Recorded) -> None:
        """Record a call. Raises OSError if the file cannot be written."""
        line = "" if self._file is None else to_line(recorded) + "\n"
        with self._lock:
            self.history.add(recorded)
            if self._file is not None:
                self._file.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
