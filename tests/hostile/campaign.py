"""Sends the costliest requests of every API and version to a broker, and writes what they cost as a table.

scripts/hostile-requests.sh runs it. Each request is sent alone, then repeated without a pause on one
connection and on three, with its answers read and not read, beside idle connections.
"""

from __future__ import annotations

import argparse
import gc
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast_log.protocol.api import Api
from holdfast_log.protocol.messages.metadata import MetadataRequest
from tests.hostile.attack import Cost, Target, memory_bytes
from tests.hostile.furnished import furnish, probed_broker
from tests.hostile.generator import Variant, World, frame, served_apis, variants
from tests.integration.raw_socket import RawSocket
from tests.zookeeper import running_server

TURN_MS_MAX = 50.0
"""Maximum processor time in ms of the reactor in one turn."""
GROWTH_BYTES_MAX = 256 << 20
"""Maximum growth of the broker's resident memory."""
ATTEMPTS = 3
"""A request over a limit is sent so often: only what it costs each time is its own."""

_ANSWER_TIMEOUT_S = 8.0
"""Some requests wait for other clients, and none comes."""
_REPEATED_TIMEOUT_S = 120.0


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
) -> Finding:
    """Send a request, again if it seems to be over a limit, and take the cheapest."""
    data = frame(world, api, version, variant, 1, bytes_max)
    best: Finding | None = None
    for _ in range(ATTEMPTS):
        found = Finding(api, version, variant, data, target.attack([data], timeout_s=_ANSWER_TIMEOUT_S))
        if best is None or found.cost.longest_ms < best.cost.longest_ms:
            best = found
        if found.is_within(turn_ms_max):
            break
    assert best is not None
    return best


def newest_findings_of(target: Target, world: World, api: Api, bytes_max: int) -> Iterator[Finding]:
    """The cost of the ways that have found most, in the newest version of the API."""
    for variant in variants(api, is_short=True):
        yield measured(target, world, api, api.max_version, variant, bytes_max)


def findings_of(target: Target, world: World, api: Api, bytes_max: int) -> Iterator[Finding]:
    """The cost of every way to build a request of the API, in its first and last version, and of the
    costliest ways in the versions between."""
    ends = dict.fromkeys((api.max_version, api.min_version))
    found: list[Finding] = []
    for version in ends:
        for variant in variants(api, is_short=False):
            found.append(measured(target, world, api, version, variant, bytes_max))
            yield found[-1]
    slow = max(found, key=lambda each: each.cost.longest_ms).variant
    large = max(found, key=lambda each: each.cost.answer_bytes).variant
    for version in api.versions:
        if version not in ends:
            for variant in dict.fromkeys((slow, large)):
                yield measured(target, world, api, version, variant, bytes_max)


