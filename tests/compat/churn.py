"""A group whose members use different libraries and come and go; their journals are read and checked."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer

ROOT = Path(__file__).parent.parent.parent
OLD_KAFKA_PYTHON = Path(
    os.environ.get("HOLDFAST_KAFKA_PYTHON_2", ROOT / ".venv-kafka-python-2" / "bin" / "python")
)
SETTLE_S = 240
LEAVE_S = 120
LOOK_S = 0.02
PARTITIONS = 24
REPORTED_LOG = 6_000
"""How many characters of each member's log a failure shows."""


@dataclass(frozen=True, slots=True)
class Library:
    """A client library: its driver, and the interpreter that has it installed."""

    name: str
    driver: str
    python: Path = Path(sys.executable)

    def __str__(self) -> str:
        return self.name


@dataclass
class Member:
    """A member process, and the journal that it writes."""

    name: str
    library: Library
    process: subprocess.Popen[bytes]
    path: Path
    began_at: float | None = None
    generation: int = -1
    owned: tuple[int, ...] = ()
    owned_at: float = 0.0
    _position: int = 0
    _rest: bytes = b""

    def look(self, judge: Judge) -> None:
        """Read the lines that the member has written since the last call."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for text in lines:
            self._take(json.loads(text), judge)

    def _take(self, line: dict[str, Any], judge: Judge) -> None:
        match line["event"]:
            case "begins":
                self.began_at = line["at"]
            case "owns":
                self.generation, self.owned = line["generation"], tuple(line["partitions"])
                self.owned_at = line["at"]
            case "processed":
                judge.processed(self.name, line["generation"], line["offsets"])


@dataclass
class Judge:
    """The records that members have processed. Notes partitions read by two members in one generation."""

    seen: dict[int, set[int]] = field(default_factory=dict)
    records: int = 0
    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def processed(self, member: str, generation: int, offsets: dict[str, list[int]]) -> None:
        for text, found in offsets.items():
            partition = int(text)
            self.seen.setdefault(partition, set()).update(found)
            self.records += len(found)
            if generation < 0:
                continue  # The member had left its group before it read its generation.
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                self.problems.append(
                    f"generation {generation}: partition {partition} was read by {owner} and by {member}"
                )

    def missing(self, ends: dict[int, int]) -> list[str]:
        """The records before `ends` that no member has processed."""
        return [
            f"partition {partition}, offset {offset}"
            for partition, end in ends.items()
            for offset in sorted(set(range(end)) - self.seen.get(partition, set()))
        ]


class MixedGroup:
    """Starts and stops members, writes records meanwhile, and checks the members' journals."""

    def __init__(
        self, bootstrap: str, topic: str, strategy: str, libraries: Iterable[Library], directory: Path
    ) -> None:
        self.judge = Judge()
        self.members: list[Member] = []
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._bootstrap = bootstrap
        self._topic = topic
        self._strategy = strategy
        self._libraries = list(libraries)
        self._directory = directory
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._gone: list[Member] = []
        self._logs: list[IO[bytes]] = []
        self._count = 0

    def come(self) -> Member:
        """Start a member with the next library in turn."""
        library = self._libraries[self._count % len(self._libraries)]
        self._count += 1
        name = f"{self._count}-{library}"
        path = self._directory / f"{name}.journal"
        log = (self._directory / f"{name}.log").open("wb")
        self._logs.append(log)
        command = [str(library.python), "-m", f"tests.compat.drivers.{library.driver}"]
        command += ["--bootstrap", self._bootstrap, "--topic", self._topic, "--group", self._topic]
        command += ["--strategy", self._strategy, "--journal", str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        member = Member(name, library, process, path)
        self.members.append(member)
        return member

    def go(self, member: Member, *, by_force: bool) -> None:
        """Stop a member by SIGTERM, or by SIGKILL if `by_force`."""
        self.members.remove(member)
        self._gone.append(member)
        if by_force:
            member.process.kill()
        else:
            member.process.terminate()

    def settle(self) -> float:
        """Write records until the members own all partitions in one generation, for at most `SETTLE_S`.
        Returns the seconds that took since the last member began to join."""
        began_at = time.monotonic()
        while not self._is_settled():
            self._work()
            assert time.monotonic() - began_at < SETTLE_S, self.report()
        joined_at = [member.began_at for member in self.members if member.began_at is not None]
        return max(member.owned_at for member in self.members) - max(began_at, *joined_at)

    def _work(self) -> None:
        """Write a record to every partition, and read all journals."""
        for partition in range(PARTITIONS):
            self._producer.send(Message(self._topic, value=b"x" * 50, partition=partition))
            self.ends[partition] += 1
        time.sleep(LOOK_S)
        for member in (*self.members, *self._gone):
            member.look(self.judge)
        for member in self.members:
            assert member.process.poll() is None, f"{member.name} has ended: {self.report()}"

    def _is_settled(self) -> bool:
        owned = sorted(partition for member in self.members for partition in member.owned)
        generations = {member.generation for member in self.members}
        return owned == list(range(PARTITIONS)) and len(generations) == 1

    def drain(self) -> None:
        """Wait up to `SETTLE_S` until every record has been processed."""
        self._producer.flush()
        until = time.monotonic() + SETTLE_S
        while self.judge.missing(self.ends):
            time.sleep(LOOK_S)
            for member in (*self.members, *self._gone):
                member.look(self.judge)
            missing = self.judge.missing(self.ends)
            assert time.monotonic() < until, f"{len(missing)} missing: {missing[:5]} {self.report()}"

    def report(self) -> str:
        """The partitions of each member, and the ends of their logs."""
        lines = [f"{member.name}: generation {member.generation}, {member.owned}" for member in self.members]
        for member in self.members:
            log = self._directory / f"{member.name}.log"
            lines.append(f"--- {log.name}\n{log.read_text(errors='replace')[-REPORTED_LOG:]}")
        return "\n".join(lines)

    def close(self) -> None:
        """Stop all members; those still running after `LEAVE_S` are killed."""
        self._producer.close()
        for member in self.members:
            member.process.terminate()
        try:
            for member in (*self.members, *self._gone):
                member.process.wait(LEAVE_S)
        finally:
            for member in (*self.members, *self._gone):
                member.process.kill()
                member.process.wait()
            for log in self._logs:
                log.close()


@contextmanager
def mixed_group(
    bootstrap: str, topic: str, strategy: str, libraries: Iterable[Library], directory: Path
) -> Iterator[MixedGroup]:
    """A group that is closed at the end of the block."""
    group = MixedGroup(bootstrap, topic, strategy, libraries, directory)
    try:
        yield group
    finally:
        group.close()


def churn(group: MixedGroup, count: int, members: int, rng: random.Random) -> list[float]:
    """Replace a random member `count` times. Returns the seconds that each rebalance took."""
    for _ in range(members):
        group.come()
    group.settle()
    times = []
    for _ in range(count):
        group.go(rng.choice(group.members), by_force=rng.random() < 0.25)
        group.come()
        times.append(group.settle())
    group.drain()
    return times


def percentile(times: list[float], share: float) -> float:
    """The time that `share` of all times do not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
