"""Measures what a cluster costs while nothing is written: python -m benchmarks.idle --help.

Followers fetch continuously, and periodic tasks visit every partition; both should cost almost nothing even
with many partitions. Ends with one line of JSON.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.results import print_json, print_table
from benchmarks.targets import cpu_seconds
from holdfast_log.broker.tools.local_cluster import LocalCluster

_BROKERS = 3
_TOPIC_PARTITIONS = 1000
_TIMEOUT_S = 120


@click.command()
@click.option(
    "--partitions", default=10_000, show_default=True, type=click.IntRange(1), help="Partitions to create."
)
@click.option("--seconds", default=20.0, show_default=True, help="Seconds for which CPU time is measured.")
@click.option(
    "--settle-seconds",
    default=15.0,
    show_default=True,
    help="Seconds to wait after the partitions are created.",
)
def main(partitions: int, seconds: float, settle_seconds: float) -> None:
    """Measure the CPU time of three idle brokers, without partitions and with many that each have three
    replicas."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-"))
    try:
        with LocalCluster(directory / "cluster", brokers=_BROKERS) as cluster:
            pids = [broker.pid for broker in cluster.brokers]
            empty = _shares(pids, seconds)
            _create(cluster.bootstrap, partitions)
            time.sleep(settle_seconds)
            full = _shares(pids, seconds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print_table(
        f"Idle brokers, {partitions} partitions with {_BROKERS} replicas: share of a processor",
        ["broker", "without partitions", "with partitions"],
        [
            [str(number), f"{before:.2%}", f"{after:.2%}"]
            for number, (before, after) in enumerate(zip(empty, full, strict=True), start=1)
        ],
    )
    report: dict[str, Any] = {
        "benchmark": "idle",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "partitions": partitions,
        "cpu_share_empty": [round(share, 4) for share in empty],
        "cpu_share": [round(share, 4) for share in full],
    }
    print_json(report)


def _create(bootstrap: str, partitions: int) -> None:
    """Create topics of at most 1000 partitions, one after the other. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for first in range(0, partitions, _TOPIC_PARTITIONS):
        count = min(_TOPIC_PARTITIONS, partitions - first)
        topic = NewTopic(f"idle-{first}", count, _BROKERS)
        for created in admin.create_topics([topic], operation_timeout=_TIMEOUT_S).values():
            created.result(_TIMEOUT_S)


def _shares(pids: list[int], seconds: float) -> list[float]:
    """The share of a processor that each process uses during `seconds`."""
    before, began = [cpu_seconds([pid]) for pid in pids], time.monotonic()
    time.sleep(seconds)
    lasted = time.monotonic() - began
    after = [cpu_seconds([pid]) for pid in pids]
    return [((end or 0.0) - (start or 0.0)) / lasted for start, end in zip(before, after, strict=True)]


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.idle")
