"""Measures the broker's cost per request, and compares another checkout's: python -m benchmarks.cost --help.

Measures processor time, not speed, because other work on the machine hardly changes it. Runs against the two
brokers alternate; the cheapest run of each counts, since other work only adds cost. Ends with one line of
JSON.
"""

from __future__ import annotations

import contextlib
import math
import shutil
import tempfile
from pathlib import Path

import click

from benchmarks.broker import PROPERTIES
from benchmarks.cases import KB, Case, run
from benchmarks.raw_client import RECORD_BYTES
from benchmarks.results import Result, print_json, print_table
from benchmarks.targets import Target
from broker.tools.broker_process import CHECKOUT
from broker.tools.local_cluster import LocalCluster

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
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Runs of each case.")
@click.option("--only", default="", metavar="TEXT", help="Measure only cases whose name contains TEXT.")
def main(beside: Path | None, seconds: float, rounds: int, only: str) -> None:
    """Measure the processor time of a broker for each request, or each gigabyte."""
    cases = [case for case in CASES if only in case.name]
    checkouts = {"here": CHECKOUT} | ({} if beside is None else {"beside": beside})
    cheapest: dict[tuple[Case, str], float] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-cost-"))
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        targets = [
            _target(stack.enter_context(_cluster(directory / name, checkout)), name)
            for name, checkout in checkouts.items()
        ]
        for number in range(rounds):
            for index, case in enumerate(cases):
                for target in targets if number % 2 else reversed(targets):
                    cost = _cost(case, run(case, target, f"cost-{index}-{number}", seconds))
                    cheapest[case, target.name] = min(cost, cheapest.get((case, target.name), math.inf))
    _report(cases, list(checkouts), cheapest)


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


def _report(cases: list[Case], names: list[str], cheapest: dict[tuple[Case, str], float]) -> None:
    rows: list[list[str]] = []
    report = []
    for case in cases:
        unit = "us/request" if case.client == "raw" else "s/GB"
        costs = [cheapest[case, name] for name in names]
        ratio = [costs[0] / costs[1]] if len(costs) > 1 else []
        rows.append([case.name, unit, *(f"{cost:.2f}" for cost in [*costs, *ratio])])
        values = dict(zip([*names, "ratio"], [*costs, *ratio], strict=False))
        shown = {name: round(value, 3) for name, value in values.items()}
        report.append({"case": case.name, "unit": unit} | shown)
    headings = ["case", "unit", *names, *(["ratio"] if len(names) > 1 else [])]
    print_table("Processor time of the broker, cheapest run", headings, rows)
    print_json({"benchmark": "cost", "cases": report})


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.cost")
