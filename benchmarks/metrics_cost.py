"""Counts the instructions that metrics add to a produce request: python -m benchmarks.metrics_cost --help.

A broker counts every request and times some of them (`broker.requests.times`), and counts the batch by topic
(`broker.replication.traffic`). This does the same for many requests under valgrind's callgrind, once with and
once without metrics; other work on the machine does not change the count. The compiled append adds to the
topic's counts with fewer instructions than the Python counted here. Needs `valgrind`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

import click

from benchmarks.results import print_json, print_table
from holdfast_log.broker.requests.times import TIMED_ONE_IN

_REQUESTS = 20_000
_FEWER = 4_000
_COUNTED = re.compile(r"Collected : (\d+)")
_TIMEOUT_S = 600
_PROGRAM = """
import sys, time
from holdfast_log.broker.replication.traffic import TopicTraffic
from holdfast_log.broker.requests.times import ALL_TIMED, RequestTimes

times, traffic, clock_s = RequestTimes("Produce", 9), TopicTraffic(), time.monotonic
for _ in range(ALL_TIMED):
    times.add(0.0, 1.0, 0.0, clock_s(), 0)

def run(requests):
    for _ in range(requests):
        {loop}

run(int(sys.argv[1]))
"""
"""What a broker does for the metrics of each request, and nothing else."""
_LOOPS = {
    "nothing": "pass",
    "times": """
        if untimed := times.untimed:
            times.untimed = untimed - 1
        else:
            times.add(0.0, 1.0, 0.0, clock_s(), 0)""",
    "topics": """
        traffic.appends += 1
        traffic.messages_in += 16
        traffic.bytes_in += 16384""",
}


@click.command()
@click.option(
    "--of", "whole", type=click.IntRange(1), default=136_000, show_default=True, metavar="N",
    help="Instructions of a whole request, as benchmarks.instructions counts them.",
)  # fmt: skip
def main(whole: int) -> None:
    """Count what metrics add to a produce request of 16 KB."""
    if shutil.which("valgrind") is None:
        raise click.ClickException("valgrind is not installed: install the package valgrind")
    nothing = _instructions("nothing")
    counts = {name: _instructions(name) - nothing for name in ("times", "topics")}
    counts["both"] = sum(counts.values())
    shares = {name: round(100 * count / whole, 2) for name, count in counts.items()}
    rows = [[name, f"{counts[name]:,.0f}", f"{shares[name]} %"] for name in counts]
    print_table(f"Instructions of metrics, of {whole:,} of a request", ["what", "count", "share"], rows)
    print_json({"benchmark": "metrics_cost", "whole": whole, "timed_one_in": TIMED_ONE_IN, **counts})


def _instructions(loop: str) -> float:
    """Instructions of one request of a loop: what more requests take than fewer."""
    return (_counted(loop, _REQUESTS) - _counted(loop, _FEWER)) / (_REQUESTS - _FEWER)


def _counted(loop: str, requests: int) -> int:
    command = [
        "valgrind", "--tool=callgrind", f"--callgrind-out-file={os.devnull}", sys.executable,
        "-c", _PROGRAM.format(loop=_LOOPS[loop]), str(requests),
    ]  # fmt: skip
    done = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "0"}, capture_output=True, text=True,
        timeout=_TIMEOUT_S, check=True,
    )  # fmt: skip
    found = _COUNTED.search(done.stderr)
    if found is None:
        raise click.ClickException(f"callgrind printed no count: {done.stderr[-500:]}")
    return int(found[1])


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.metrics_cost")
