"""Ctrl-C: the first asks, the second ends; where nothing but it could end a wait, the first ends that too."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator

import pytest

from clients.tools.console_producer import lines
from clients.tools.stopping import StopRequest, stop_on_signals


@pytest.fixture
def stop() -> Iterator[StopRequest]:
    """Of a program at a terminal: whoever runs the tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with stop_on_signals() as stop:
            yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def press(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


class Terminal(io.BytesIO):
    """Lines that are typed; where there are no more, somebody presses Ctrl-C and nothing comes."""

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline()
        if not line:
            press()
            raise AssertionError("still waiting for a line")
        return line


def test_the_first_only_asks(stop: StopRequest) -> None:
    assert not stop
    press()
    assert stop


def test_the_second_ends(stop: StopRequest) -> None:
    press()
    with pytest.raises(KeyboardInterrupt):
        press()


def test_a_wait_that_wants_it_is_interrupted(stop: StopRequest) -> None:
    stop.interrupts = True
    with pytest.raises(KeyboardInterrupt):
        press(signal.SIGTERM)
    assert stop


def test_waiting_for_a_line_ends_with_it_and_what_was_read_is_kept(stop: StopRequest) -> None:
    assert list(lines(Terminal(b"one\ntwo\r\n"), stop, lambda count: None, False)) == [b"one", b"two"]
    assert stop and not stop.interrupts


def test_no_line_is_read_after_it_and_none_is_lost_before(stop: StopRequest) -> None:
    read, told = [], []
    for line in lines(io.BytesIO(b"one\ntwo\nthree\n"), stop, told.append, False):
        if line == b"two":
            press()
        read.append(line)

    assert (read, told) == ([b"one", b"two"], [4, 4])
