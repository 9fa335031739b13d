"""Simulated consumers: they read every record from offset 0, and check each answer against earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.batches import BatchHeader, has_valid_crc, whole_batches
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from holdfast_log.protocol.schema import received_records
from tests.sim.client import PASSING, RETRY_S, Client, Surroundings
from tests.sim.history import Incarnation, TopicPartition
from tests.sim.told_offsets import ToldOffsets

_POLL_S = 0.3
_REWIND_SHARE = 0.05
"""The share of a consumer's polls before which it seeks back to an earlier offset in one partition."""
NAMES_VERSION = 12
"""Last version of Fetch that names topics, and first that reports where the reader's log diverges."""
IDS_VERSION = 16


@dataclass(slots=True)
class Reading:
    """A consumer's position in one partition."""

    place: Incarnation
    position: int = 0
    last_epoch: int = -1
    is_asked: bool = False
    ready_s: float = 0.0
    high_watermark: int = -1
    log_start_offset: int = -1
    told_by: tuple[int, int] | None = None
    """Leader epoch and process number of the leader that reported `high_watermark` and `log_start_offset`."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """One pending fetch: the broker's address and process number, and each partition's leader epoch."""

    address: Address
    life: int
    readings: Sequence[Reading]
    epochs: Sequence[int]


class Consumer(Client):
    """Reads every partition of the topics in `follows` from offset 0, without end.

    A topic that may be deleted and created again must be read by its id: `version` 13 or later.
    """

    isolation_level = 0
    """1 for a reader of committed records."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        *,
        follows: Sequence[str],
        version: int = IDS_VERSION,
        told: ToldOffsets | None = None,
    ) -> None:
        super().__init__(around, name)
        self._told = told or ToldOffsets(around.history)
        self._follows = follows
        self._version = version
        self._readings: dict[TopicPartition, Reading] = {}
        self.is_rewinding = True
        """Whether the consumer reads some records again. It must end when records are no longer written:
        otherwise a consumer may rewind more often than it reaches the end."""

    def begin(self) -> None:
        super().begin()
        self._tick()

    def positions(self) -> dict[Incarnation, int]:
        return {reading.place: reading.position for reading in self._readings.values()}

    def metadata_arrived(self) -> None:
        for name in self._follows:
            topic = self.topics.get(name)
            for number in topic.leaders if topic is not None else ():
                at = (name, number)
                reading = self._readings.get(at)
                if topic is not None and (reading is None or reading.place.topic_id != topic.topic_id):
                    self._readings[at] = Reading(Incarnation(at, topic.topic_id))

    def _tick(self) -> None:
        self._pump()
        self.later(_POLL_S * self.rng.uniform(0.5, 1.5), self._tick)

    def _pump(self) -> None:
        """Send each leader one fetch of the partitions that no pending fetch covers."""
        if not self._readings:
            self.refresh()
        elif self.is_rewinding and self.rng.random() < _REWIND_SHARE:
            self._rewind(self.rng.choice(list(self._readings.values())))
        now_s = self.process.clock.seconds()
        by_leader: dict[Address, tuple[list[Reading], list[int]]] = {}
        for reading in self._readings.values():
            if reading.is_asked or now_s < reading.ready_s:
                continue
            leader = self.leader_of(reading.place.at)
            if leader is None:
                self.refresh()
            else:
                address, epoch = leader
                readings, epochs = by_leader.setdefault(address, ([], []))
                readings.append(reading)
                epochs.append(epoch)
        for address, (readings, epochs) in by_leader.items():
            self._fetch(_Asked(address, self.life_of(address), readings, epochs))

    def _rewind(self, reading: Reading) -> None:
        """Read a partition again from an earlier offset, to meet damage in records that other clients have
        read already."""
        if not reading.is_asked:
            reading.position, reading.last_epoch = self.rng.randrange(reading.position + 1), -1

    def _fetch(self, asked: _Asked) -> None:
        topics: dict[str, FetchTopic] = {}
        for reading, epoch in zip(asked.readings, asked.epochs, strict=True):
            reading.is_asked = True
            name, number = reading.place.at
            topic = topics.setdefault(
                name, FetchTopic(topic=name, topic_id=reading.place.topic_id, partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=epoch,
                    fetch_offset=reading.position,
                    last_fetched_epoch=reading.last_epoch,
                    partition_max_bytes=8 * 1024,
                )
            )
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=64 * 1024,
            isolation_level=self.isolation_level,
            topics=list(topics.values()),
            forgotten_topics_data=[],
        )
        self.send(asked.address, request, self._version).addCallbacks(
            lambda response: self._answered(asked, response), lambda failure: self._unanswered(asked)
        )

    def _unanswered(self, asked: _Asked) -> None:
        for reading in asked.readings:
            self._pause(reading)
        self.refresh()

    def _pause(self, reading: Reading) -> None:
        reading.is_asked = False
        reading.ready_s = self.process.clock.seconds() + RETRY_S

    def _answered(self, asked: _Asked, response: FetchResponse) -> None:
        self.history.operations += 1
        by_id = self._version > NAMES_VERSION
        rows = {
            (topic.topic_id if by_id else topic.topic, row.partition_index): row
            for topic in response.responses
            for row in topic.partitions
        }
        for reading, epoch in zip(asked.readings, asked.epochs, strict=True):
            name, number = reading.place.at
            row = rows.get((reading.place.topic_id if by_id else name, number))
            if row is None or row.error_code != ErrorCode.NONE:
                self._refused(reading, ErrorCode.NONE if row is None else ErrorCode(row.error_code))
            else:
                reading.is_asked = False
                self._read(reading, epoch, asked, row)

    def _refused(self, reading: Reading, code: ErrorCode) -> None:
        deleted = self.history.deleted.get(reading.place, 0)
        is_moved = reading.position == deleted > 0 and reading.last_epoch == -1
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and (reading.position < deleted or is_moved):
            # A leader that does not know of its replacement may lack even these records.
            reading.position, reading.last_epoch = deleted, -1
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.history.parted(self.name, reading.place, reading.position, "that offset is out of range now")
            reading.position, reading.last_epoch = 0, -1
        elif code not in PASSING and code != ErrorCode.NONE:
            self.history.violation(f"{self.name} got {code.name} at {reading.position} of {reading.place}")
        self._pause(reading)
        self.refresh()

    def _read(self, reading: Reading, epoch: int, asked: _Asked, row: PartitionData) -> None:
        place = reading.place
        parted = row.diverging_epoch
        if parted.epoch >= 0 or parted.end_offset >= 0:
            what = f"the log diverges from epoch {reading.last_epoch} at {parted.end_offset}"
            self.history.parted(self.name, place, reading.position, what)
            reading.position = min(reading.position, parted.end_offset)
            reading.last_epoch = parted.epoch
            self._pause(reading)
            return
        if self.life_of(asked.address) == asked.life:
            self.note_offsets(reading, (epoch, asked.life), row)
        records = received_records(row.records)
        headers = whole_batches(records)
        for header in headers:
            if not has_valid_crc(records, header):
                self.history.violation(f"{self.name} got a damaged batch at {header.base_offset} of {place}")
                return
            if header.last_offset >= self.limit_of(row):
                self.history.violation(
                    f"{self.name} got {header.last_offset} of {place}, not below {self.limit_of(row)}"
                )
            if header.leader_epoch > epoch:
                self.history.violation(
                    f"{self.name} got a batch of epoch {header.leader_epoch} of {place} "
                    f"for a fetch in epoch {epoch}"
                )
            if header.base_offset > reading.position and place.at[0] not in self.history.compacted:
                self.history.violation(
                    f"{self.name} got {header.base_offset} of {place}, having asked for {reading.position}"
                )
            values = self.history.values_of(place, records, header)
            skipped = max(0, reading.position - header.base_offset)
            self.history.saw(self.name, place, header.base_offset + skipped, values[skipped:])
            reading.position = max(reading.position, header.next_offset)
            reading.last_epoch = header.leader_epoch
        self.got(reading, records, headers, row)
        self._told.told(self.name, place, epoch, reading.position, asked_s=None)

    def limit_of(self, row: PartitionData) -> int:
        """The offset before which all records of an answer must lie."""
        return row.high_watermark

    def got(
        self, reading: Reading, records: memoryview, headers: Sequence[BatchHeader], row: PartitionData
    ) -> None:
        """Called with the batches of an answer. Overridden in subclasses."""

    def note_offsets(self, reading: Reading, told_by: tuple[int, int], row: PartitionData) -> None:
        """Check that a leader's high watermark and log start never decrease within one leader epoch and
        process, and that no log starts after the records that an operator has asked to delete."""
        high_watermark, start = row.high_watermark, row.log_start_offset
        if start > self.history.deleted.get(reading.place, 0):
            self.history.violation(
                f"{self.name} was told that {reading.place} starts at {start}, but only records before "
                f"{self.history.deleted.get(reading.place, 0)} were deleted"
            )
        if told_by != reading.told_by:
            reading.told_by = told_by
            reading.high_watermark, reading.log_start_offset = high_watermark, start
        elif start < reading.log_start_offset:
            self.history.violation(
                f"{self.name} was told that {reading.place} starts at {start} after "
                f"{reading.log_start_offset}, in the same leader epoch {told_by[0]}"
            )
        elif high_watermark < reading.high_watermark:
            self.history.violation(
                f"{self.name} got high watermark {high_watermark} of {reading.place} "
                f"after {reading.high_watermark}, in the same leader epoch {told_by[0]}"
            )
        reading.high_watermark = max(reading.high_watermark, high_watermark)
        reading.log_start_offset = max(reading.log_start_offset, start)
