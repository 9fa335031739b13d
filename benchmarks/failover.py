"""Measures how long failover takes: python -m benchmarks.failover --help.

Kills a leader, and stops one in order, under a steady load of librdkafka and of our own producer. Then kills
a broker and the controller in a cluster of many partitions. Ends with one line of JSON.
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

from benchmarks.failover_load import Outage, kill_a_leader, set_scene, stop_a_leader
from benchmarks.many_partitions import Failover, measure
from benchmarks.results import print_json, print_table

CASES = ("kill", "stop", "many")
AIMS = {1_000: 0.3, 10_000: 1.5}
"""Aims by number of partitions: seconds from a session's end until every partition has a leader."""
STOP_AIM_MS = 300.0
KILL_AIM_AFTER_SESSION_S = 1.0


@click.command()
@click.option(
    "--only", type=click.Choice(CASES), multiple=True, help="Measure only this case; may be repeated."
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    multiple=True,
    default=(1_000, 10_000),
    show_default=True,
    help="Partitions of a cluster of many partitions; may be repeated.",
)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    help="Number of kills, and number of orderly stops.",
)
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(1000),
    default=6000,
    show_default=True,
    help="Session timeout of the brokers in ZooKeeper, in ms (zookeeper.session.timeout.ms).",
)
@click.option("--directory", type=click.Path(path_type=Path), help="Directory for the brokers' data.")
def main(
    only: tuple[str, ...],
    partitions: tuple[int, ...],
    rounds: int,
    session_timeout_ms: int,
    directory: Path | None,
) -> None:
    """Measure the outage after the loss of a broker, on three brokers and ZooKeeper started for the
    benchmark."""
    cases = only or CASES
    report: dict[str, Any] = {
        "benchmark": "failover",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "session_timeout_ms": session_timeout_ms,
    }
    with ExitStack() as stack:
        own_directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-", dir=directory))
        stack.callback(shutil.rmtree, own_directory, ignore_errors=True)
        if {"kill", "stop"} & set(cases):
            with set_scene(own_directory / "load", session_timeout_ms) as scene:
                if "kill" in cases:
                    outages = [outage for _ in range(rounds) for outage in kill_a_leader(scene)]
                    report["kill"] = _report_kills(outages, session_timeout_ms)
                if "stop" in cases:
                    outages = [outage for _ in range(rounds) for outage in stop_a_leader(scene)]
                    report["stop"] = _report_stops(outages)
        if "many" in cases:
            failovers = [
                failover
                for count in partitions
                for failover in measure(own_directory / f"many-{count}", count, session_timeout_ms)
            ]
            report["many"] = _report_failovers(failovers)
    print_json(report)


def _report_kills(outages: list[Outage], session_timeout_ms: int) -> list[dict[str, Any]]:
    aim_s = session_timeout_ms / 1000 + KILL_AIM_AFTER_SESSION_S
    print_table(
        f"kill -9 of a leader, seconds since the kill (aim: first write by {aim_s:.1f})",
        ["client", "session ended", "leader elected", "first write", "all partitions writable", "failed"],
        [
            [
                one.client,
                f"{one.gone_s:.2f}",
                f"{one.elected_s:.2f}",
                f"{one.first_write_s:.2f}",
                f"{one.all_write_s:.2f}",
                str(one.failed),
            ]
            for one in outages
        ],
    )
    return [
        {
            "client": one.client,
            "session_over_s": round(one.gone_s, 3),
            "elected_s": round(one.elected_s, 3),
            "first_write_s": round(one.first_write_s, 3),
            "all_write_s": round(one.all_write_s, 3),
            "failed": one.failed,
        }
        for one in outages
    ]


def _report_stops(outages: list[Outage]) -> list[dict[str, Any]]:
    print_table(
        f"Controlled shutdown of a leader (aims: no failed write, no pause over {STOP_AIM_MS:.0f} ms)",
        ["client", "failed", "longest pause of a partition, ms", "longest before, ms"],
        [
            [one.client, str(one.failed), f"{one.longest_pause_s * 1000:.0f}", f"{one.usual_s * 1000:.0f}"]
            for one in outages
        ],
    )
    return [
        {
            "client": one.client,
            "failed": one.failed,
            "longest_pause_ms": round(one.longest_pause_s * 1000),
            "usual_longest_pause_ms": round(one.usual_s * 1000),
        }
        for one in outages
    ]


def _report_failovers(failovers: list[Failover]) -> list[dict[str, Any]]:
    aims = ", ".join(f"{seconds} s for {count:,}" for count, seconds in AIMS.items())
    print_table(
        f"Many partitions on three brokers, seconds from the end of a broker's session (aims: {aims})",
        [
            "killed",
            "partitions",
            "elected",
            "brokers informed",
            "metadata complete",
            "states",
            "writes",
            "requests",
        ],
        [
            [
                one.killed,
                f"{one.partitions:,}",
                f"{one.elected_s:.2f}",
                f"{one.told_s:.2f}",
                f"{one.metadata_s:.2f}",
                f"{one.states:,}",
                str(one.zookeeper_writes),
                one.requests,
            ]
            for one in failovers
        ],
    )
    return [
        {
            "killed": one.killed,
            "partitions": one.partitions,
            "elected_s": round(one.elected_s, 3),
            "told_s": round(one.told_s, 3),
            "metadata_s": round(one.metadata_s, 3),
            "states": one.states,
            "zookeeper_writes": one.zookeeper_writes,
            "requests": one.requests,
        }
        for one in failovers
    ]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.failover")
