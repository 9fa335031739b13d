"""The load job under random kills: python -P -m tests.pipeline.jobs.kills --count 50.

Processes load a topic into a Parquet table, one after the other. Each is killed (SIGKILL) at a random
moment of one of its runs: while it claims the output, reads, writes, renames files or publishes its result.
In one of three cases only Python is killed, and its JVM lives on for a moment, as a zombie would. After each
kill the drill compares the committed offsets with the rows in the files that the ledger names. In the end a
last process loads the rest, and the table must be the topic. The drill prints one line, and ends with 1 if a
row is missing, there twice or changed.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import pyarrow.parquet as pq

from holdfast_log import Admin, Message, NewTopic, Producer
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.tools.zookeeper_process import die_with_parent
from holdfast_log.pipeline.jobs.ledger import CLAIM, DATA, Ledger, LedgerEntry
from holdfast_log.pipeline.jobs.storage import LocalStorage

HOME = Path(__file__).parents[3]
PARTITIONS = 6
_MAX_OFFSETS = 40
_RUNS = 4  # For which each process finds new records.
_TIMEOUT_S = 600.0
_POLL_S = 0.001
_ERROR_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Place:
    """What is loaded, and where to."""

    bootstrap: str
    topic: str
    table: Path


class LoadProcess:
    """A process of `tests.pipeline.jobs.load_runs`; use as a context manager, which kills it at the end."""

    def __init__(self, place: Place) -> None:
        arguments = [place.bootstrap, place.topic, str(place.table), str(_MAX_OFFSETS)]
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.pipeline.jobs.load_runs", *arguments],
            cwd=HOME,
            start_new_session=True,
            preexec_fn=die_with_parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def line(self, beginning: str) -> str:
        """The next line that begins so. Raises `RuntimeError` if the process ends before it prints one."""
        return self.lines(beginning)[-1]

    def lines(self, last: str) -> list[str]:
        """The next lines up to one that begins with `last`. Raises `RuntimeError` if the process ends before
        it prints that one."""
        deadline = time.monotonic() + _TIMEOUT_S
        lines = []
        while True:
            found = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            lines.append(found)
            if found.startswith(last):
                return lines
            if not found:
                self._errors.seek(0)
                raise RuntimeError(
                    f"the process has ended and printed no line that begins with {last!r}. The end of "
                    f"its stderr:\n{self._errors.read()[-_ERROR_CHARACTERS:]}"
                )

    def begin(self) -> None:
        """Let it load until nothing is new. It must have printed "ready"."""
        assert self.process.stdin is not None
        print(file=self.process.stdin, flush=True)

    def go(self) -> None:
        """Let it load until nothing is new, once it is ready, and end then."""
        self.line("ready")
        self.begin()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def close(self) -> None:
        """Kill it with its JVM."""
        self.signal(signal.SIGKILL)
        self.process.wait(300)
        self._errors.close()

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Moments ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Moment:
    """When to kill: as soon as the run has claimed the output and its folder has such a file, or up to
    `delay_s` later."""

    name: str
    pattern: str | None
    delay_s: float

    def has_come(self, table: Path, after: int) -> bool:
        """Whether it has come for a run that began after entry `after` of the ledger."""
        claim = _claim(table)
        if claim is None or claim.number <= after:
            return False
        return self.pattern is None or _has_file(table, claim, self.pattern)


def _claim(table: Path) -> LedgerEntry | None:
    """The claim of the run that works now, or that was killed; None between runs."""
    newest = Ledger(LocalStorage(table), "reader", -1).newest()
    return newest if newest is not None and newest.kind == CLAIM else None


def _has_file(table: Path, claim: LedgerEntry, pattern: str) -> bool:
    with suppress(OSError):  # Spark removes folders meanwhile.
        return next((table / DATA / f"run={claim.run}").glob(pattern), None) is not None
    return False


_WRITING, _TASK_DONE = "_temporary/0/_temporary/**/*.parquet", "_temporary/0/task_*/*.parquet"

MOMENTS = (
    Moment("claiming", None, 0.3),
    Moment("reading", "_temporary", 0.3),
    Moment("writing", _WRITING, 0.2),
    Moment("renaming", _TASK_DONE, 0.1),
    Moment("publishing", "_SUCCESS", 0.1),
)


# Checks -----------------------------------------------------------------------------------------------


def row(partition: int, offset: int) -> str:
    """The value of the record at an offset."""
    return f"{partition}:{offset}"


def disagreement(place: Place) -> str | None:
    """How the files that the ledger names differ from the offsets that it has; None if they agree."""
    ledger = Ledger(LocalStorage(place.table), "reader", -1)
    last = ledger.last_result()
    offsets = last.offsets[place.topic] if last else {}
    wanted = Counter((int(p), offset) for p, end in offsets.items() for offset in range(end))
    found: Counter[tuple[int, int]] = Counter()
    for path in (path for step in ledger.results() for path in step.files):
        rows = pq.read_table(place.table / path, columns=["partition", "offset", "value"]).to_pylist()
        for each in rows:
            at = each["partition"], each["offset"]
            if each["value"].decode() != row(*at):
                return f"the row of {at} in {path} is {each['value']!r}"
            found[at] += 1
    if found != wanted:
        missing, surplus = wanted - found, found - wanted
        return f"{missing.total()} rows are missing and {surplus.total()} are surplus: {missing | surplus}"[
            :500
        ]
    return None


def stage(table: Path) -> str:
    """What the run that was killed had reached, by what it has left."""
    claim = _claim(table)
    if claim is None:
        return "between runs"
    for name, pattern in (
        ("publishing", "_SUCCESS"),
        ("moving files", "*.parquet"),
        ("tasks done", _TASK_DONE),
        ("writing", _WRITING),
        ("reading", "_temporary"),
    ):
        if _has_file(table, claim, pattern):
            return name
    return "claimed"


# The drill --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Verdict:
    """What the drill has seen."""

    kills: int = 0
    rows: int = 0
    runs: int = 0
    stages: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        stages = ", ".join(f"{name} {number}" for name, number in sorted(self.stages.items()))
        return (
            f"kills {self.kills} ({stages}), results {self.runs}, rows {self.rows}, "
            f"violations {len(self.violations)}{''.join(f'; {text}' for text in self.violations)}"
        )


class Records:
    """Writes records whose values say where they are."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._ends = [0] * PARTITIONS
        with Admin({"bootstrap.servers": place.bootstrap}) as admin:
            admin.create_topics([NewTopic(place.topic, PARTITIONS)])

    def add(self, count: int, chance: random.Random) -> None:
        """Write so many records to random partitions."""
        with Producer({"bootstrap.servers": self._place.bootstrap}) as producer:
            for _ in range(count):
                number = chance.randrange(PARTITIONS)
                value = row(number, self._ends[number])
                producer.send(Message(self._place.topic, value=value, partition=number))
                self._ends[number] += 1

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self._ends)


