"""Sends the costliest requests of every API and version to a broker, and writes what they cost as a table.

scripts/hostile-requests.sh runs it. Each request is sent alone. The three with the longest turns are then
repeated on three connections for a short time, and that whose turns are longest beside its like is repeated
without a pause on one connection and on three. So is that with the largest answer, and its answers are not
read. At last the slowest requests of all APIs are sent in rotation, on three connections. Meanwhile a
well-behaved client and a controller go on, beside idle connections.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peer_report import insert
from holdfast_log.protocol.api import Api
from tests.hostile.attack import Cost, Target, memory_bytes
from tests.hostile.furnished import Furniture, furnish, is_furnished, probed_broker
from tests.hostile.generator import Variant, World, served_apis, variants
from tests.hostile.invented import delete_invented, topics_of
from tests.hostile.kept_rows import KeptRows
from tests.hostile.neighbour import Kind, Pace, running_neighbour
from tests.hostile.report import (
    LEFT_BYTES_MAX,
    TURN_MS_MAX,
    Row,
    failed_row,
    neighbour_ms_max,
    over_limits,
    section,
    size,
    table,
)
from tests.hostile.sending import (
    ANSWER_TIMEOUT_S,
    ATTEMPTS,
    REPEATED_TIMEOUT_S,
    SPARE_FILES,
    Finding,
    Watched,
    allow_files,
    idle_connections,
    is_serving,
    measured,
    repeated,
    rotated,
)
from tests.zookeeper import running_server

SEQUENCE_BYTES = 100 << 20
_END_SHARES = 6
"""The newest and the oldest version of an API have so many times as long as one between them, of which the
costliest requests are sent alone where time is limited."""
_ROTATION_MINUTES = 1.0
_SEARCH_SHARE = 0.3
"""Share of a version's time in which requests are sent alone."""
_CONTEST_SHARE = 0.15
"""Share in which those with the longest turns are repeated, to find the one that is costliest beside its
like: several that are short alone may together be handled in one turn."""
_CONTENDERS = 3
_PACE_S = 1.0
"""Least time in seconds over which the pace of the neighbours is looked at during a sequence."""
_SEQUENCES = ((3, False), (3, True), (1, True), (1, False))
"""Connections, and whether the answers are read. The costliest first."""


