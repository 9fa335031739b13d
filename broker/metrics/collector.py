"""Gives the rows of a broker to prometheus-client's registry."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias

from prometheus_client.metrics_core import Metric

from holdfast_log.broker.metrics.row import MetricKind, MetricRow
from holdfast_log.coordinator.repeated_log import RepeatedLog

_log = logging.getLogger(__name__)

PART_SAMPLES = 100
"""Samples of one metric that are read together. A sample takes some µs to read and to write."""

BoundRow: TypeAlias = "tuple[MetricRow[Any], Any]"
"""A row, and the part of the broker that it reads."""


class RowCollector:
    """A collector of prometheus-client that reads rows when it is asked, one after the other.

    A metric with many samples comes in parts of `PART_SAMPLES`, so that other work can be done between them.
    `rows` returns the rows that can be read at present. A row that cannot be read is logged and left out, and
    `failed` counts it.
    """

    def __init__(self, rows: Callable[[], Iterable[BoundRow]], log: RepeatedLog) -> None:
        self._rows = rows
        self._repeated_log = log
        self.failed = 0

    def describe(self) -> Iterable[Metric]:
        """Nothing: the rows are read only when they are asked for."""
        return ()

    def collect(self) -> Iterator[Metric]:
        for row, part in self._rows():
            try:
                yield from _parts(row, part)
            except Exception as error:
                self.failed += 1
                self._repeated_log.error(
                    _log,
                    "metrics that cannot be read",
                    "The metric %s cannot be read",
                    row.name,
                    exc_info=error,
                )


def _parts(row: MetricRow[Any], part: Any) -> Iterator[Metric]:
    samples = iter(row.read(part))
    while chunk := list(islice(samples, PART_SAMPLES)):
        family = family_of(row)
        for labels, value, suffix in chunk:
            family.add_sample(row.name + suffix, dict(zip(row.labels, labels, strict=False)), value)
        yield family


def family_of(row: MetricRow[Any]) -> Metric:
    """The metric without samples. prometheus-client adds the ending of a counter's name itself."""
    name = row.name.removesuffix("_total") if row.kind is MetricKind.COUNTER else row.name
    return Metric(name, row.doc, row.kind.value)
