"""Measures what replicas cost: python -m benchmarks.replication --help.

Produces as fast as librdkafka can, with acks=all, to topics of one replica and of three on the same three
brokers, in turn, and prints the ratio. Ends with one line of JSON.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks.cases import KB, Case, run
from benchmarks.results import HEADINGS, Result, best_of, columns, print_json, print_table, summary
from benchmarks.targets import Target
from holdfast_log.broker.tools.local_cluster import LocalCluster

BROKERS = 3
RECORD_BYTES = 1000
CASES = tuple(
    Case("librdkafka", "produce", RECORD_BYTES, batch_bytes, partitions, "all")
    for batch_bytes in (16 * KB, 64 * KB, 1024 * KB)
    for partitions in (1, 6)
)
PROPERTIES = {"message.max.bytes": str(4 * 2**20), "log.segment.bytes": str(512 * 2**20)}


@click.command()
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.2),
    default=3.0,
    show_default=True,
    help="Seconds of load in each run.",
)
@click.option(
    "--rounds",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="Runs of each case; the fastest counts.",
)
@click.option("--only", metavar="TEXT", default="", help="Measure only cases whose name contains TEXT.")
@click.option("--directory", type=click.Path(path_type=Path), help="Directory for the brokers' data.")
def main(seconds: float, rounds: int, only: str, directory: Path | None) -> None:
    """Compare the throughput of a topic of three replicas with that of a single replica."""
    cases = [case for case in CASES if only in case.name]
    rows: list[list[str]] = []
    report: list[dict[str, Any]] = []
    with ExitStack() as stack:
        own_directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-", dir=directory))
        stack.callback(shutil.rmtree, own_directory, ignore_errors=True)
        cluster = stack.enter_context(LocalCluster(own_directory, brokers=BROKERS, properties=PROPERTIES))
        target = Target("holdfast", cluster.bootstrap, tuple(broker.pid for broker in cluster.brokers))
        for number, case in enumerate(cases, start=1):
            runs: dict[int, list[Result]] = {1: [], BROKERS: []}
            for turn in range(rounds):
                for replicas, results in runs.items():
                    results.append(run(case, target, f"replication-{number}-{turn}", seconds, replicas))
            best = {replicas: best_of(results) for replicas, results in runs.items()}
            ratio = best[BROKERS].mb_per_second / best[1].mb_per_second
            for replicas, result in best.items():
                rows.append(
                    [case.name, str(replicas), *columns(result), f"{ratio:.2f}" if replicas > 1 else ""]
                )
            report.append(
                {
                    "case": case.name,
                    "single": summary(best[1]),
                    "replicated": summary(best[BROKERS]),
                    "ratio": round(ratio, 3),
                }
            )
    print_table(
        f"{BROKERS} brokers, acks=all, best of {rounds}", ["case", "replicas", *HEADINGS, "ratio"], rows
    )
    print_json(
        {
            "benchmark": "replication",
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
            "seconds_per_run": seconds,
            "cases": report,
        }
    )


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.replication")
