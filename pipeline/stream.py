"""Decides which offsets each micro-batch of a streaming query reads, on the driver.

Pure except for queries to a `Lookup`, a clock and a sleep, which are given. Offsets are exchanged with Spark,
and kept in the query's checkpoint, as Kafka's source writes them: {"topic": {"0": 23}}, the offset after the
last record read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.pipeline.offsets import (
    DataLossError,
    Lookup,
    OffsetRange,
    PartitionsGoneError,
    checked,
    cut,
    partitions_of,
    starts_of,
)
from holdfast_log.pipeline.options import StreamOptions
from holdfast_log.protocol.one_line import one_line
from holdfast_log.protocol.topic_partition import TopicPartition

IDLE_WAIT_S = 1.0
"""Maximum time for which `StreamOffsets.latest` waits for records, before it answers that there are none.

Spark asks again 10 ms after such an answer, so without the wait an idle query would never sleep."""

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.25

_log = logging.getLogger("holdfast.spark")

Positions = dict[TopicPartition, int]
"""The offset at which reading continues, for each partition."""

OffsetJson = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """Numbers of offsets that a micro-batch may have (None: any), and must have before it starts."""

    at_most: int | None = None
    at_least: int | None = None


def to_json(positions: Mapping[TopicPartition, int]) -> OffsetJson:
    """Positions as Spark stores them, always in the same order: Spark compares texts."""
    stored: OffsetJson = {}
    for (topic, partition), offset in sorted(positions.items()):
        stored.setdefault(topic, {})[str(partition)] = offset
    return stored


def from_json(stored: OffsetJson) -> Positions:
    """The inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in stored.items()
        for partition, offset in partitions.items()
    }


