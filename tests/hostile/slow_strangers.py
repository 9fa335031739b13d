"""Thousands of strangers who never finish a TLS handshake or a SASL dialogue, beside a client at work.

    scripts/slow-strangers.sh --strangers 5000 --seconds 28 --rounds 5

Each stranger sends a byte at a time, and connects again when the broker has closed its connection. A third of
them never finish the first message of TLS, a third send it whole and never finish the second, and a third
never finish a SASL request.

The measure is the same number of clients that send ordinary requests, at the same pace: beside the strangers
the client at work may wait twice as long as beside these. Rounds with either take turns, so that what else
the machine does falls on both. The result is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import socket
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from holdfast_log.protocol.frames import join_parts
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest
from holdfast_log.protocol.sasl.mechanisms import PLAIN
from tests.certificates import BOTH_NAMES, Authority
from tests.hostile.attack import memory_bytes
from tests.hostile.neighbour import Kind, Pace, running_neighbour
from tests.integration.monitored import MonitoredAddress
from tests.zookeeper import running_server

HOST = "127.0.0.1"
SLOWER_MAX = 2.0
"""How many times as long a client may wait beside strangers."""
LIFETIME_STEPS = 10
"""So many bytes a harmless client sends before it connects again: about as many as a stranger does."""
_RECORD = bytes.fromhex("1603034000")
"""The header of a handshake's message of 16 KiB, which nobody finishes a byte at a time."""
USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="in time";'


def _hello() -> bytes:
    """The first message of a TLS handshake, whole."""
    sent = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


def _frame(request: ApiVersionsRequest | SaslHandshakeRequest | SaslAuthenticateRequest) -> bytes:
    return join_parts(encode_request(request, request.api.max_version, 1, "slow"))


VERSIONS = _frame(ApiVersionsRequest(client_software_name="slow", client_software_version="1"))
DIALOGUE = _frame(SaslHandshakeRequest(mechanism=PLAIN)) + _frame(
    SaslAuthenticateRequest(auth_bytes=bytes(500))
)