class Budget:
    """The time of the campaign. What has not been attacked yet shares it: a version of an API in the midst
    has one share, and others have more."""

    def __init__(
        self, minutes: float | None, shares: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._shares = shares
        self._ends_s = math.inf if minutes is None else clock() + minutes * 60

    @property
    def is_limited(self) -> bool:
        return self._ends_s < math.inf

    def next_share(self, shares: int = 1) -> float:
        """Take some shares. Returns their length in seconds; infinite without a limit."""
        left_s = max(0.0, self._ends_s - self._clock())
        share_s = left_s * shares / max(shares, self._shares)
        self._shares -= shares
        return share_s


@dataclass(slots=True)
class Version:
    """The attack with the requests of one version of an API. Ends after `share_s`, but sends each kind of
    sequence and one request at least."""

    watched: Watched
    api: Api
    version: int
    bytes_max: int
    share_s: float
    findings: list[Finding] = field(default_factory=list)
    contest: list[tuple[Finding, Cost]] = field(default_factory=list)
    sequences: list[Cost] = field(default_factory=list)
    paces: list[tuple[Pace, Pace]] = field(default_factory=list)

    def attack(self, ways: list[Variant], *, is_alone: bool) -> Row:
        """Send requests built in these ways, then sequences of the one with the longest turns beside its
        like, or, if the answers are not read, with the largest answer."""
        target, began_s = self.watched.target, time.monotonic()
        start_bytes, known = memory_bytes(target.broker.pid, "VmRSS"), topics_of(target.broker.port)
        before = self.watched.pace_before(self.api.name, self.share_s)
        self._search(ways, began_s + _SEARCH_SHARE * self.share_s)
        if is_alone:
            self._search_again(ways, before)
        else:
            self._contend(min(REPEATED_TIMEOUT_S, _CONTEST_SHARE * self.share_s / _CONTENDERS))
        for number, (connections, reads) in enumerate(() if is_alone else _SEQUENCES):
            left_s = began_s + self.share_s - time.monotonic()
            timeout_s = min(REPEATED_TIMEOUT_S, max(1.0, left_s / (len(_SEQUENCES) - number)))
            self._repeat(connections, reads, timeout_s, before)
        if count := delete_invented(target.broker.port, known):
            note(f"  {count} topics that the requests had created were deleted")
        return self._row(before, target.left_bytes(start_bytes, LEFT_BYTES_MAX))

    def _search(self, ways: list[Variant], ends_s: float) -> None:
        began_s = time.monotonic()
        for way in ways:
            left_s = ends_s - time.monotonic()
            if self.findings and left_s <= 0:
                break
            found = measured(
                self.watched.target,
                self.watched.world,
                self.api,
                self.version,
                way,
                self.bytes_max,
                timeout_s=min(ANSWER_TIMEOUT_S, max(1.0, left_s)),
            )
            self.findings.append(found)
            if not found.is_within():
                note(f"OVER {found}\n{found.cost.where}")
        self.paces.append(self._paces_since(began_s))

    def _search_again(self, ways: list[Variant], before: Pace) -> None:
        """As `_repeat` does with a sequence."""
        while _is_slow(self.paces[-1][0], before) and len(self.paces) < ATTEMPTS:
            self._search(ways, time.monotonic() + self.share_s)
        self.paces = [_counting(self.paces)]

    def _contend(self, timeout_s: float) -> None:
        """Repeat each of the requests with the longest turns on three connections."""
        ordered = sorted(self.findings, key=lambda each: each.cost.longest_ms, reverse=True)
        for each in ordered[:_CONTENDERS]:
            cost = repeated(
                self.watched.target,
                each,
                connections=3,
                reads=True,
                bytes_max=SEQUENCE_BYTES,
                timeout_s=timeout_s,
            )
            self.contest.append((each, cost))

    def _repeat(self, connections: int, reads: bool, timeout_s: float, before: Pace) -> None:
        """Send a sequence. It is sent again where the client seems to have waited too long, since other
        programs delay it too; unless a round has failed, the attempt in which it waited least counts."""
        tried: list[tuple[Pace, Pace]] = []
        for _ in range(ATTEMPTS):
            began_s = time.monotonic()
            cost = repeated(
                self.watched.target,
                self.slowest if reads else self.largest,
                connections=connections,
                reads=reads,
                bytes_max=SEQUENCE_BYTES,
                timeout_s=timeout_s,
            )
            self.sequences.append(cost)
            tried.append(self._paces_since(began_s))
            if not _is_slow(tried[-1][0], before):
                break
        client, controller = _counting(tried)
        self.paces.append((client, controller))
        note(
            f"  {cost.requests} times on each of {connections}, {'read' if reads else 'not read'}: "
            f"{cost.longest_ms:.0f} ms, {size(cost.grown_bytes)}; neighbour's p99 of {client.rounds} rounds "
            f"{client.p99_ms:.1f} ms; longest order {controller.longest_ms:.0f} ms"
        )

    def _paces_since(self, began_s: float) -> tuple[Pace, Pace]:
        # Of fewer rounds than those of a second, which are a hundred, there is no 99th percentile.
        time.sleep(max(0.0, began_s + _PACE_S - time.monotonic()))
        return self.watched.paces_since(began_s)

    @property
    def slowest(self) -> Finding:
        """The request with the longest turns: beside its like, where that was tried."""
        if self.contest:
            return max(self.contest, key=lambda each: each[1].longest_ms)[0]
        return max(self.findings, key=lambda each: each.cost.longest_ms)

    @property
    def largest(self) -> Finding:
        return max(self.findings, key=lambda each: each.cost.answer_bytes)

    def _row(self, before: Pace, left_bytes: int) -> Row:
        costs = [*(each.cost for each in self.findings), *(cost for _, cost in self.contest), *self.sequences]
        longest = max(costs, key=lambda each: each.longest_ms)
        return Row(
            self.api.name,
            self.version,
            requests=sum(each.requests for each in costs),
            longest_ms=longest.longest_ms,
            longest_of_bytes=longest.request_bytes // max(1, longest.requests),
            answer_bytes=self.largest.cost.answer_bytes,
            grown_bytes=max(each.grown_bytes for each in costs),
            left_bytes=left_bytes,
            before=before,
            during=max((client for client, _ in self.paces), key=lambda each: (each.failed, each.p99_ms)),
            controller=max((each for _, each in self.paces), key=lambda each: each.longest_ms),
            where=longest.where,
        )


def _is_slow(client: Pace, before: Pace) -> bool:
    """Whether the client has waited so long that another attempt may show who has delayed it."""
    return not client.failed and client.p99_ms > neighbour_ms_max(before)


def _counting(tried: list[tuple[Pace, Pace]]) -> tuple[Pace, Pace]:
    """Of several attempts, the client's pace that counts, and the controller's."""
    client = max((each for each, _ in tried), key=lambda each: (each.failed, -each.p99_ms))
    return client, max((each for _, each in tried), key=lambda each: each.longest_ms)


def versions_of(api: Api, which: str) -> list[int]:
    """The versions to attack. The newest and the oldest are first: the costliest ways are searched there."""
    if which == "newest":
        return [api.max_version]
    return list(dict.fromkeys((api.max_version, api.min_version, *api.versions)))


def attack_api(
    watched: Watched, api: Api, arguments: argparse.Namespace, budget: Budget, kept: KeptRows
) -> None:
    """The costs of the API's versions that have no row yet: of every way to build a request in its newest and
    oldest version, and of the costliest ways in those between. Of the newest version alone, only the ways
    that found most. A version whose attack ends early has a row too; then `AttackEnded` is raised."""
    ends: list[Finding] = []
    for version in versions_of(api, arguments.versions):
        if kept.has(api.name, version):
            continue
        share_s = budget.next_share(shares_of(api, version))
        attacked = Version(watched, api, version, arguments.mebibytes << 20, share_s)
        is_alone = arguments.alone or (budget.is_limited and not _is_end(api, version))
        try:
            row = attacked.attack(_ways(api, version, arguments.versions, ends), is_alone=is_alone)
            if not is_serving(watched.target):
                raise AssertionError("the broker does not serve")
        except (OSError, AssertionError, EOFError) as error:
            kept.add(failed_row(api.name, version, f"the attack has ended early: {error}"))
            raise AttackEnded(f"{api.name} v{version}: {error!r}") from error
        if _is_end(api, version):
            ends += attacked.findings
            watched.slowest.append(attacked.slowest)
        note(f"{attacked.slowest}")
        for text in row.over():
            note(f"OVER {row.name}: {text}")
        if row.longest_ms > TURN_MS_MAX:
            note(row.where)
        kept.add(row)


def _ways(api: Api, version: int, which: str, ends: list[Finding]) -> list[Variant]:
    """How to build the requests of a version."""
    if _is_end(api, version) or not ends:
        return list(variants(api, is_short=which == "newest" or not _is_end(api, version)))
    slow = max(ends, key=lambda each: each.cost.longest_ms).variant
    large = max(ends, key=lambda each: each.cost.answer_bytes).variant
    return list(dict.fromkeys((slow, large)))


def _is_end(api: Api, version: int) -> bool:
    return version in (api.max_version, api.min_version)


def shares_of(api: Api, version: int) -> int:
    """How many shares of the campaign's time a version has."""
    return _END_SHARES if _is_end(api, version) else 1


class AttackEnded(Exception):
    """The broker has to be started again before the campaign goes on."""


def attack_all(
    arguments: argparse.Namespace, target: Target, world: World, directory: Path, kept: KeptRows
) -> None:
    """Attack every version that has no row yet. After a failure the broker is started again."""
    apis = [api for api in served_apis() if not arguments.api or api.name in arguments.api]
    shares = sum(
        shares_of(api, version)
        for api in apis
        for version in versions_of(api, arguments.versions)
        if not kept.has(api.name, version)
    )
    minutes = arguments.minutes
    if minutes is not None and not arguments.alone:
        minutes -= min(_ROTATION_MINUTES, minutes / 5)
    budget = Budget(minutes, shares)
    while True:
        try:
            _attack_with_neighbours(arguments, apis, budget, target, world, directory, kept)
        except AttackEnded as ended:
            note(f"OVER {ended}; starting the broker again")
            target.broker.restart()
        else:
            return


def _attack_with_neighbours(
    arguments: argparse.Namespace,
    apis: list[Api],
    budget: Budget,
    target: Target,
    world: World,
    directory: Path,
    kept: KeptRows,
) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(
            running_neighbour(directory, target.broker.port, Kind.CLIENT, target.broker.pid)
        )
        brokers_port = target.broker.brokers_port
        controller = stack.enter_context(running_neighbour(directory, brokers_port, Kind.CONTROLLER))
        watched = Watched(target, world, client, controller)
        client.pace(0, time.monotonic())  # It has begun.
        stack.enter_context(idle_connections(target, arguments.idle))
        before = memory_bytes(target.broker.pid, "VmRSS")
        for api in apis:
            attack_api(watched, api, arguments, budget, kept)
            if not is_furnished(target.broker, watched.world):
                note(f"  what {api.name} has deleted is created again")
                watched.world = furnish(target.broker, _furniture(arguments))
        if not arguments.alone and watched.slowest:
            kept.add(rotated(watched, 60 * _ROTATION_MINUTES))
        grown = memory_bytes(target.broker.pid, "VmRSS") - before
    note(f"Resident memory is {grown >> 20} MiB larger than before")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="hostile-requests.sh",
        description="Send the costliest requests of every API and version to a broker, and report the "
        "longest turn of its reactor, the largest answer, the growth of its memory, and how long a "
        "well-behaved client and a controller waited meanwhile. Status 1 if anything is over its limit.",
    )
    parser.add_argument("--partitions", type=int, default=2000, help="partitions of one topic (2000)")
    parser.add_argument("--topics", type=int, default=300, help="topics of one partition (300)")
    parser.add_argument("--groups", type=int, default=200, help="groups with committed offsets (200)")
    parser.add_argument("--idle", type=int, default=2000, help="idle connections beside (2000)")
    parser.add_argument("--mebibytes", type=int, default=4, help="maximum size of one request (4)")
    parser.add_argument(
        "--api", "--only", action="append", help="only these APIs; may be given more than once"
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="keep what each version has cost in this file. Versions that it has already are not attacked "
        "again: an interrupted campaign goes on where it stopped, and APIs may be attacked one by one",
    )
    parser.add_argument(
        "--versions",
        choices=("newest", "all"),
        default="all",
        help="all of each API (the default), or the newest alone and in the few ways that have found most. "
        "With --minutes, versions between the newest and the oldest are sent no sequences",
    )
    parser.add_argument("--alone", action="store_true", help="send no sequences of the costliest requests")
    parser.add_argument(
        "--minutes", type=float, help="about how long it may take; otherwise as long as everything takes"
    )
    parser.add_argument(
        "--docs", type=Path, help="write the table into costliest-requests.md of this directory"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.api or ()) - {api.name for api in served_apis()}
    if unknown:
        parser.error(f"unknown APIs: {', '.join(sorted(unknown))}")
    return arguments