def run_kills(place: Place, count: int, chance: random.Random, told: Callable[[str], None]) -> Verdict:
    """Kill so many processes, then let one finish."""
    verdict = Verdict()
    records = Records(place)
    with spares(place) as take:
        while verdict.kills < count:
            worker = take()
            records.add(_RUNS * _MAX_OFFSETS, chance)
            moment = MOMENTS[verdict.kills % len(MOMENTS)]
            if not _kill_at(moment, worker, place, chance):
                continue
            verdict.kills += 1
            verdict.stages[found := stage(place.table)] += 1
            told(f"kill {verdict.kills} aimed at {moment.name}: {found}")
            if wrong := disagreement(place):
                verdict.violations.append(f"after kill {verdict.kills}: {wrong}")
        last = take(is_last=True)
        last.go()
        last.line("nothing new")
    if wrong := disagreement(place):
        verdict.violations.append(f"at the end: {wrong}")
    results = Ledger(LocalStorage(place.table), "reader", -1).results()
    verdict.runs = len(results)
    verdict.rows = sum(results[-1].offsets[place.topic].values())
    if verdict.rows != records.total:
        verdict.violations.append(f"the topic has {records.total} records")
    return verdict


def _kill_at(moment: Moment, worker: LoadProcess, place: Place, chance: random.Random) -> bool:
    """Kill the process at the moment, in one of its runs; False if it has ended before."""
    newest = Ledger(LocalStorage(place.table), "reader", -1).newest()
    after = newest.number if newest else 0
    worker.go()
    for _ in range(chance.randrange(_RUNS - 1)):
        worker.line("done")
    deadline = time.monotonic() + _TIMEOUT_S
    while not moment.has_come(place.table, after):
        if worker.process.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise TimeoutError(f"the moment {moment.name} has not come for {_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)
    time.sleep(chance.random() * moment.delay_s)
    if worker.process.poll() is not None:
        return False
    if chance.randrange(3) == 0:
        worker.process.kill()
    else:
        worker.signal(signal.SIGKILL)
    worker.process.wait(300)
    return True


@contextmanager
def spares(place: Place) -> Iterator[Callable[..., LoadProcess]]:
    """Processes that load, one after the other: the next one starts its Spark while one works, unless
    `is_last=True` is given."""
    waiting = [LoadProcess(place)]
    used: list[LoadProcess] = []

    def take(*, is_last: bool = False) -> LoadProcess:
        if not is_last:
            waiting.append(LoadProcess(place))
        used.append(waiting.pop(0))
        return used[-1]

    try:
        yield take
    finally:
        for each in (*waiting, *used):
            each.close()


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--count", default=50, type=click.IntRange(1), help="How often a process is killed.")
@click.option("--seed", default=1, help="Of the moments of the kills.")
def main(count: int, seed: int) -> None:
    """Load a topic into a Parquet table under random kills, and compare the table with the topic."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="load-drill-") as folder,
        LocalCluster(Path(folder) / "cluster") as cluster,
    ):
        place = Place(cluster.bootstrap, "drill", Path(folder) / "table")
        verdict = run_kills(place, count, random.Random(seed), lambda line: click.echo(line, err=True))
    click.echo(f"{verdict}; {time.monotonic() - began:.0f} s")
    sys.exit(1 if verdict.violations else 0)


if __name__ == "__main__":
    main()
