"""What Spark calls for spark.readStream.format("holdfast"): needs PySpark 4.2 or later.

One instance per query runs on the driver, in a Python process of its own, for as long as the query. Tasks use
pickled copies of another instance, which never looks anything up.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from holdfast_log.pipeline.cluster import ClusterLookup
from holdfast_log.pipeline.options import stream_options
from holdfast_log.pipeline.range_partition import RangePartition
from holdfast_log.pipeline.ranges import read_range
from holdfast_log.pipeline.reader_leases import ReaderLeases, reader_leases
from holdfast_log.pipeline.repeated_lookup import RepeatedLookup
from holdfast_log.pipeline.stream import BatchLimits, OffsetJson, StreamOffsets, from_json, to_json


class HoldfastStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Raises `pipeline.option_table.OptionError` for options that are not allowed."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = stream_options(given)

    @cached_property
    def _lookup(self) -> ClusterLookup:
        return ClusterLookup(self._options.read.client)

    @cached_property
    def _offsets(self) -> StreamOffsets:
        lookup = RepeatedLookup(self._lookup, self._options.read.lookups, time.sleep)
        return StreamOffsets(self._options, lookup, time.monotonic, time.sleep)

    @cached_property
    def _leases(self) -> ReaderLeases | None:
        group = self._options.reader_group
        return None if group is None else reader_leases(self._options.read.client, group)

    def initialOffset(self) -> OffsetJson:
        return to_json(self._offsets.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark has no limit that is both: `latestOffset` takes the minimum from the options.
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        match limit:
            case ReadMaxRows(max_rows=at_most):
                limits = BatchLimits(at_most, self._options.min_offsets)
            case ReadMinRows(min_rows=at_least):
                limits = BatchLimits(at_least=at_least)
            case _:
                limits = BatchLimits()
        return to_json(self._offsets.latest(from_json(start), limits))

    def prepareForTriggerAvailableNow(self) -> None:
        self._offsets.freeze()

    def reportLatestOffset(self) -> OffsetJson | None:
        newest = self._offsets.newest
        return None if newest is None else to_json(newest)

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        ranges = self._offsets.ranges(from_json(start), from_json(end))
        if self._leases is None:
            return [RangePartition(found) for found in ranges]
        fences = self._leases.fences({found.partition for found in ranges})
        return [RangePartition(found, fences[found.partition]) for found in ranges]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        fence = partition.fence if isinstance(partition, RangePartition) else None
        return read_range(partition.value, self._options.read, fence)

    def stop(self) -> None:
        if "_lookup" in vars(self):
            self._lookup.close()
        if self._leases is not None:
            self._leases.close()
