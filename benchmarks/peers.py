"""Compares Holdfast with Apache Kafka, row by row: python -m benchmarks.peers --help.

All systems run at the same time on this machine, and each run puts its load on one of them. The systems take
turns in every round, in an order that changes from round to round; the load generator and the measured system
share the machine's cores. Before its first round each system carries each row's load once uncounted, so that
Java has compiled what it needs. Every figure is kept; the table has medians, and the median of the rounds'
ratios. A run that fails is in the table, and makes the exit status 1. Ends with one line of JSON.
"""

from __future__ import annotations

import datetime
import functools
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

import click
from confluent_kafka import KafkaException

from benchmarks import apache_kafka, clients
from benchmarks.apache_kafka import NoKafkaError, WrongJarsError
from benchmarks.cases import KB, CaseError
from benchmarks.clients import ClientCase, RunError
from benchmarks.load_error import LoadError
from benchmarks.peer_plots import write_plots
from benchmarks.peer_report import (
    PeerReport,
    PeerRun,
    RowText,
    errors,
    from_text,
    insert,
    page_section,
    table,
    to_text,
)
from benchmarks.peer_rows import ROWS, FetchRow, Figures, PeerRow, ProduceRow, Timing
from benchmarks.peer_systems import (
    HOLDFAST,
    HOLDFAST_ALL_CORES,
    KAFKA_3,
    KAFKA_4,
    LABELS,
    PeerSystem,
    start,
)
from benchmarks.results import print_json
from benchmarks.targets import delete_topic
from holdfast_log.broker.tools.broker_process import BrokerProcessError
from holdfast_log.coordinator.tools.zookeeper_server import ZooKeeperServerError

T = TypeVar("T")

OTHER_CLIENT = "confluent-kafka"
CLIENT_CASES = (
    *(ClientCase(kind, size) for kind in ("produce", "consume") for size in (100, 1000)),
    ClientCase("produce_bulk", 100),
    ClientCase("produce_bulk", 1000),
    ClientCase("consume_bulk", 1000),
)
MEMORY = RowText("memory", "Memory of all processes after this load", ("memory",))
PAGE = "benchmarks.md"
PLOTS = "benchmarks"
RESULTS = "results.json"
_FAILURES = (LoadError, CaseError, RunError, KafkaException, OSError)
_CLIENT_MEGABYTES = 300
_WARM_UP_LOADS: tuple[PeerRow, ...] = (
    ProduceRow("warm-up-produce-16k", "", 8, 4, 16 * KB),
    ProduceRow("warm-up-produce-100b", "", 32, record_bytes=100),
    FetchRow("warm-up-fetch-16k", "", 8, 4, 16 * KB),
)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured. Before the first row, each system has up to `java_loads` loads of `java_s`
    seconds of each kind; before the first round of a row, that row's load for `row_warm_up_s` seconds."""

    rounds: int
    timing: Timing
    java_loads: int
    java_s: float
    row_warm_up_s: float


QUICK = Effort(1, Timing(0.8, 0.3), 6, 0.7, 0.0)
FULL = Effort(3, Timing(2.0, 0.7), 15, 2.0, 2.0)
_STEADY = 1.05
_LOADS_MIN = 5
"""A system is warm when a load is not faster by more than `_STEADY` than the fastest before it."""


