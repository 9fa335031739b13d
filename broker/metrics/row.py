"""One metric: its name, its meaning, and the function that reads it when somebody asks.

    ROWS: tuple[MetricRow[Listeners], ...] = (
        counter("holdfast_connections_accepted_total", "Connections accepted.", lambda part: part.accepted),
        gauges(
            "holdfast_connections", "Open connections.", ("listener",),
            lambda part: (Sample((name,), count) for name, count in part.open_by_listener()),
        ),
    )

A row reads counts that exist anyway, so that nothing is done for it between two readings. A reader with many
samples is a generator: the page takes a few samples in each turn of the reactor. It must bear that what it
reads changes between two of its samples, so it begins with a copy of the keys.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P")


class MetricKind(enum.Enum):
    """How a value changes. The values are Prometheus's names of the types."""

    COUNTER = "counter"
    """Only rises, from 0 at the start of the broker. Its name ends in `_total`."""
    GAUGE = "gauge"
    """A present value."""
    SUMMARY = "summary"
    """Quantiles of what was measured last, with the number (`_count`) and the sum (`_sum`) of everything."""


class Sample(NamedTuple):
    """One value. `labels` are the values of the row's labels, in their order; labels at the end may be
    missing, as in Kafka, where a value without a topic is that of all topics together. `suffix` is for the
    parts of a summary."""

    labels: tuple[str, ...]
    value: float
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class MetricRow(Generic[P]):
    """One metric, read from a part of the broker of type `P`. `doc` is a sentence, with the unit."""

    name: str
    kind: MetricKind
    doc: str
    labels: tuple[str, ...]
    read: Callable[[P], Iterable[Sample]]


def counter(name: str, doc: str, read: Callable[[P], float]) -> MetricRow[P]:
    """A counter without labels."""
    return MetricRow(name, MetricKind.COUNTER, doc, (), _single(read))


def gauge(name: str, doc: str, read: Callable[[P], float]) -> MetricRow[P]:
    """A gauge without labels."""
    return MetricRow(name, MetricKind.GAUGE, doc, (), _single(read))


def counters(
    name: str, doc: str, labels: Sequence[str], read: Callable[[P], Iterable[Sample]]
) -> MetricRow[P]:
    """A counter with labels."""
    return MetricRow(name, MetricKind.COUNTER, doc, tuple(labels), read)


def gauges(name: str, doc: str, labels: Sequence[str], read: Callable[[P], Iterable[Sample]]) -> MetricRow[P]:
    """A gauge with labels."""
    return MetricRow(name, MetricKind.GAUGE, doc, tuple(labels), read)


def summary(
    name: str, doc: str, labels: Sequence[str], read: Callable[[P], Iterable[Sample]]
) -> MetricRow[P]:
    """A summary; the last of `labels` is `quantile`, if it has quantiles."""
    return MetricRow(name, MetricKind.SUMMARY, doc, tuple(labels), read)


def _single(read: Callable[[P], float]) -> Callable[[P], Iterable[Sample]]:
    def samples(part: P) -> Iterator[Sample]:
        yield Sample((), read(part))

    return samples


def read_single(rows: Iterable[MetricRow[P]], part: P) -> dict[str, float]:
    """The values without labels of these rows, by name."""
    return {
        row.name: sample.value
        for row in rows
        for sample in row.read(part)
        if not (sample.labels or sample.suffix)
    }
