"""Compares the maximum throughput of our transport with plain Twisted: python -m benchmarks.transport

Receiving: frames of one size, each checksummed, appended to a file and answered in a few bytes. Sending: 64
KB slices of a file, each requested by a small frame. Plain Twisted uses Int32StringReceiver, transport.write,
and pread for the slices. The load comes from another process over blocking sockets.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from twisted.internet import epollreactor

if "twisted.internet.reactor" not in sys.modules:
    epollreactor.install()

from twisted.internet import reactor as _installed
from twisted.internet.protocol import Factory
from twisted.protocols.basic import Int32StringReceiver

from benchmarks.results import MB, print_json, print_table
from holdfast_log.broker.log.disk import OsFile
from holdfast_log.broker.network.connection import ConnectionLimits, ReplySlot, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.frames import SIZE, FileSlice

reactor = cast(Any, _installed)

_ROUNDS = 2
_RUN_TIMEOUT_S = 20
_ACKNOWLEDGEMENT = SIZE.pack(4) + b"done"
_LIMITS = ConnectionLimits(frame_bytes_max=8 << 20, buffered_bytes_max=16 << 20, in_flight_requests_max=1000)
_SLICES_IN_FILE = 64


@dataclass(frozen=True, slots=True)
class TransportCase:
    """A load: number and size of requests, and size of responses."""

    name: str
    requests: int
    request_bytes: int
    response_bytes: int
    is_receiving: bool

    @property
    def bytes(self) -> int:
        return self.requests * (self.request_bytes if self.is_receiving else self.response_bytes)


CASES = (
    TransportCase("receive 1 MB", 500, 1 << 20, len(_ACKNOWLEDGEMENT), True),
    TransportCase("receive 64 KB", 5_000, 64 << 10, len(_ACKNOWLEDGEMENT), True),
    TransportCase("receive 16 KB", 12_000, 16 << 10, len(_ACKNOWLEDGEMENT), True),
    TransportCase("send 64 KB", 16_000, 64, SIZE.size + (64 << 10), False),
)


@dataclass(frozen=True, slots=True)
class Measured:
    mb_per_second: float
    cpu_seconds_per_gb: float


class Work:
    """The work on a request, the same for both transports."""

    def __init__(self, file: OsFile, slice_bytes: int) -> None:
        self._file = file
        self._slice_bytes = slice_bytes
        self._slices = 0

    def receive(self, frame: bytes | memoryview) -> None:
        crc32c(frame)
        self._file.append([frame])

    def next_slice(self) -> FileSlice:
        self._slices += 1
        return FileSlice(self._file, self._slices % _SLICES_IN_FILE * self._slice_bytes, self._slice_bytes)


def listen_with_transport(case: TransportCase, work: Work) -> tuple[int, Callable[[], None]]:
    """Serve a case by Holdfast's transport. Returns the port and a function that stops it."""

    def receive(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        work.receive(frame)
        reply.send([_ACKNOWLEDGEMENT])

    size = SIZE.pack(case.response_bytes - SIZE.size)

    def send(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([size, work.next_slice()])

    handler = receive if case.is_receiving else send

    def accept(peer: Address) -> ServerConnection:
        return ServerConnection(1, "BENCHMARK", peer, handler, _LIMITS, reactor)

    port = TcpNetwork(reactor).listen("127.0.0.1", 0, accept)
    return port.address.port, port.close


def listen_plainly(case: TransportCase, work: Work) -> tuple[int, Callable[[], None]]:
    """Serve a case by Twisted's own transport. Returns the port and a function that stops it."""

    class Plain(Int32StringReceiver):
        transport: Any
        MAX_LENGTH = _LIMITS.frame_bytes_max

        def connectionMade(self) -> None:
            self.transport.setTcpNoDelay(True)

        def stringReceived(self, string: bytes) -> None:
            if case.is_receiving:
                work.receive(string)
                self.transport.write(_ACKNOWLEDGEMENT)
            else:
                self.sendString(work.next_slice().read())  # type: ignore[no-untyped-call]

    port = reactor.listenTCP(0, Factory.forProtocol(Plain), interface="127.0.0.1")
    return port.getHost().port, port.stopListening


def measure(
    case: TransportCase, listen: Callable[[TransportCase, Work], tuple[int, Callable[[], None]]]
) -> Measured:
    """One run of one case: the load in its own process, the reactor in this one."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "00000000000000000000.log")
        slice_bytes = case.response_bytes - SIZE.size
        path.write_bytes(b"" if case.is_receiving else os.urandom(slice_bytes * _SLICES_IN_FILE))
        file = OsFile(str(path))
        port, stop = listen(case, Work(file, slice_bytes))
        arguments = [str(port), str(case.requests), str(case.request_bytes), str(case.response_bytes)]
        load = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.transport", "--load", *arguments], stdout=subprocess.PIPE
        )
        try:
            seconds, cpu_seconds = _turn_until_done(load)
        finally:
            load.kill()
            load.wait()
            stop()
            file.close()
    return Measured(case.bytes / MB / seconds, cpu_seconds / (case.bytes / (1000 * MB)))


def _turn_until_done(load: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Run the reactor until the load ends. Returns the time of the load, and the CPU time spent here."""
    assert load.stdout is not None
    said: list[bytes] = []
    listener = threading.Thread(target=lambda: said.append(load.stdout.read()), daemon=True)  # type: ignore[union-attr]
    listener.start()
    deadline = time.monotonic() + _RUN_TIMEOUT_S
    cpu_before = time.process_time()
    while listener.is_alive():
        if time.monotonic() > deadline:
            raise TimeoutError(f"a run took longer than {_RUN_TIMEOUT_S} s")
        reactor.runUntilCurrent()
        pause = reactor.timeout()
        reactor.doIteration(0.01 if pause is None else min(pause, 0.01))
    return float(said[0]), time.process_time() - cpu_before


def make_load(port: int, requests: int, request_bytes: int, response_bytes: int) -> float:
    """Send all requests and receive all responses. Returns the seconds taken."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=_RUN_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    frame = SIZE.pack(request_bytes) + os.urandom(request_bytes)
    together = max(1, min(requests, (1 << 20) // len(frame)))
    if response_bytes > request_bytes:
        together = 16  # requests in flight; more would wait in the socket
    burst = frame * together

    def send() -> None:
        left = requests
        while left > 0:
            connection.sendall(burst if left >= together else frame * left)
            left -= together

    started = time.monotonic()
    sender = threading.Thread(target=send)
    sender.start()
    buffer = bytearray(1 << 20)
    left = requests * response_bytes
    while left > 0:
        received = connection.recv_into(buffer)
        if not received:
            raise EOFError(f"{left} bytes of responses are missing")
        left -= received
    sender.join()
    seconds = time.monotonic() - started
    connection.close()
    return seconds


def main() -> None:
    if not reactor.running:
        reactor.startRunning(installSignalHandlers=False)
    rows: list[list[str]] = []
    results: dict[str, dict[str, float]] = {}
    for case in CASES:
        ours: list[Measured] = []
        plain: list[Measured] = []
        for _ in range(_ROUNDS):
            ours.append(measure(case, listen_with_transport))
            plain.append(measure(case, listen_plainly))
        best, peer = (max(runs, key=lambda run: run.mb_per_second) for runs in (ours, plain))
        ratio = best.mb_per_second / peer.mb_per_second
        rows.append(
            [
                case.name,
                f"{best.mb_per_second:,.0f}",
                f"{best.cpu_seconds_per_gb:.2f}",
                f"{peer.mb_per_second:,.0f}",
                f"{peer.cpu_seconds_per_gb:.2f}",
                f"{ratio:.2f}",
            ]
        )
        results[case.name] = {
            "mb_per_second": round(best.mb_per_second, 1),
            "cpu_seconds_per_gb": round(best.cpu_seconds_per_gb, 3),
            "plain_mb_per_second": round(peer.mb_per_second, 1),
            "plain_cpu_seconds_per_gb": round(peer.cpu_seconds_per_gb, 3),
            "ratio": round(ratio, 2),
        }
    headings = ("case", "MB/s", "CPU s/GB", "plain MB/s", "plain CPU s/GB", "ratio")
    print_table(f"Transport beside plain Twisted, best of {_ROUNDS}", headings, rows)
    print_json({"benchmark": "transport", "results": results})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        print(make_load(*map(int, sys.argv[2:])), flush=True)
    else:
        argparse.ArgumentParser(
            prog="python -m benchmarks.transport",
            description=__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        ).parse_args()
        main()