def repeated(target: Target, finding: Finding, *, connections: int, reads: bool, bytes_max: int) -> Cost:
    """Send the request again and again, up to 1,000 times and `bytes_max` in all, on each connection."""
    count = max(1, min(1000, bytes_max // len(finding.frame)))
    frames = [finding.frame] * count
    others = [
        threading.Thread(target=_flood, args=(target, frames, reads), daemon=True)
        for _ in range(connections - 1)
    ]
    for other in others:
        other.start()
    cost = target.attack(frames, timeout_s=_REPEATED_TIMEOUT_S, reads=reads)
    for other in others:
        other.join(_REPEATED_TIMEOUT_S)
    return cost


def _flood(target: Target, frames: list[bytes], reads: bool) -> None:
    Target(target.broker, target.turns).exchange(frames, timeout_s=_REPEATED_TIMEOUT_S, reads=reads)


@contextmanager
def idle_connections(target: Target, count: int) -> Iterator[None]:
    """Connections that send nothing."""
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


# -- report --------------------------------------------------------------------------------------------------


def table(findings: Iterable[Finding]) -> str:
    """For each API and version the longest turn, the largest answer and the most memory, as Markdown."""
    worst: dict[tuple[str, int], list[Finding]] = {}
    for each in findings:
        worst.setdefault((each.api.name, each.version), []).append(each)
    lines = [
        "| API | Version | Longest turn | … of a request of | Largest answer | … to a request of | Memory |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (name, version), found in sorted(worst.items()):
        slow = max(found, key=lambda each: each.cost.longest_ms)
        large = max(found, key=lambda each: each.cost.answer_bytes)
        memory = max(each.cost.grown_bytes for each in found)
        lines.append(
            f"| {name} | {version} | {slow.cost.longest_ms:.0f} ms | {_size(slow.cost.request_bytes)} "
            f"| {_size(large.cost.answer_bytes)} | {_size(large.cost.request_bytes)} | {_size(memory)} |"
        )
    return "\n".join(lines)


def _size(count: int) -> str:
    if count < 10_000:
        return f"{count} B"
    return f"{count / 1000:.0f} KB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hostile-requests.sh",
        description="Send the costliest requests of every API and version to a broker, and report the "
        "longest turn of its reactor, the largest answer and the growth of its memory. Status 1 if any is "
        "over its limit.",
    )
    parser.add_argument("--partitions", type=int, default=2000, help="partitions of one topic (2000)")
    parser.add_argument("--topics", type=int, default=300, help="topics of one partition (300)")
    parser.add_argument("--groups", type=int, default=200, help="groups with committed offsets (200)")
    parser.add_argument("--idle", type=int, default=0, help="idle connections beside (0)")
    parser.add_argument("--mebibytes", type=int, default=4, help="maximum size of one request (4)")
    parser.add_argument("--api", action="append", help="only these APIs; may be given more than once")
    parser.add_argument(
        "--newest", action="store_true", help="only the newest version of each API, in few ways"
    )
    parser.add_argument("--repeat", action="store_true", help="also repeat the costliest request of each API")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    gc.disable()  # Requests are built of many objects, none of them in a cycle.
    with (
        tempfile.TemporaryDirectory() as directory,
        running_server(use_docker=False) as zookeeper,
        probed_broker(Path(directory), zookeeper) as target,
    ):
        world = furnish(target.broker, arguments.partitions, arguments.topics, arguments.groups)
        with idle_connections(target, arguments.idle):
            findings = _run(arguments, target, world)
        target.broker.restart()
        assert is_serving(target), "the broker does not serve after its restart"
    print(table(findings))
    over = [each for each in findings if not each.is_within()]
    return 1 if over else 0


def _run(arguments: argparse.Namespace, target: Target, world: World) -> Sequence[Finding]:
    findings: list[Finding] = []
    before = memory_bytes(target.broker.pid, "VmRSS")
    for api in served_apis():
        if arguments.api and api.name not in arguments.api:
            continue
        own = []
        search = newest_findings_of if arguments.newest else findings_of
        for finding in search(target, world, api, arguments.mebibytes << 20):
            own.append(finding)
            if not finding.is_within():
                _note(f"OVER {finding}\n{finding.cost.where}")
        findings += own
        worst = max(own, key=lambda each: each.cost.longest_ms)
        _note(f"{worst}")
        if arguments.repeat:
            _repeat(target, worst)
        assert is_serving(target), f"the broker does not serve after {api.name}"
    grown = memory_bytes(target.broker.pid, "VmRSS") - before
    _note(f"Resident memory is {grown >> 20} MiB larger than before")
    return findings


def _repeat(target: Target, worst: Finding) -> None:
    for connections in (1, 3):
        for reads in (True, False):
            cost = repeated(target, worst, connections=connections, reads=reads, bytes_max=100 << 20)
            _note(
                f"  {cost.requests} times on {connections}, {'read' if reads else 'not read'}: "
                f"{cost.longest_ms:.0f} ms, {cost.grown_bytes >> 20} MiB, {cost.answer_bytes} bytes"
            )
            if cost.longest_ms > TURN_MS_MAX or cost.grown_bytes > GROWTH_BYTES_MAX:
                _note(f"OVER\n{cost.where}")


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