def share(backlogs: Mapping[TopicPartition, int], at_most: int) -> dict[TopicPartition, int]:
    """Divide `at_most` records over partitions, in proportion to how many each has; exactly that many in sum.

    What rounding leaves goes to partitions whose share is 0 first, the longest backlog first: a short backlog
    beside long ones is not postponed for ever.
    """
    total = sum(backlogs.values())
    if total <= at_most:
        return dict(backlogs)
    shares = {partition: backlog * at_most // total for partition, backlog in backlogs.items()}
    left = at_most - sum(shares.values())
    waiting = [partition for partition, backlog in backlogs.items() if backlog > shares[partition]]
    waiting.sort(key=lambda partition: (shares[partition] > 0, -backlogs[partition], partition))
    for partition in waiting[:left]:
        shares[partition] += 1
    return shares


class StreamOffsets:
    """The offsets of one streaming query. `clock` and `sleep` use seconds."""

    def __init__(
        self,
        options: StreamOptions,
        lookup: Lookup,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._options = options
        self._read = options.read
        self._lookup = lookup
        self._clock = clock
        self._sleep = sleep
        self._target: Positions | None = None
        self._batch_at: float | None = None
        self._was_idle = False
        self.newest: Positions | None = None
        """The ends of all partitions at the last look-up: how far the query could read."""

    def initial(self) -> Positions:
        """Where a new query begins. Raises `OptionError` if the options do not fit the topics.

        A pattern need not match any topic yet.
        """
        partitions = self._partitions(must_exist=self._read.topics.pattern is None)
        earliest, latest = self._earliest(partitions), self._latest(partitions)
        return starts_of(self._read, partitions, earliest, latest, self._lookup)

    def freeze(self) -> None:
        """Never read beyond the present ends of the partitions, for `Trigger.AvailableNow`."""
        self._target = self._latest(self._partitions())

    def latest(self, start: Positions, limits: BatchLimits) -> Positions:
        """Where the micro-batch that begins at `start` ends; `start` if there is nothing to read.

        Waits up to `IDLE_WAIT_S` for records. New partitions of the topics are read from their beginning.
        Raises `DataLossError` if partitions or records that were seen before are gone, and the options forbid
        that.
        """
        partitions = self._partitions() if self._target is None else list(self._target)
        self._must_have_all(start, partitions)
        deadline = self._clock() + IDLE_WAIT_S
        pause = _LONGEST_PAUSE_S if self._was_idle else _FIRST_PAUSE_S
        while True:
            try:
                end = self._admitted(start, partitions, limits)
            except PartitionsGoneError as error:
                # Deleted since the topics were looked up.
                partitions = self._left(partitions, error)
                continue
            self._was_idle = end == start
            if not self._was_idle or self._target is not None or self._clock() >= deadline:
                return end
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """What the tasks of the micro-batch from `start` to `end` read. Raises `DataLossError`."""
        ranges = [
            OffsetRange(partition, start.get(partition, 0), offset)
            for partition, offset in sorted(end.items())
            if start.get(partition, 0) < offset
        ]
        if not ranges:
            return []
        partitions = [found.partition for found in ranges]
        try:
            earliest, latest = self._earliest(partitions), self._latest(partitions)
        except PartitionsGoneError as error:
            left = self._left(partitions, error)
            return self.ranges(start, {partition: end[partition] for partition in left})
        kept = [checked(found, earliest, latest, self._read) for found in ranges]
        return cut([found for found in kept if found.start < found.end], self._read)

    def _left(self, partitions: Sequence[TopicPartition], error: PartitionsGoneError) -> list[TopicPartition]:
        """The partitions that still exist. Raises the error if the query must not continue without them."""
        if self._read.fail_on_data_loss:
            raise error
        _log.warning(
            "The query continues without deleted partitions (failOnDataLoss=false): %s", one_line(str(error))
        )
        if self._target is not None:
            self._target = {at: end for at, end in self._target.items() if at not in error.partitions}
        return [partition for partition in partitions if partition not in error.partitions]

    def _admitted(
        self, start: Positions, partitions: Sequence[TopicPartition], limits: BatchLimits
    ) -> Positions:
        ends = self._ends(start, partitions)
        self.newest = ends
        added = [partition for partition in partitions if partition not in start]
        begins = {**start, **self._earliest(added)}
        backlogs = {partition: max(0, end - begins[partition]) for partition, end in ends.items()}
        total = sum(backlogs.values())
        if total == 0:
            return {**start, **{p: end for p, end in ends.items() if end < start.get(p, 0)}}
        if self._is_too_little(total, limits):
            return start
        self._batch_at = self._clock()
        shares = backlogs if limits.at_most is None else share(backlogs, limits.at_most)
        return {partition: min(begins[partition], end) + shares[partition] for partition, end in ends.items()}

    def _is_too_little(self, total: int, limits: BatchLimits) -> bool:
        if limits.at_least is None or total >= limits.at_least or self._target is not None:
            return False
        waited_s = None if self._batch_at is None else self._clock() - self._batch_at
        return waited_s is not None and waited_s < self._options.max_delay_ms / 1000

    def _partitions(self, *, must_exist: bool = False) -> list[TopicPartition]:
        return partitions_of(self._read.topics, self._lookup, must_exist=must_exist)

    def _earliest(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._lookup.earliest(partitions) if partitions else {}

    def _latest(self, partitions: Sequence[TopicPartition]) -> Positions:
        return dict(self._lookup.latest(partitions)) if partitions else {}

    def _ends(self, start: Positions, partitions: Sequence[TopicPartition]) -> Positions:
        """How far the query may read.

        Looks again if a partition ends before `start`: a new leader may not know yet how much is committed.
        """
        ends = self._latest(partitions) if self._target is None else self._target
        for _ in range(self._read.lookups.count):
            if not _shorter(ends, start):
                return ends
            self._sleep(self._read.lookups.interval_ms / 1000)
            ends = self._latest(partitions)
        for partition in _shorter(ends, start):
            loss = (
                f"{partition} ends at {ends[partition]}, but the query has read up to {start[partition]}: "
                "the topic was recreated, or records were lost."
            )
            if self._read.fail_on_data_loss:
                raise DataLossError(f"{loss} To read the remaining records, set failOnDataLoss to false.")
            _log.warning("%s The query continues at the end (failOnDataLoss=false).", one_line(loss))
        return ends

    def _must_have_all(self, start: Positions, partitions: Sequence[TopicPartition]) -> None:
        gone = sorted(set(start) - set(partitions))
        if gone and self._read.fail_on_data_loss:
            raise DataLossError(
                f"the query has read {', '.join(map(str, gone))} before, but it was deleted or is not "
                "subscribed to any more. To continue without it, set failOnDataLoss to false."
            )


def _shorter(ends: Positions, start: Positions) -> list[TopicPartition]:
    return [partition for partition, end in ends.items() if end < start.get(partition, 0)]