@click.command()
@click.option("--quick", is_flag=True, help="One short run of everything, in some minutes.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds of each row. [default: 3, quick: 1]")
@click.option("--seconds", type=click.FloatRange(0.2), help="Seconds of each run. [default: 2, quick: 0.8]")
@click.option(
    "--only", multiple=True, metavar="TEXT", help="Only rows whose name contains TEXT; may be repeated."
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    type=click.Choice(list(LABELS)),
    help="Only these systems; may be repeated. [default: all]",
)
@click.option("--list", "is_list", is_flag=True, help="Print the names of the rows, and end.")
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the brokers' data goes. [default: the directory for temporary files]",
)
@click.option(
    "--docs",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help=f"Directory whose {PAGE} gets the table, and whose {PLOTS}/ the plots and all figures.",
)
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File for all figures, written after each row.",
)
@click.option(
    "--from",
    "earlier",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Write the page from the figures in this file, instead of measuring.",
)
def main(
    quick: bool,
    rounds: int | None,
    seconds: float | None,
    only: tuple[str, ...],
    systems: tuple[str, ...],
    is_list: bool,
    directory: Path | None,
    docs: Path | None,
    results: Path | None,
    earlier: Path | None,
) -> None:
    """Measure Holdfast beside Apache Kafka 3.9 with ZooKeeper and Apache Kafka 4.1, and its clients beside
    confluent-kafka."""
    if is_list:
        for row in ROWS:
            click.echo(row.name)
        click.echo(MEMORY.name)
        for case in CLIENT_CASES:
            click.echo(client_row(case))
        return
    if earlier is not None:
        report, of_clients = from_text(earlier.read_text())
        _finish(report, of_clients, docs)
        return
    usual = QUICK if quick else FULL
    effort = Effort(
        rounds or usual.rounds,
        Timing(seconds or usual.timing.seconds, usual.timing.warm_up_s),
        usual.java_loads,
        usual.java_s,
        usual.row_warm_up_s,
    )
    chosen = systems or tuple(LABELS)
    rows = [row for row in ROWS if is_chosen(row.name, only)]
    cases = [case for case in CLIENT_CASES if is_chosen(client_row(case), only)]
    if not rows and not cases:
        raise click.BadParameter("no row has such a name; --list prints them", param_hint="--only")
    signal.signal(signal.SIGTERM, _end)
    work = Path(tempfile.mkdtemp(prefix="holdfast-peers-", dir=directory))
    try:
        _bring_kafka(chosen)
        session = Session(work, [name for name in LABELS if name in chosen], effort, results)
        session.measure(rows, cases, has_memory=not only or is_chosen(MEMORY.name, only))
    except (NoKafkaError, WrongJarsError, BrokerProcessError, ZooKeeperServerError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _finish(session.report, session.clients, docs)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    """End in order, so that SIGTERM does not leave the brokers' data behind. A second signal, as the command
    `timeout` sends it, must not interrupt that."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def is_chosen(name: str, only: Sequence[str]) -> bool:
    return not only or any(text in name for text in only)


def client_row(case: ClientCase) -> str:
    """The name of a client's row."""
    return f"client-{case.kind.replace('_', '-')}-{case.record_bytes}b"


def _bring_kafka(systems: Sequence[str]) -> None:
    """Have Maven bring the jars before anything is measured."""
    versions = {KAFKA_3: apache_kafka.VERSION, KAFKA_4: apache_kafka.KRAFT_VERSION}
    for name in systems:
        if name in versions:
            apache_kafka.class_path(versions[name])


class Session:
    """The measurements of one call, with the brokers' data in `directory`. `report` and `clients` grow row by
    row, and are kept in the file `results`."""

    def __init__(self, directory: Path, systems: Sequence[str], effort: Effort, results: Path | None) -> None:
        conditions = _conditions(effort, directory)
        self._results = results
        self._directory = directory
        self._systems = systems
        self._effort = effort
        self._runs: list[PeerRun] = []
        self._client_runs: list[PeerRun] = []
        ours = [name for name in (HOLDFAST, HOLDFAST_ALL_CORES) if name in systems]
        peers = [name for name in (KAFKA_3, KAFKA_4) if name in systems]
        texts = [RowText(row.name, row.title, row.shown) for row in ROWS]
        self.report = PeerReport(conditions, LABELS, ours, peers, [*texts, MEMORY], self._runs)
        self.clients = PeerReport(
            conditions,
            {clients.OURS: "Holdfast's client", OTHER_CLIENT: OTHER_CLIENT},
            [clients.OURS],
            [OTHER_CLIENT],
            [
                RowText(client_row(case), case.name[0].upper() + case.name[1:], ("records",))
                for case in CLIENT_CASES
            ],
            self._client_runs,
        )

    def measure(self, rows: Sequence[PeerRow], cases: Sequence[ClientCase], *, has_memory: bool) -> None:
        """Measure rows by the number of brokers that they need, and the clients on one broker of Holdfast."""
        for brokers in sorted({row.brokers for row in rows}):
            with ExitStack() as stack:
                directory = self._directory / f"{brokers}-brokers"
                # Several brokers of one process each are on all cores already.
                names = [name for name in self._systems if brokers == 1 or name != HOLDFAST_ALL_CORES]
                running = [start(name, directory / name, brokers, stack) for name in names]
                self._warm_up(running)
                for row in rows:
                    if row.brokers == brokers:
                        self._measure_row(row, running)
                        self._keep()
                if brokers == 1 and has_memory:
                    for system in running:
                        figures = {"memory": system.memory_mb}
                        self._runs.append(PeerRun(MEMORY.name, system.name, 1, figures))
        if cases:
            with ExitStack() as stack:
                self._measure_clients(cases, start(HOLDFAST, self._directory / "clients", 1, stack))

    def _warm_up(self, running: Sequence[PeerSystem]) -> None:
        """Load each system until its rate no longer rises."""
        timing = Timing(self._effort.java_s, 0.0)
        for system in running:
            for row in _WARM_UP_LOADS:
                rates: list[float] = []
                try:
                    with row.prepared(system) as prepared:
                        while len(rates) < self._effort.java_loads and not is_steady(rates):
                            rates.append(row.run(system, prepared, timing)["requests"])
                except _FAILURES as error:
                    self._note_error(self._runs, row.name, system.name, 0, error)
                shown = ", ".join(f"{rate:,.0f}" for rate in rates)
                click.echo(f"{row.name}, {system.name}: {shown} requests/s")

    def _measure_row(self, row: PeerRow, running: Sequence[PeerSystem]) -> None:
        with ExitStack() as stack:
            prepared: dict[str, str] = {}
            for system in running:
                try:
                    prepared[system.name] = stack.enter_context(row.prepared(system))
                    if self._effort.row_warm_up_s:
                        row.run(system, prepared[system.name], Timing(self._effort.row_warm_up_s, 0.0))
                except _FAILURES as error:
                    self._note_error(self._runs, row.name, system.name, 0, error)
            for number in range(1, self._effort.rounds + 1):
                for system in in_turn(running, number):
                    if system.name in prepared:
                        run = functools.partial(row.run, system, prepared[system.name], self._effort.timing)
                        self._note(self._runs, row.name, system.name, number, run)

    def _measure_clients(self, cases: Sequence[ClientCase], system: PeerSystem) -> None:
        sizes = {case.record_bytes for case in cases if case.kind.startswith("consume")}
        filled = {size: clients.fill(system.target, size, _CLIENT_MEGABYTES) for size in sizes}
        for case in cases:
            for number in range(1, self._effort.rounds + 1):
                for client in in_turn([clients.OURS, OTHER_CLIENT], number):
                    records = filled.get(case.record_bytes, 0)
                    run = functools.partial(self._run_client, case, client, system, records)
                    self._note(self._client_runs, client_row(case), client, number, run)
            self._keep()
        for size in filled:
            delete_topic(system.target, clients.filled_topic(size))

    def _run_client(self, case: ClientCase, client: str, system: PeerSystem, records: int) -> Figures:
        result = clients.run_client(case, client, system.target, self._effort.timing.seconds, records)
        return {"records": result.records / result.seconds}

    def _keep(self) -> None:
        """Write what has been measured so far, so that a later failure does not lose it."""
        if self._results is not None:
            self._results.write_text(to_text([self.report, self.clients]))

    def _note(
        self, runs: list[PeerRun], row: str, system: str, number: int, run: Callable[[], Figures]
    ) -> None:
        try:
            figures = run()
        except _FAILURES as error:
            self._note_error(runs, row, system, number, error)
            return
        runs.append(PeerRun(row, system, number, figures))
        shown = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
        click.echo(f"{row}, {system}, round {number}: {shown}")
        sys.stdout.flush()

    def _note_error(
        self, runs: list[PeerRun], row: str, system: str, number: int, error: BaseException
    ) -> None:
        message = str(error).strip() or type(error).__name__
        runs.append(PeerRun(row, system, number, error=message))
        click.echo(f"{row}, {system}, round {number} FAILED: {message}", err=True)


def is_steady(rates: Sequence[float]) -> bool:
    """Whether the last of these rates is no rise above those before it."""
    return len(rates) >= _LOADS_MIN and rates[-1] <= max(rates[:-1]) * _STEADY


def in_turn(things: Sequence[T], number: int) -> list[T]:
    """The things in another order for each round: each is first as often as the others."""
    first = number % len(things)
    return [*things[first:], *things[:first]]


def _file_system(directory: Path) -> str:
    """The kind of file system that holds a directory."""
    kinds = {
        Path(fields[1]): fields[2]
        for fields in map(str.split, Path("/proc/self/mounts").read_text().splitlines())
    }
    resolved = directory.resolve()
    return next(kinds[path] for path in (resolved, *resolved.parents) if path in kinds)


def _conditions(effort: Effort, directory: Path) -> str:
    """Where and how is measured."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    today = datetime.date.today()
    timing = effort.timing
    return (
        f"Measured on {today.day} {today:%B %Y} on {os.cpu_count()} cores ({model}), with Python "
        f"{platform.python_version()}; the load average at the start was {os.getloadavg()[0]:.1f}. Brokers, "
        f"ZooKeeper and the load generator share these cores; logs are on {_file_system(directory)}. In "
        f"each of {effort.rounds} rounds, each row is measured for {timing.seconds:g} s on each system, "
        f"after {timing.warm_up_s:g} s that are not "
        "counted. Kafka has the settings of its own distribution, with `-Xmx1G`; "
        f"{apache_kafka.VERSION} runs with ZooKeeper, {apache_kafka.KRAFT_VERSION} in KRaft mode. The "
        "processor time of Kafka's broker includes Java's compilers and collector."
    )


def _finish(report: PeerReport, of_clients: PeerReport, docs: Path | None) -> None:
    """Print the tables, write the page, and end with status 1 if anything has failed."""
    click.echo(f"\n{report.conditions}\n\n{table(report)}")
    if of_clients.runs:
        click.echo(table(of_clients))
    if docs is not None:
        plots = write_plots(report, docs / PLOTS)
        (docs / PLOTS / RESULTS).write_text(to_text([report, of_clients]))
        shown = [(title, f"{PLOTS}/{name}") for title, name in plots]
        insert(docs / PAGE, page_section(report, of_clients, shown))
    failures = [*errors(report), *errors(of_clients)]
    medians = {
        f"{row.name} {key}": {
            name: median
            for name in (*report.peers, *report.ours)
            if (median := report.median(row.name, name, key)) is not None
        }
        for row in report.rows
        for key in row.shown
    }
    print_json({"benchmark": "peers", "medians": {row: found for row, found in medians.items() if found}})
    if failures:
        raise click.ClickException(f"{len(failures)} runs failed:\n" + "\n".join(failures))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.peers")
