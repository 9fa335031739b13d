"""Sends a hostile client's requests to a probed broker, and measures what they cost it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.protocol.frames import SIZE
from tests.hostile.probe import Turns

_RECEIVE_BYTES = 1 << 18
_SEND_BYTES = 1 << 16
"""Small frames are sent so many bytes at once."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a sequence of requests on one connection cost."""

    request_bytes: int
    requests: int
    answers: int
    answer_bytes: int
    is_closed: bool
    """Whether the broker closed the connection."""
    longest_ms: float
    """Processor time of the longest turn of the reactor."""
    grown_bytes: int
    """By how much the broker's resident memory was larger at its peak than before."""
    where: str
    """What the broker did in the longest turn."""


class Target:
    """A broker that runs under the probe."""

    def __init__(self, broker: BackgroundBroker, turns: Turns) -> None:
        self.broker = broker
        self.turns = turns

    def attack(
        self, frame: bytes, count: int = 1, *, timeout_s: float, reads: bool = True, at_once: int = 1
    ) -> Cost:
        """Send the frame so often on one connection, and read all answers, or none. Ends after `timeout_s` at
        the latest; a request may wait for something that does not come. `at_once`: how many requests are in
        `frame`, which may be several frames."""
        before = self.reset()
        received = self.exchange(frame, count, timeout_s=timeout_s, reads=reads, at_once=at_once)
        self.settle()
        return Cost(
            received.sent_bytes,
            received.sent_bytes // len(frame),
            received.answers,
            received.bytes,
            received.is_closed,
            self.turns.longest_ms,
            memory_bytes(self.broker.pid, "VmHWM") - before,
            self.turns.where,
        )

    def exchange(
        self, frame: bytes, count: int, *, timeout_s: float, reads: bool, at_once: int = 1
    ) -> Received:
        """Send the frame so often, and receive the answers if the client `reads`."""
        received = Received()
        with socket.create_connection((self.broker.host, self.broker.port)) as connection:
            sender = threading.Thread(target=_send, args=(connection, frame, count, received), daemon=True)
            sender.start()
            if reads:
                receive(connection, count * at_once, timeout_s, received)
            else:
                sender.join(timeout_s)
                time.sleep(1)
            self.settle()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            sender.join(timeout_s)
        return received

    def left_bytes(self, start_bytes: int, at_most: int, timeout_s: float = 20.0) -> int:
        """By how much the resident memory is larger than `start_bytes`, as soon as that is no more than
        `at_most`, or after `timeout_s`."""
        ends_s = time.monotonic() + timeout_s
        while True:
            left = memory_bytes(self.broker.pid, "VmRSS") - start_bytes
            if left <= at_most or time.monotonic() > ends_s:
                return left
            time.sleep(0.2)

    def settle(self) -> None:
        """Wait until the broker has taken a turn: what it did before has been measured. An idle broker takes
        turns because of the connections that are opened here."""
        seen, ends_s = self.turns.count, time.monotonic() + 120
        while self.turns.count < seen + 2 and time.monotonic() < ends_s:
            with contextlib.suppress(OSError), socket.create_connection((self.broker.host, self.broker.port)):
                time.sleep(0.005)

    def reset(self) -> int:
        """Measure from now on. Returns the resident memory in bytes."""
        self.settle()
        self.turns.reset()
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        return memory_bytes(self.broker.pid, "VmRSS")


@dataclass(slots=True)
class Received:
    """What a client has sent and received."""

    answers: int = 0
    bytes: int = 0
    is_closed: bool = False
    sent_bytes: int = 0


def receive(connection: socket.socket, wanted: int, timeout_s: float, got: Received) -> None:
    """Receive `wanted` answers, without keeping them."""
    ends_s = time.monotonic() + timeout_s
    left, head = 0, b""  # bytes of the present answer that are to come; bytes of the next one's size
    while got.answers < wanted:
        left_s = ends_s - time.monotonic()
        if left_s <= 0:
            return
        connection.settimeout(left_s)
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except TimeoutError:
            return
        except OSError:
            data = b""
        if not data:
            got.is_closed = True
            return
        got.bytes += len(data)
        position = 0
        while position < len(data):
            if not left:
                taken = data[position : position + SIZE.size - len(head)]
                head += taken
                position += len(taken)
                if len(head) < SIZE.size:
                    break
                (left,) = SIZE.unpack(head)
                head = b""
            taken_bytes = min(left, len(data) - position)
            left -= taken_bytes
            position += taken_bytes
            if not left:
                got.answers += 1


def _send(connection: socket.socket, frame: bytes, count: int, to: Received) -> None:
    at_once = max(1, _SEND_BYTES // len(frame))
    with contextlib.suppress(OSError):
        while count > 0:
            data = frame * min(at_once, count)
            connection.sendall(data)
            to.sent_bytes += len(data)
            count -= at_once


def memory_bytes(pid: int, row: str) -> int:
    """VmRSS or VmHWM of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(f"{row}:")[2].split()[0]) * 1024
