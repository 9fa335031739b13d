"""Which records a run takes: from where the last one ended, up to what the topics hold now."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from holdfast_log.clients.errors import ClientError
from holdfast_log.pipeline.cluster import ClusterLookup
from holdfast_log.pipeline.offsets import OffsetRange
from holdfast_log.pipeline.options import StreamOptions, stream_options
from holdfast_log.pipeline.repeated_lookup import RepeatedLookup
from holdfast_log.pipeline.source import FORMAT
from holdfast_log.pipeline.stream import BatchLimits, OffsetJson, StreamOffsets, from_json, to_json
from holdfast_log.protocol.errors import BrokerError


@dataclass(frozen=True, slots=True)
class Selection:
    """The offsets that one run takes; `ranges` are those that still have records."""

    start: OffsetJson
    end: OffsetJson
    ranges: tuple[OffsetRange, ...]


def select(
    given: Mapping[str, str], last: Mapping[str, Mapping[str, int]] | None, max_offsets: int | None
) -> Selection:
    """What a run takes that continues at the offsets `last`; the first run begins as the options say.

    `given` are options of a streaming read. Raises `pipeline.option_table.OptionError`, and
    `pipeline.offsets.DataLossError` if records behind `last` were deleted before they were taken.
    """
    options: StreamOptions = stream_options({"startingOffsets": "earliest", **given})
    with ClusterLookup(options.read.client) as lookup:
        repeated = RepeatedLookup(lookup, options.read.lookups, time.sleep)
        offsets = StreamOffsets(options, repeated, time.monotonic, time.sleep)
        start = from_json({topic: dict(row) for topic, row in last.items()}) if last else offsets.initial()
        offsets.freeze()
        end = offsets.latest(start, BatchLimits(max_offsets))
        ranges = offsets.ranges(start, end)
    return Selection(to_json(start), to_json(end), tuple(ranges))


def lag_behind(given: Mapping[str, str], end: Mapping[str, Mapping[str, int]]) -> int | None:
    """How many offsets the partitions of `end` have behind it now; None if the brokers do not answer."""
    positions = from_json({topic: dict(row) for topic, row in end.items()})
    try:
        with ClusterLookup(stream_options({"startingOffsets": "earliest", **given}).read.client) as lookup:
            latest = lookup.latest(sorted(positions))
    except (ClientError, BrokerError):
        return None
    return sum(max(0, latest[partition] - offset) for partition, offset in positions.items())


def frame_of(spark: SparkSession, given: Mapping[str, str], selection: Selection) -> DataFrame:
    """The records of a selection, which must not be empty; each range is read by one task."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), start, end in sorted((r.partition, r.start, r.end) for r in selection.ranges):
        starts.setdefault(topic, {}).setdefault(str(partition), start)
        ends.setdefault(topic, {})[str(partition)] = end
    chosen = ("subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp")
    kept = {name: value for name, value in given.items() if name not in chosen}
    return (
        spark.read.format(FORMAT)
        .options(**kept)
        .option("assign", json.dumps({topic: [int(p) for p in row] for topic, row in starts.items()}))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .load()
    )
