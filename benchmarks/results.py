"""Results of measurements, and their output as a table and a line of JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MB = 1_000_000


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Percentiles in milliseconds; NaN without samples."""

    p50_ms: float
    p99_ms: float
    p999_ms: float


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one case against one broker. Bytes are those of record values."""

    records: int
    bytes: int
    seconds: float
    latency: LatencySummary
    broker_cpu_seconds: float | None = None
    """CPU seconds of all brokers together; None if their processes are unknown."""

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_second(self) -> float:
        return self.bytes / MB / self.seconds

    @property
    def broker_cpu_seconds_per_gb(self) -> float | None:
        if self.broker_cpu_seconds is None or not self.bytes:
            return None
        return self.broker_cpu_seconds / (self.bytes / (1000 * MB))


def percentiles(samples_ms: Sequence[float]) -> LatencySummary:
    """The latencies that 50, 99 and 99.9 % of the samples do not exceed."""
    ordered = sorted(samples_ms)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan

    return LatencySummary(at(0.5), at(0.99), at(0.999))


def to_json(result: Result) -> str:
    """A result as one line, for the process that asked for the measurement."""
    return json.dumps(asdict(result))


def from_json(line: str) -> Result:
    """The inverse of `to_json`."""
    values = json.loads(line)
    return Result(**{**values, "latency": LatencySummary(**values["latency"])})


def best_of(results: Sequence[Result]) -> Result:
    """The fastest of several runs: other work on a shared machine only slows a run down."""
    return max(results, key=lambda result: result.mb_per_second)


HEADINGS = ("rec/s", "MB/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU s/GB")


def columns(result: Result) -> list[str]:
    """A result as the cells below `HEADINGS`."""
    cpu = result.broker_cpu_seconds_per_gb
    return [
        f"{result.records_per_second:,.0f}",
        f"{result.mb_per_second:,.1f}",
        _milliseconds(result.latency.p50_ms),
        _milliseconds(result.latency.p99_ms),
        _milliseconds(result.latency.p999_ms),
        "" if cpu is None else f"{cpu:.2f}",
    ]


def _milliseconds(number: float) -> str:
    return "" if math.isnan(number) else f"{number:,.2f}"


def summary(result: Result) -> dict[str, float | None]:
    """A result for the JSON line, rounded to the precision of the measurement."""
    cpu = result.broker_cpu_seconds_per_gb
    latency = result.latency
    return {
        "records_per_second": round(result.records_per_second),
        "mb_per_second": round(result.mb_per_second, 1),
        "p50_ms": _rounded(latency.p50_ms),
        "p99_ms": _rounded(latency.p99_ms),
        "p999_ms": _rounded(latency.p999_ms),
        "broker_cpu_seconds_per_gb": _rounded(cpu),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None or math.isnan(number) else round(number, 3)


def print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """An aligned table: words to the left, numbers to the right."""
    widths = [max(len(row[index]) for row in [headings, *rows]) for index in range(len(headings))]
    print(f"\n{title}")
    for row in [headings, ["-" * width for width in widths], *rows]:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
    sys.stdout.flush()


def print_json(values: Mapping[str, Any]) -> None:
    """Print the JSON line, the last line of a benchmark."""
    print(json.dumps(values), flush=True)
