"""Sends one costly request, alone or again and again, and in rotation with those of other APIs, to a broker
whose neighbours are watched."""

from __future__ import annotations

import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from holdfast_log.protocol.api import Api
from holdfast_log.protocol.messages.metadata import MetadataRequest
from tests.hostile.attack import Cost, Target, memory_bytes
from tests.hostile.generator import Variant, World, frame
from tests.hostile.invented import delete_invented, topics_of
from tests.hostile.neighbour import Neighbour, Pace
from tests.hostile.report import GROWTH_BYTES_MAX, LEFT_BYTES_MAX, TURN_MS_MAX, Row
from tests.integration.raw_socket import RawSocket

ATTEMPTS = 3
"""A request over a limit is sent so often: only what it costs each time is its own."""
ANSWER_TIMEOUT_S = 8.0
"""Some requests wait for other clients, and none comes."""
REPEATED_TIMEOUT_S = 120.0
SPARE_FILES = 1000
"""Files and connections that a broker has open beside the idle connections."""
ROTATION = "(all APIs in rotation)"
"""Stands in the table for requests of all APIs, in the place of one."""
_PAUSE_S = 0.05
"""What else the broker does, or others do to it, may last longer than an attempt."""
_QUIET_S = 2.0
"""How long the neighbour's pace is measured before the first requests of an API."""
_QUIET_SHARE = 0.25
"""Share of a version's time in which it is measured at most."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one request cost."""

    api: Api
    version: int
    variant: Variant
    frame: bytes
    cost: Cost

    def is_within(self, turn_ms_max: float = TURN_MS_MAX) -> bool:
        return self.cost.longest_ms <= turn_ms_max and self.cost.grown_bytes <= GROWTH_BYTES_MAX

    def __str__(self) -> str:
        cost = self.cost
        return (
            f"{self.api.name} v{self.version} ({self.variant}): {cost.request_bytes} bytes, {cost.answers} "
            f"answers of {cost.answer_bytes} bytes, {cost.longest_ms:.0f} ms, "
            f"{cost.grown_bytes >> 20} MiB{', closed' if cost.is_closed else ''}"
        )


def measured(
    target: Target,
    world: World,
    api: Api,
    version: int,
    variant: Variant,
    bytes_max: int,
    turn_ms_max: float = TURN_MS_MAX,
    timeout_s: float = ANSWER_TIMEOUT_S,
    attempts: int = ATTEMPTS,
) -> Finding:
    """Send a request, again if it seems to be over a limit, and take the cheapest."""
    data = frame(world, api, version, variant, 1, bytes_max)
    best: Finding | None = None
    for number in range(attempts):
        time.sleep(_PAUSE_S * number)
        found = Finding(api, version, variant, data, target.attack(data, timeout_s=timeout_s))
        if best is None or found.cost.longest_ms < best.cost.longest_ms:
            best = found
        if found.is_within(turn_ms_max):
            return found  # A shorter turn may have come with more memory.
    assert best is not None
    return best


def repeated(
    target: Target,
    finding: Finding,
    *,
    connections: int,
    reads: bool,
    bytes_max: int,
    timeout_s: float = REPEATED_TIMEOUT_S,
) -> Cost:
    """Send the request again and again, up to `bytes_max` in all, on each connection."""
    count = max(1, bytes_max // len(finding.frame))
    others = [
        threading.Thread(target=_flood, args=(target, finding.frame, count, reads, timeout_s), daemon=True)
        for _ in range(connections - 1)
    ]
    for other in others:
        other.start()
    cost = target.attack(finding.frame, count, timeout_s=timeout_s, reads=reads)
    for other in others:
        other.join()
    return cost


def _flood(target: Target, frame: bytes, count: int, reads: bool, timeout_s: float) -> None:
    target.exchange(frame, count, timeout_s=timeout_s, reads=reads)


@contextmanager
def idle_connections(target: Target, count: int) -> Iterator[None]:
    """Connections that send nothing. The limit of open files is raised as far as they need it."""
    allow_files(count + SPARE_FILES)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((target.broker.host, target.broker.port)))
        yield


def is_serving(target: Target) -> bool:
    """Whether the broker runs and answers."""
    if not target.broker.running:
        return False
    with RawSocket(target.broker.port) as connection:
        return bool(connection.call(MetadataRequest(topics=[]), 4).brokers)


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process, and of those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise SystemExit(f"{count} open files are needed, and the system allows {hard}: see ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


@dataclass(slots=True)
class Watched:
    """A target with its well-behaved neighbours."""

    target: Target
    world: World
    client: Neighbour
    controller: Neighbour
    slowest: list[Finding] = field(default_factory=list)
    """The request with the longest turn of each version that was attacked with sequences."""
    quiet: dict[str, Pace] = field(default_factory=dict)
    """The client's pace before the first requests of each API."""

    def pace_before(self, api: str, share_s: float) -> Pace:
        """The client's pace while nobody attacks."""
        if api not in self.quiet:
            began_s = time.monotonic()
            time.sleep(min(_QUIET_S, _QUIET_SHARE * share_s))
            self.quiet[api], _ = self.paces_since(began_s)
        return self.quiet[api]

    def paces_since(self, began_s: float) -> tuple[Pace, Pace]:
        """The client's pace and the controller's."""
        now_s = time.monotonic()
        return self.client.pace(began_s, now_s), self.controller.pace(began_s, now_s)


def rotated(watched: Watched, share_s: float) -> Row:
    """The slowest requests of all APIs, in rotation on three connections that begin at different ones: first
    with their answers read, then without."""
    target = watched.target
    # A request that is not answered waits for other clients: those behind it would not be handled.
    frames = [each.frame for each in watched.slowest if each.cost.answers]
    start_bytes, known = memory_bytes(target.broker.pid, "VmRSS"), topics_of(target.broker.port)
    before = watched.pace_before(ROTATION, share_s)
    costs, paces = [], []
    for reads in (True, False):
        began_s = time.monotonic()
        timeout_s = min(REPEATED_TIMEOUT_S, share_s / 2)
        others = [
            threading.Thread(
                target=target.exchange,
                args=(_joined(frames, part), 1 << 20),
                kwargs={"timeout_s": timeout_s, "reads": reads, "at_once": len(frames)},
                daemon=True,
            )
            for part in (1, 2)
        ]
        for other in others:
            other.start()
        costs.append(
            target.attack(_joined(frames, 0), 1 << 20, timeout_s=timeout_s, reads=reads, at_once=len(frames))
        )
        for other in others:
            other.join()
        paces.append(watched.paces_since(began_s))
    delete_invented(target.broker.port, known)
    longest = max(costs, key=lambda each: each.longest_ms)
    return Row(
        ROTATION,
        0,
        requests=sum(each.answers for each in costs),
        longest_ms=longest.longest_ms,
        longest_of_bytes=0,
        answer_bytes=0,
        grown_bytes=max(each.grown_bytes for each in costs),
        left_bytes=target.left_bytes(start_bytes, LEFT_BYTES_MAX),
        before=before,
        during=max((client for client, _ in paces), key=lambda each: (each.failed, each.p99_ms)),
        controller=max((each for _, each in paces), key=lambda each: each.longest_ms),
        where=longest.where,
    )


def _joined(frames: list[bytes], part: int) -> bytes:
    """All frames, beginning with that at a third of them for each part."""
    first = part * len(frames) // 3
    return b"".join(frames[first:] + frames[:first])