class Sender:
    """A connection on which a byte is sent at a time."""

    def __init__(self, port: int, talk: bytes, at_once: int = 0, lifetime_steps: int | None = None) -> None:
        self._port = port
        self._talk = talk
        self._at_once = at_once
        self._lifetime_steps = lifetime_steps
        self._socket: socket.socket | None = None
        self._sent = 0
        self._steps = 0
        self.connects = 0

    def step(self) -> None:
        """Send the next byte, or connect again if the broker has closed the connection."""
        connection = self._socket
        if connection is None or self._steps == self._lifetime_steps or self._has_ended(connection):
            self._connect()
            return
        size = self._at_once if self._sent == 0 and self._at_once else 1
        try:
            self._sent += connection.send(self._talk[self._sent : self._sent + size])
        except BlockingIOError:
            return  # Still connecting, or the broker does not read.
        except OSError:
            self.close()
            return
        self._steps += 1
        if self._sent >= len(self._talk):
            self._sent = 0

    def _has_ended(self, connection: socket.socket) -> bool:
        try:
            return connection.recv(65536) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _connect(self) -> None:
        self.close()
        self._socket = socket.socket()
        self._socket.setblocking(False)
        self._socket.connect_ex((HOST, self._port))
        self._sent = self._steps = 0
        self.connects += 1

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def send_for(senders: Sequence[Sender], seconds: float, pause_s: float) -> None:
    """Have each sender take a step in each `pause_s`, evenly, for so long."""
    ends_s = time.monotonic() + seconds
    place, began_s = 0, time.monotonic()
    while time.monotonic() < ends_s:
        due = int((time.monotonic() - began_s) / pause_s * len(senders))
        for _ in range(min(due - place, len(senders))):
            senders[place % len(senders)].step()
            place += 1
        place = max(place, due - len(senders))
        time.sleep(0.005)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A broker with listeners for strangers, whose limits a run may lower."""

    broker: BackgroundBroker
    monitored: MonitoredAddress
    tls_port: int
    sasl_port: int

    def harmless(self, count: int) -> list[Sender]:
        return [Sender(self.broker.port, VERSIONS, 0, LIFETIME_STEPS) for _ in range(count)]

    def strangers(self, count: int) -> list[Sender]:
        """A third before the first message of TLS is whole, a third after it, a third in a SASL dialogue
        whose first request they send at once."""
        first, hello = len(_frame(SaslHandshakeRequest(mechanism=PLAIN))), _hello()
        kinds = (
            (self.tls_port, _RECORD + bytes(300), 0),
            (self.tls_port, hello + _RECORD + bytes(300), len(hello)),
            (self.sasl_port, DIALOGUE, first),
        )
        return [Sender(*kinds[number % len(kinds)]) for number in range(count)]

    def handshakes(self) -> float:
        """TLS handshakes under way."""
        return self.monitored.metrics().of("holdfast_tls_handshakes", listener="TLS")

    def cpu_s(self) -> float:
        """Processor time that the broker has used since its start."""
        after_name = Path(f"/proc/{self.broker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")

    def memory_bytes(self) -> int:
        return memory_bytes(self.broker.pid, "VmRSS")


@contextmanager
def running_broker(directory: Path, zookeeper_connect: str, **properties: str) -> Iterator[Stranger]:
    """A broker with listeners for TLS and SASL, beside one for everybody."""
    authority = Authority()
    directory.mkdir(parents=True, exist_ok=True)
    authority.issue("broker", BOTH_NAMES).write(directory / "broker.pem")
    monitored, tls_port, sasl_port = MonitoredAddress(), free_port(), free_port()
    broker = BackgroundBroker(directory / "broker", broker_id=1, zookeeper_connect=zookeeper_connect)
    broker.properties |= {
        "listeners": (
            f"PLAINTEXT://{HOST}:{broker.port},TLS://{HOST}:{tls_port},SASL://{HOST}:{sasl_port},"
            f"INTERNAL://{HOST}:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,INTERNAL:PLAINTEXT"
        ),
        "ssl.keystore.location": str(directory / "broker.pem"),
        "sasl.enabled.mechanisms": PLAIN,
        "listener.name.sasl.plain.sasl.jaas.config": USERS,
        "max.connections": "20000",
        "max.connections.per.ip": "20000",
        **monitored.settings,
        **{name.replace("_", "."): value for name, value in properties.items()},
    }
    broker.start()
    try:
        broker.wait_ready()
        yield Stranger(broker, monitored, tls_port, sasl_port)
    finally:
        broker.stop()


@dataclass(frozen=True, slots=True)
class Load:
    """What a load has done to the broker and to the client at work."""

    pace: Pace
    grown_bytes: int
    handshakes: float
    connects: int
    cpu_s: float
    """Processor time of the broker."""


def measured(strangers: Stranger, senders: Sequence[Sender], neighbour_file: Path, seconds: float) -> Load:
    """Have the senders send beside a client at work; its first third is left out, while they connect."""
    before, cpu_s = strangers.memory_bytes(), strangers.cpu_s()
    port, pid = strangers.broker.port, strangers.broker.pid
    with running_neighbour(neighbour_file, port, Kind.CLIENT, pid) as neighbour:
        send_for(senders, seconds / 3, 1.0)
        began_s = time.monotonic()
        send_for(senders, seconds * 2 / 3, 1.0)
        ended_s = time.monotonic()
        handshakes = strangers.handshakes()
        pace = neighbour.pace(began_s, ended_s)
    grown = strangers.memory_bytes() - before
    connects = sum(sender.connects for sender in senders)
    for sender in senders:
        sender.close()
    return Load(pace, grown, handshakes, connects, strangers.cpu_s() - cpu_s)


@dataclass(frozen=True, slots=True)
class Round:
    """One load of harmless clients and one of strangers, close to each other in time."""

    harmless: Load
    slow: Load

    @property
    def ratio(self) -> float:
        """How many times as long the client at work waited beside strangers: its p99."""
        return self.slow.pace.p99_ms / self.harmless.pace.p99_ms

    @property
    def work_ratio(self) -> float:
        """The same for the p99 of the broker's processor time while the client waited. Other programs on the
        machine hardly change it."""
        return self.slow.pace.work_p99_ms / self.harmless.pace.work_p99_ms


@dataclass(frozen=True, slots=True)
class Verdict:
    """The ratios of all rounds."""

    ratios: Sequence[float]
    work_ratios: Sequence[float]
    failed: int
    """Rounds of the client at work that failed beside strangers."""

    @property
    def is_kept(self) -> bool:
        """Whether the client waits at most `SLOWER_MAX` times as long, by the median of the rounds."""
        return self.failed == 0 and statistics.median(self.ratios) <= SLOWER_MAX

    def __str__(self) -> str:
        return (
            f"p99 beside strangers to p99 beside harmless clients, of {len(self.ratios)} rounds: "
            f"{_spread(self.ratios)}, at most {SLOWER_MAX} is allowed\n"
            f"the broker's processor time while the client waits, p99, the same: {_spread(self.work_ratios)}"
        )


def _spread(ratios: Sequence[float]) -> str:
    return f"median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"


def verdict_of(rounds: Sequence[Round]) -> Verdict:
    return Verdict(
        [each.ratio for each in rounds],
        [each.work_ratio for each in rounds],
        sum(each.slow.pace.failed for each in rounds),
    )


def take_round(broker: Stranger, count: int, directory: Path, seconds: float, *, slow_first: bool) -> Round:
    """Measure both loads; the order alternates from round to round."""

    def harmless() -> Load:
        return measured(broker, broker.harmless(count), directory, seconds)

    def slow() -> Load:
        return measured(broker, broker.strangers(count), directory, seconds)

    if slow_first:
        of_slow = slow()
        return Round(harmless(), of_slow)
    return Round(harmless(), slow())


def _show(what: str, load: Load) -> None:
    pace = load.pace
    print(
        f"{what}: {pace.rounds} rounds, {pace.failed} failed, p50 {pace.p50_ms:.1f} ms, "
        f"p99 {pace.p99_ms:.1f} ms, longest {pace.longest_ms:.0f} ms, the broker's work p50 "
        f"{pace.work_p50_ms:.1f} ms, p99 {pace.work_p99_ms:.1f} ms; {load.connects} connects, "
        f"{load.handshakes:.0f} handshakes under way, {load.grown_bytes / 1e6:.0f} MB more memory, "
        f"{load.cpu_s:.1f} s of processor time",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="slow-strangers.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strangers", type=int, default=5000, help="how many at a time [5000]")
    parser.add_argument("--seconds", type=float, default=28.0, help="how long each load lasts [28]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of both loads [5]")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rounds = []
    with tempfile.TemporaryDirectory() as text, running_server(use_docker=False) as server:
        directory = Path(text)
        with running_broker(directory, server) as broker:
            count, seconds = arguments.strangers, arguments.seconds
            for number in range(arguments.rounds):
                found = take_round(broker, count, directory, seconds, slow_first=number % 2 == 1)
                _show(f"beside {count} harmless clients", found.harmless)
                _show(f"beside {count} strangers", found.slow)
                rounds.append(found)
    verdict = verdict_of(rounds)
    print(verdict)
    return int(not verdict.is_kept)


if __name__ == "__main__":
    sys.exit(main())
