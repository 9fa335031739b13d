"""The raw load sends whole, valid batches of the requested size, and keeps to its window."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.load_error import LoadError
from benchmarks.raw_client import RawJob, build_batch, load
from holdfast_log.protocol.batches import has_valid_crc, read_header


@pytest.mark.parametrize("batch_bytes", [16 * 1024, 64 * 1024, 1024 * 1024])
def test_a_batch_fills_the_requested_size(batch_bytes: int) -> None:
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
    """A server that sends one response for each request's worth of bytes, at most `answers_max` in all."""

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
        self._thread.join(300)
        assert not self._thread.is_alive()


def test_every_request_is_answered_with_no_more_than_the_window_in_flight() -> None:
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


def test_a_connection_closed_by_the_broker_fails_the_load() -> None:
    ours, theirs = socket.socketpair()
    with ours, pytest.raises((LoadError, OSError)):
        _Server(theirs, answers_max=3)
        load(ours, JOB, [FRAME], len(ANSWER))