def conditions(arguments: argparse.Namespace) -> str:
    """How was measured, for readers."""
    return (
        f"On {os.cpu_count()} cores, with {arguments.partitions + arguments.topics:,} partitions, "
        f"{arguments.groups} groups and {arguments.idle:,} idle connections; requests of up to "
        f"{arguments.mebibytes} MiB"
        + ("." if arguments.alone else ", and sequences of up to 100 MB on each connection.")
        + (f" All within {arguments.minutes:g} minutes." if arguments.minutes else "")
    )


def _furniture(arguments: argparse.Namespace) -> Furniture:
    return Furniture(arguments.partitions, arguments.topics, arguments.groups)


def main() -> int:
    arguments = _arguments()
    kept = KeptRows(arguments.results)
    gc.disable()  # Requests are built of many objects, none of them in a cycle.
    allow_files(arguments.idle + SPARE_FILES)  # The broker inherits the limit.
    with (
        tempfile.TemporaryDirectory() as directory,
        running_server(use_docker=False) as zookeeper,
        probed_broker(Path(directory), zookeeper) as target,
    ):
        world = furnish(target.broker, _furniture(arguments))
        attack_all(arguments, target, world, Path(directory), kept)
        target.broker.restart()
        assert is_serving(target), "the broker does not serve after its restart"
    rows = kept.rows
    print(table(rows))
    print("\n".join(over_limits(rows)))
    if arguments.docs:
        insert(arguments.docs / "costliest-requests.md", section(conditions(arguments), rows))
    return 1 if over_limits(rows) else 0


def note(text: str) -> None:
    """Tell the user what happens."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
