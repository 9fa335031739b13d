"""Decoded records that the application has not got yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import repeat

from holdfast_log.clients.fetching.deserialization import Deserialization, Unreadable
from holdfast_log.clients.fetching.fetched import EncodedBatch, FetchedBatch
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.message import ConsumerRecord, OffsetAndMetadata
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition

_pop_left = deque.popleft


class RecordBuffer:
    """Takes batches from the fetcher and hands their records to the application."""

    def __init__(self, fetcher: Fetcher, deserialization: Deserialization) -> None:
        self.records = 0
        """Number of records returned to the application."""
        self.deserialization = deserialization
        self._fetcher = fetcher
        self._leftover: deque[ConsumerRecord] = deque()
        self._stopped: deque[Position] = deque()
        """Positions that stand before a record that cannot be read, in the order in which they report it."""
        self._has_reported = False
        """Whether the last `fill` raised for such a record. Then records of other partitions come next."""

    def fill(self, limit: int) -> bool:
        """Decode batches until `limit` records are buffered; returns whether any are.

        When no record is buffered, raises BrokerError for a damaged batch, or RecordDeserializationError for
        a record that cannot be read.
        """
        if self._has_reported or not self._may_report():
            until_ms = self._fetcher.stored.take_until_ms()
            try:
                while (
                    len(self._leftover) < limit
                    and (batch := next(self._fetcher.stored.take(until_ms), None)) is not None
                ):
                    self._deserialize(batch)
            except BrokerError:
                if not self._leftover:  # Otherwise the buffered records come first.
                    raise
        if self._leftover:
            self._has_reported = False
        elif self._may_report():
            self._report()
        return bool(self._leftover)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Remove and return at most `limit` buffered records."""
        leftover = self._leftover
        count = min(limit, len(leftover))
        self.records += count
        if count < len(leftover):
            # Without a Python call, or a step of a loop in Python, for each record.
            return list(map(_pop_left, repeat(leftover, count)))
        taken = list(leftover)
        leftover.clear()
        return taken

    def give_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Buffer the records again that the last `take` has removed: the application did not get them.

        Those of partitions that are not read any more are left out.
        """
        positions = self._fetcher.positions
        kept = [record for record in records if TopicPartition(record.topic, record.partition) in positions]
        self._leftover.extendleft(reversed(kept))
        self.records -= len(records)

    def give_back_batches(self, batches: Sequence[FetchedBatch | EncodedBatch]) -> None:
        """Store whole batches again that the application did not get, though they were taken."""
        for batch in batches:
            self.records -= batch.header.record_count if isinstance(batch, EncodedBatch) else len(batch)
        self._fetcher.stored.give_back()

    # Records that cannot be read ----------------------------------------------------------------------

    def _deserialize(self, batch: FetchedBatch) -> None:
        try:
            try:
                records = self.deserialization.records(batch)
            except Exception:
                self._deserialize_one_by_one(batch)
            else:
                self._leftover += records
        except BaseException:
            # The application was interrupted, by Ctrl-C for example: nothing of the batch counts as taken.
            position = self._position(batch)
            position.go_to(batch.columns.offsets[0])
            self.put_back(position)
            raise

    def _deserialize_one_by_one(self, batch: FetchedBatch) -> None:
        records, error = self.deserialization.one_by_one(batch)
        self._leftover += records
        if error is not None:
            position = self._position(batch)
            position.go_to(error.offset)
            position.unreadable = error
            self._stopped.append(position)

    def _position(self, batch: FetchedBatch) -> Position:
        return self._fetcher.positions[TopicPartition(batch.topic, batch.partition)]

    def _may_report(self) -> bool:
        """Whether a partition that is not suspended stands before an unreadable record; it is put first."""
        for _ in range(len(self._stopped)):
            position = self._stopped[0]
            if position.unreadable is None or self._fetcher.positions.get(position.key) is not position:
                self._stopped.popleft()  # The application, or the group, has decided where to continue.
            elif position.is_suspended:
                self._stopped.rotate(-1)
            else:
                return True
        return False

    def _report(self) -> None:
        position = self._stopped[0]
        error = position.unreadable
        assert error is not None
        self._has_reported = True
        self._stopped.rotate(-1)
        if self.deserialization.choice is Unreadable.DEAD_LETTER:
            position.unreadable = None  # The record is fetched again, and its dead letter is tried again.
        raise error

    # Positions ----------------------------------------------------------------------------------------

    def drop(self, key: TopicPartition) -> None:
        """Drop a partition's buffered records."""
        if self._leftover:
            self._leftover = deque(record for record in self._leftover if not _is_of(record, key))

    def put_back(self, position: Position) -> None:
        """Drop a partition's buffered records, and set its position back to the first of them."""
        first = self.first_offset(position.key)
        if first is not None:
            self.drop(position.key)
            position.go_to(first)

    def put_back_all(self) -> None:
        """Drop all buffered records, and set the positions back to the first of each partition.

        Partitions that stand before a record that cannot be read are fetched again too, for their bytes.
        """
        for stopped in self._stopped:
            stopped.unreadable = None
        self._stopped.clear()
        if self._leftover:
            for position in self._fetcher.positions.values():
                self.put_back(position)

    def first_offset(self, key: TopicPartition) -> int | None:
        """The offset of a partition's first buffered record; None if none is buffered."""
        return next((record.offset for record in self._leftover if _is_of(record, key)), None)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offset after the last record returned, of each partition whose position is known."""
        consumed = {
            key: OffsetAndMetadata(position.offset)
            for key, position in self._fetcher.positions.items()
            if position.offset is not None
        }
        for record in reversed(self._leftover):  # The first record of a partition is looked at last.
            consumed[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(record.offset)
        return consumed


def _is_of(record: ConsumerRecord, key: TopicPartition) -> bool:
    return record.partition == key.partition and record.topic == key.topic
