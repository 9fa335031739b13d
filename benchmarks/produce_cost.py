"""What one produce request costs inside the broker, and where that goes.

The cost is the broker process's CPU time in a raw run divided by its requests: all of it, from the socket to
the log. Where it goes is told by a second run under Python's profiler, which slows Python functions down and
C functions not, so that its shares are a hint and its times are none.
"""

from __future__ import annotations

import pstats
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import KB, Case, run
from benchmarks.raw_client import RECORD_BYTES, build_batch
from benchmarks.results import Result
from benchmarks.targets import Target
from broker.tools.local_cluster import LocalCluster

BATCH_BYTES = 16 * KB
AIM_US = 60.0
_CASE = Case("raw", "produce", RECORD_BYTES, BATCH_BYTES, 1, "1")


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A function, how often it was called for each request, and its own share of the time."""

    function: str
    calls_per_request: float
    share: float


def cost_us(result: Result) -> float | None:
    """CPU microseconds of the broker for each request of a raw run of 16 KB batches."""
    if result.broker_cpu_seconds is None:
        return None
    return result.broker_cpu_seconds / _requests(result) * 1e6


def measure(target: Target, seconds: float) -> Result:
    """The run that `cost_us` is about."""
    return run(_CASE, target, "produce-cost", seconds)


def profile(
    directory: Path, seconds: float, properties: Mapping[str, str], rows: int = 15
) -> list[ProfileRow]:
    """The functions that most time goes to, in a broker of its own."""
    stats_path = directory / "produce.pstats"
    arguments = ["-m", "cProfile", "-o", str(stats_path)]
    with LocalCluster(directory, properties=properties, python_arguments=arguments) as cluster:
        result = run(_CASE, Target("profiled", cluster.bootstrap), "produce-cost", seconds)
    return _most_expensive(pstats.Stats(str(stats_path)), _requests(result), rows)


def _requests(result: Result) -> int:
    _, records = build_batch(BATCH_BYTES)
    return result.records // records


def _most_expensive(stats: pstats.Stats, requests: int, rows: int) -> list[ProfileRow]:
    functions = stats.stats  # type: ignore[attr-defined]
    # Waiting for the network is not work.
    working = {key: value for key, value in functions.items() if "poll" not in key[2]}
    total = sum(own_time for _, _, own_time, _, _ in working.values())
    ordered = sorted(working.items(), key=lambda item: -item[1][2])
    return [
        ProfileRow(_short_name(*where), calls / requests, own_time / total)
        for where, (_, calls, own_time, _, _) in ordered[:rows]
    ]


def _short_name(file: str, line: int, function: str) -> str:
    if file == "~":
        return function
    return f"{'/'.join(Path(file).parts[-2:])}:{line} {function}"
