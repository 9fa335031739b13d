"""The raw load is made of whole, valid batches of the size asked for, and keeps to its window."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.load_error import LoadError
from benchmarks.raw_client import RawJob, build_batch, load
from protocol.batches import has_valid_crc, read_header


@pytest.mark.parametrize("batch_bytes", [16 * 1024, 64 * 1024, 1024 * 1024])
def test_a_batch_fills_what_it_may_take(batch_bytes: int) -> None:
    batch, records = build_batch(batch_bytes)

    header = read_header(batch)
    assert header.record_count == records
    assert has_valid_crc(batch, header)
    assert 0.95 * batch_bytes < len(batch) <= batch_bytes


FRAME = b"f" * 100
ANSWER = b"answered"
WINDOW = 8
JOB = RawJob("produce", "", 0, "topic", 1, len(FRAME), WINDOW, seconds=0.05)


class _Server:
    """Answers every so many bytes, one answer after the other and at most `answers_max` of them."""

    def __init__(self, connection: socket.socket, answers_max: int | None = None) -> None:
        self.received = 0
        self.ahead_max = 0
        self._connection = connection
        self._answers_max = answers_max
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        answered = 0
        while data := self._connection.recv(10 * WINDOW * len(FRAME)):
            self.received += len(data)
            self.ahead_max = max(self.ahead_max, self.received // len(FRAME) - answered)
            while (answered + 1) * len(FRAME) <= self.received:
                if answered == self._answers_max:
                    self._connection.close()
                    return
                self._connection.sendall(ANSWER)
                answered += 1

    def join(self) -> None:
        self._thread.join(10)


def test_all_that_is_sent_is_answered_and_no_more_is_under_way_than_the_window() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        server = _Server(theirs)
        sent, seconds, latencies_ms = load(ours, JOB, [FRAME], len(ANSWER))
        ours.shutdown(socket.SHUT_WR)
        server.join()

    assert sent >= WINDOW
    assert server.received == sent * len(FRAME)
    assert len(latencies_ms) == sent
    assert server.ahead_max <= WINDOW
    assert seconds >= JOB.seconds


def test_a_broker_that_closes_the_connection_ends_the_load() -> None:
    ours, theirs = socket.socketpair()
    with ours, pytest.raises((LoadError, OSError)):
        _Server(theirs, answers_max=3)
        load(ours, JOB, [FRAME], len(ANSWER))
