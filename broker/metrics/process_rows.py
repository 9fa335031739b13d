"""The metrics of the broker's process: the reactor, and names that dashboards for Kafka ask for."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from holdfast_log.broker.metrics.row import MetricRow, Sample, counter, gauge, gauges, summary
from holdfast_log.broker.metrics.turn_times import TurnTimes

_STATM = Path("/proc/self/statm")
_INSTEAD_OF_JAVA = "This broker is no Java program; dashboards for Kafka ask by this name."


def _memory(_: TurnTimes) -> Iterator[Sample]:
    try:
        pages = int(_STATM.read_text().split()[1])
    except OSError:
        return
    yield Sample(("heap",), pages * resource.getpagesize())


REACTOR_METRICS: tuple[MetricRow[TurnTimes], ...] = (
    counter(
        "holdfast_reactor_turns_total",
        "Turns of the event loop that serves all clients.",
        lambda turns: turns.count,
    ),
    counter(
        "holdfast_reactor_busy_seconds_total",
        "Time in seconds of all turns together; the rest of the time the broker waits for something to do. "
        "At a rate near 1 the broker uses up its processor core.",
        lambda turns: turns.busy_s,
    ),
    gauge(
        "holdfast_reactor_longest_turn_seconds",
        "The longest turn of the last one to two minutes, in seconds: no client was served meanwhile.",
        lambda turns: turns.longest_s,
    ),
    counter("holdfast_reactor_slow_turns_total", "Turns of 50 ms and more.", lambda turns: turns.slow),
    counter(
        "holdfast_reactor_collections_total",
        "Collections of garbage since the broker's start.",
        lambda turns: turns.collections,
    ),
    counter(
        "holdfast_reactor_collecting_seconds_total",
        "Time in seconds of all collections of garbage together.",
        lambda turns: turns.collecting_s,
    ),
    gauges(
        "jvm_memory_bytes_used",
        f"Resident memory of the process in bytes. {_INSTEAD_OF_JAVA}",
        ("area",),
        _memory,
    ),
    summary(
        "jvm_gc_collection_seconds",
        f"Time in seconds of all collections of garbage, and their number. {_INSTEAD_OF_JAVA}",
        ("gc",),
        lambda turns: [
            Sample(("python",), turns.collecting_s, "_sum"),
            Sample(("python",), turns.collections, "_count"),
        ],
    ),
)
