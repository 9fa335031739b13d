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

    def attack(self, frames: list[bytes], *, timeout_s: float, reads: bool = True) -> Cost:
        """Send the frames on one connection, and read all answers, or none. Ends after `timeout_s` at the
        latest; a request may wait for something that does not come."""
        before = self.reset()
        received = self.exchange(frames, timeout_s=timeout_s, reads=reads)
        self.settle()
        return Cost(
            sum(map(len, frames)),
            len(frames),
            received.answers,
            received.bytes,
            received.is_closed,
            self.turns.longest_ms,
            memory_bytes(self.broker.pid, "VmHWM") - before,
            self.turns.where,
        )

    def exchange(self, frames: list[bytes], *, timeout_s: float, reads: bool) -> Received:
        """Send the frames, and receive the answers if the client `reads`."""
        with socket.create_connection((self.broker.host, self.broker.port)) as connection:
            sender = threading.Thread(target=_send, args=(connection, frames), daemon=True)
            sender.start()
            if reads:
                received = receive(connection, len(frames), timeout_s)
            else:
                sender.join(timeout_s)
                time.sleep(1)
                received = Received(0, 0, False)
            self.settle()
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            sender.join(timeout_s)
        return received

    def settle(self) -> None:
        """Wait until the broker has taken a turn: what it did before has been measured."""
        seen, ends_s = self.turns.count, time.monotonic() + 120
        while self.turns.count < seen + 2 and time.monotonic() < ends_s:
            time.sleep(0.005)

    def reset(self) -> int:
        """Measure from now on. Returns the resident memory in bytes."""
        self.settle()
        self.turns.reset()
        Path(f"/proc/{self.broker.pid}/clear_refs").write_text("5")
        return memory_bytes(self.broker.pid, "VmRSS")


@dataclass(slots=True)
class Received:
    """What a client has received."""

    answers: int
    bytes: int
    is_closed: bool


def receive(connection: socket.socket, wanted: int, timeout_s: float) -> Received:
    """Receive `wanted` answers, without keeping them."""
    got = Received(0, 0, False)
    ends_s = time.monotonic() + timeout_s
    left, head = 0, b""  # bytes of the present answer that are to come; bytes of the next one's size
    while got.answers < wanted:
        connection.settimeout(max(0.01, ends_s - time.monotonic()))
        try:
            data = connection.recv(_RECEIVE_BYTES)
        except TimeoutError:
            return got
        except OSError:
            data = b""
        if not data:
            got.is_closed = True
            return got
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
    return got


def _send(connection: socket.socket, frames: list[bytes]) -> None:
    with contextlib.suppress(OSError):
        for frame in frames:
            connection.sendall(frame)


def memory_bytes(pid: int, row: str) -> int:
    """VmRSS or VmHWM of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition(f"{row}:")[2].split()[0]) * 1024
