"""The first Ctrl-C asks a tool to stop, and interrupts a wait that nothing else could end; the second ends
the tool."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator

import pytest

from holdfast_log.clients.tools.console_producer import lines
from holdfast_log.clients.tools.stopping import StopRequest, stop_on_signals


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    """A stop request, with the handling of Ctrl-C of a foreground program: background test runs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_on_signals() as stop:
            yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def press(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


class Terminal(io.BytesIO):
    """Input of typed lines; after the last one, Ctrl-C is pressed and no more bytes arrive."""

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline()
        if not line:
            press()
            raise AssertionError("still waiting for a line")
        return line


def test_the_first_ctrl_c_only_requests_a_stop(stop: StopRequest) -> None:
    assert not stop
    press()
    assert stop


def test_the_second_ctrl_c_ends_the_tool(stop: StopRequest) -> None:
    press()
    with pytest.raises(KeyboardInterrupt):
        press()


def test_ctrl_c_interrupts_an_interruptible_wait(stop: StopRequest) -> None:
    stop.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        press(signal.SIGTERM)
    assert stop


def test_ctrl_c_ends_the_wait_for_a_line_and_keeps_the_lines_read(stop: StopRequest) -> None:
    assert list(lines(Terminal(b"one\ntwo\r\n"), stop, lambda count: None, False)) == [b"one", b"two"]
    assert stop and not stop.interrupts


def test_no_line_is_read_after_ctrl_c_and_none_read_before_is_lost(stop: StopRequest) -> None:
    read, told = [], []
    for line in lines(io.BytesIO(b"one\ntwo\nthree\n"), stop, told.append, False):
        if line == b"two":
            press()
        read.append(line)

    assert (read, told) == ([b"one", b"two"], [4, 4])
