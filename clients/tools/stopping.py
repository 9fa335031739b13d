"""Stopping programs in order on SIGINT or SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """True once Ctrl-C or SIGTERM has requested a stop."""

    def __init__(self) -> None:
        self.was_made = False
        self.interrupts = False
        """Whether the request raises KeyboardInterrupt too, to end a wait that nothing else ends."""

    def __bool__(self) -> bool:
        return self.was_made


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Set the request at the first SIGINT or SIGTERM; let the second one end the program as usual."""
    request = StopRequest()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        request.was_made = True
        restore()
        if request.interrupts:
            raise KeyboardInterrupt

    for number in before:
        signal.signal(number, note)
    try:
        yield request
    finally:
        restore()
