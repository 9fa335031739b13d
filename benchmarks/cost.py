"""Measures the broker's cost per request, and compares another checkout's: python -m benchmarks.cost --help.

Measures processor time, not speed, because other work on the machine hardly changes it. Each case first runs
once uncounted on each broker: the first megabytes that a machine writes after a pause cost less than half of
what later ones do. Each round then runs here, beside, beside, here. The table shows the median cost of all
runs, and the median of the rounds' ratios with its 95 % confidence interval. Ends with one line of JSON.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import shutil
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks.broker import PROPERTIES
from benchmarks.cases import KB, Case, run
from benchmarks.pairs import Ratio, in_turns, median_ratio
from benchmarks.raw_client import RECORD_BYTES
from benchmarks.results import Result, print_json, print_table
from benchmarks.targets import Target
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.coordinator.tools.directories import IMPORT_ROOT

CASES = (
    Case("raw", "produce", RECORD_BYTES, 16 * KB, 1, "1"),
    Case("raw", "produce", RECORD_BYTES, 64 * KB, 1, "1"),
    Case("raw", "produce", RECORD_BYTES, 1024 * KB, 1, "1"),
    Case("raw", "fetch", RECORD_BYTES, 16 * KB, 1, "1"),
    Case("raw", "fetch", RECORD_BYTES, 64 * KB, 1, "1"),
    Case("raw", "fetch", RECORD_BYTES, 1024 * KB, 1, "1"),
    Case("librdkafka", "produce", 100, 64 * KB, 6, "all"),
    Case("librdkafka", "produce", 1000, 1024 * KB, 1, "all"),
    Case("librdkafka", "tail_fetch", 1000, 64 * KB, 1, "1"),
    Case("librdkafka", "cold_fetch", 1000, 1024 * KB, 1, "1"),
)


@click.command()
@click.option(
    "--beside",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Directory of another checkout; its broker is measured in turn with this one's.",
)
@click.option(
    "--seconds", default=1.0, show_default=True, type=click.FloatRange(min=0.2), help="Seconds of each run."
)
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Rounds of each case; a round runs it twice on each broker.",
)
@click.option("--only", default="", metavar="TEXT", help="Measure only cases whose name contains TEXT.")
def main(beside: Path | None, seconds: float, rounds: int, only: str) -> None:
    """Measure the processor time of a broker for each request, or each gigabyte."""
    cases = [case for case in CASES if only in case.name]
    if not cases:
        raise click.BadParameter(f"no case has {only!r} in its name", param_hint="--only")
    checkouts = {"here": IMPORT_ROOT} | ({} if beside is None else {"beside": beside})
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-cost-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        targets = [
            _target(stack.enter_context(_cluster(directory / name, checkout)), name)
            for name, checkout in checkouts.items()
        ]
        measured = [_measure(case, targets, seconds, rounds) for case in cases]
    _report(measured, list(checkouts))


@dataclass(frozen=True, slots=True)
class CaseCost:
    """Median cost of a case by broker, and this checkout's cost divided by the other's, if there is one."""

    case: Case
    medians: list[float]
    ratio: Ratio | None


def _measure(case: Case, targets: list[Target], seconds: float, rounds: int) -> CaseCost:
    numbers = itertools.count()
    costs: dict[str, list[float]] = {target.name: [] for target in targets}

    def measure(target: Target) -> float:
        cost = _cost(case, run(case, target, f"cost-{CASES.index(case)}-{next(numbers)}", seconds))
        costs[target.name].append(cost)
        return cost

    runs = [functools.partial(measure, target) for target in targets]
    for warm_up in runs:
        warm_up()
    ratios = []
    if len(runs) == 1:
        for _ in range(rounds):
            runs[0]()
    else:
        for _ in range(rounds):
            here, beside = in_turns(*runs)
            ratios.append(here / beside)
    medians = [statistics.median(costs[target.name][1:]) for target in targets]
    return CaseCost(case, medians, median_ratio(ratios) if ratios else None)


def _cluster(directory: Path, checkout: Path) -> LocalCluster:
    return LocalCluster(directory, properties=PROPERTIES, checkout=checkout)


def _target(cluster: LocalCluster, name: str) -> Target:
    (broker,) = cluster.brokers
    return Target(name, cluster.bootstrap, (broker.pid,), tuple(broker.log_dirs))


def _cost(case: Case, result: Result) -> float:
    """Microseconds per request of a raw run; seconds per GB of other runs, whose requests are not counted."""
    per_gb = result.broker_cpu_seconds_per_gb
    assert per_gb is not None, "the broker's process must be known"
    return per_gb * (case.batch_bytes / 1e9) * 1e6 if case.client == "raw" else per_gb


def _report(measured: list[CaseCost], names: list[str]) -> None:
    rows: list[list[str]] = []
    report = []
    for cost in measured:
        unit = "us/request" if cost.case.client == "raw" else "s/GB"
        shown = [] if cost.ratio is None else [str(cost.ratio)]
        rows.append([cost.case.name, unit, *(f"{median:.2f}" for median in cost.medians), *shown])
        values = {name: round(median, 3) for name, median in zip(names, cost.medians, strict=True)}
        ratio = {} if cost.ratio is None else {"ratio": asdict(cost.ratio)}
        report.append({"case": cost.case.name, "unit": unit} | values | ratio)
    headings = ["case", "unit", *names, *(["ratio"] if len(names) > 1 else [])]
    print_table("Processor time of the broker, median", headings, rows)
    print_json({"benchmark": "cost", "cases": report})


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.cost")
