"""Reads messages for a page: from a place, by key, within bounds of count, bytes and time. It blocks."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol.topic_partition import TopicPartition

COUNT_MAX = 200
"""How many messages a page shows at most."""
BYTES_MAX = 16 * 1024 * 1024
"""How many bytes of keys, values and headers are kept for a page."""
SCANNED_BYTES_MAX = 64 * 1024 * 1024
"""How many bytes are read in search of a key."""
WITHIN_S = 5.0
"""How long reading may take."""
PARTITIONS_MAX = 100
"""How many partitions of a topic are read at once."""


class BrowsePlace(enum.Enum):
    """Where reading begins; the value is its name in addresses of pages."""

    NEWEST = "newest"
    OLDEST = "oldest"
    OFFSET = "offset"
    TIME = "time"


class Ending(enum.Enum):
    """Why reading ended."""

    END = "the end of what was written"
    COUNT = "enough messages"
    BYTES = "the limit of bytes"
    TIME = "the limit of time"


@dataclass(frozen=True, slots=True)
class BrowseRequest:
    """What to read. `partition` None: all of the topic. `at` is an offset, or ms since the epoch; the other
    places ignore it. `key`: only messages with this key."""

    topic: str
    partition: int | None
    place: BrowsePlace
    at: int = 0
    count: int = 50
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class Browsed:
    """What was read, the oldest first in each partition. `begins` and `ends` bound what each partition has,
    `positions` is where reading would go on, `from_offsets` where it began. `left_out`: partitions above
    `PARTITIONS_MAX`."""

    records: tuple[ConsumerRecord, ...]
    ending: Ending
    looked_at: int
    from_offsets: Mapping[int, int]
    positions: Mapping[int, int]
    begins: Mapping[int, int]
    ends: Mapping[int, int]
    left_out: int


def browse(
    consumer: Consumer, request: BrowseRequest, steady: Callable[[], float] = time.monotonic
) -> Browsed:
    """Read messages with a consumer that has no group. Raises UnknownTopicOrPartitionError, ClientError."""
    numbers = consumer.partitions_for(request.topic)
    if request.partition is not None:
        numbers = [request.partition]
    chosen = [TopicPartition(request.topic, number) for number in numbers[:PARTITIONS_MAX]]
    begins = consumer.beginning_offsets(chosen)
    ends = consumer.end_offsets(chosen)
    starts = _starts(consumer, request, begins, ends)
    for partition, offset in starts.items():
        consumer.add_topic(partition.topic, partition.partition)
        consumer.seek(partition, offset)
    reading = _Reading(request, starts, ends, steady)
    ending = reading.run(consumer)
    return Browsed(
        tuple(reading.shown()),
        ending,
        reading.looked_at,
        _by_number(starts),
        _by_number(reading.positions),
        _by_number(begins),
        _by_number(ends),
        len(numbers) - len(chosen),
    )


def _starts(
    consumer: Consumer,
    request: BrowseRequest,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    match request.place:
        case BrowsePlace.OLDEST:
            wanted = dict(begins)
        case BrowsePlace.NEWEST if request.key is not None:
            wanted = dict(begins)  # Nobody knows how far back the key's last message is.
        case BrowsePlace.NEWEST:
            wanted = {key: end - request.count for key, end in ends.items()}
        case BrowsePlace.OFFSET:
            wanted = dict.fromkeys(ends, request.at)
        case BrowsePlace.TIME:
            found = consumer.offsets_for_times(dict.fromkeys(ends, request.at))
            wanted = {key: ends[key] if first is None else first.offset for key, first in found.items()}
    return {key: min(max(offset, begins[key]), ends[key]) for key, offset in wanted.items()}


class _Reading:
    """Reads until a bound is reached, and keeps what matches."""

    def __init__(
        self,
        request: BrowseRequest,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        steady: Callable[[], float],
    ) -> None:
        self.looked_at = 0
        self.positions = dict(starts)
        self._request = request
        self._ends = ends
        self._steady = steady
        self._records: list[ConsumerRecord] = []
        self._kept_bytes = 0
        self._scanned_bytes = 0
        # The newest messages of all partitions are only known when those of each have been read.
        self._is_newest = request.place is BrowsePlace.NEWEST
        self._kept_max = request.count * (len(starts) or 1) if self._is_newest else request.count

    def run(self, consumer: Consumer) -> Ending:
        until_s = self._steady() + WITHIN_S
        while True:
            if all(offset >= self._ends[key] for key, offset in self.positions.items()):
                return Ending.END
            if len(self._records) >= self._kept_max and not self._slides:
                return Ending.COUNT
            if self._kept_bytes >= BYTES_MAX or self._scanned_bytes >= SCANNED_BYTES_MAX:
                return Ending.BYTES
            left_s = until_s - self._steady()
            if left_s <= 0:
                return Ending.TIME
            self._take(consumer.poll(max(1, min(500, int(left_s * 1000))), 500))
            self._follow(consumer)

    def shown(self) -> list[ConsumerRecord]:
        """The messages to show, by time, then partition and offset; in one partition by offset."""
        found = self._records
        if len(self.positions) > 1:
            found = sorted(found, key=lambda each: (each.timestamp, each.partition, each.offset))
        count = self._request.count
        return found[-count:] if self._is_newest else found[:count]

    @property
    def _slides(self) -> bool:
        """Whether later messages take the places of earlier ones: the newest with a key are wanted."""
        return self._is_newest and self._request.key is not None

    def _take(self, records: list[ConsumerRecord]) -> None:
        key = self._request.key
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            if record.offset >= self._ends[partition]:
                continue  # Written after the page was asked for.
            if len(self._records) >= self._kept_max and not self._slides:
                return  # The position stays at the first message that is not shown.
            self.looked_at += 1
            self.positions[partition] = record.offset + 1
            size = _size(record)
            self._scanned_bytes += size
            if key is not None and record.key != key:
                continue
            self._records.append(record)
            self._kept_bytes += size
            if self._slides and len(self._records) > self._request.count:
                self._kept_bytes -= _size(self._records.pop(0))

    def _follow(self, consumer: Consumer) -> None:
        """Count offsets without messages as read: those of markers, and those that compaction has removed."""
        if len(self._records) >= self._kept_max and not self._slides:
            return
        for partition in self.positions:
            if partition in self._ends and self.positions[partition] < self._ends[partition]:
                offset = consumer.position(partition)
                self.positions[partition] = max(self.positions[partition], offset)


def _size(record: ConsumerRecord) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def _by_number(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {key.partition: offset for key, offset in offsets.items()}
