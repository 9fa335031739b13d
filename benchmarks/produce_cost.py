"""Measures what one produce request costs inside the broker, and in which functions.

The cost is the broker process's CPU time in a raw run, from the socket to the log, divided by the
requests. A second run under Python's profiler shows the functions. The profiler slows down Python functions
but not C functions, so its shares are rough, and its times meaningless.
"""

from __future__ import annotations

import math
import pstats
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.cases import KB, Case, run
from benchmarks.raw_client import RECORD_BYTES, build_batch
from benchmarks.results import Result
from benchmarks.targets import Target
from holdfast_log.broker.tools.local_cluster import LocalCluster

BATCH_BYTES = 16 * KB
AIM_US = 60.0
_CASE = Case("raw", "produce", RECORD_BYTES, BATCH_BYTES, 1, "1")
_COST_RUNS = 3
_REQUESTS_PER_CALL_MAX = 50
"""Requests per call above which a function counts as part of the start, not of a request."""


_Where: TypeAlias = tuple[str, int, str]
"""File, line and name of a function."""
_Functions: TypeAlias = dict[_Where, tuple[int, float]]
"""By function: number of calls, and time in the function itself."""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """A function, how often it was called for each request, and its own share of the time."""

    function: str
    calls_per_request: float
    share: float


def cost_us(result: Result) -> float | None:
    """Run raw produce requests of one 16 KB batch each. Returns the broker's CPU microseconds per request."""
    if result.broker_cpu_seconds is None:
        return None
    return result.broker_cpu_seconds / _requests(result) * 1e6


def measure(target: Target, seconds: float) -> Result:
    """The cheapest of several runs, for `cost_us`: other work on the machine only adds cost."""
    runs = [run(_CASE, target, f"produce-cost-{number}", seconds) for number in range(_COST_RUNS)]
    return min(runs, key=lambda result: cost_us(result) or math.inf)


def profile(
    directory: Path, seconds: float, properties: Mapping[str, str], rows: int = 15
) -> list[ProfileRow]:
    """The functions that take the most time, in a broker started for it.

    The cost of starting and stopping is measured with a second broker, and subtracted.
    """
    loaded, result = _profiled(directory / "loaded", properties, seconds)
    idle, _ = _profiled(directory / "idle", properties, None)
    assert result is not None
    return _most_expensive(loaded, idle, _requests(result), rows)


def _profiled(
    directory: Path, properties: Mapping[str, str], seconds: float | None
) -> tuple[_Functions, Result | None]:
    """The profile of a broker's whole run, under load for `seconds`, or without load."""
    stats_path = directory.with_suffix(".pstats")
    arguments = ["-m", "cProfile", "-o", str(stats_path)]
    result = None
    with LocalCluster(directory, properties=properties, python_arguments=arguments) as cluster:
        if seconds is not None:
            result = run(_CASE, Target("profiled", cluster.bootstrap), "produce-cost", seconds)
    stats = pstats.Stats(str(stats_path)).stats  # type: ignore[attr-defined]
    return {where: (calls, own_time) for where, (_, calls, own_time, _, _) in stats.items()}, result


def _requests(result: Result) -> int:
    _, records = build_batch(BATCH_BYTES)
    return result.records // records


def _most_expensive(loaded: _Functions, idle: _Functions, requests: int, rows: int) -> list[ProfileRow]:
    working: dict[_Where, tuple[int, float]] = {}
    for where, (calls, own_time) in loaded.items():
        idle_calls, idle_time = idle.get(where, (0, 0.0))
        more_calls = calls - idle_calls
        is_of_requests = more_calls * _REQUESTS_PER_CALL_MAX >= requests
        # Waiting for the network costs no CPU time.
        if is_of_requests and own_time > idle_time and "poll" not in where[2]:
            working[where] = (more_calls, own_time - idle_time)
    total = sum(own_time for _, own_time in working.values())
    ordered = sorted(working.items(), key=lambda item: -item[1][1])
    return [
        ProfileRow(_short_name(*where), calls / requests, own_time / total)
        for where, (calls, own_time) in ordered[:rows]
    ]


def _short_name(file: str, line: int, function: str) -> str:
    if file == "~":
        return function
    return f"{'/'.join(Path(file).parts[-2:])}:{line} {function}"
