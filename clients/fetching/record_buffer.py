"""Decoded records that the application has not got yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, TypeAlias

from clients.fetching.fetched import FetchedBatch
from clients.fetching.fetcher import Fetcher
from clients.fetching.positions import Position
from clients.message import ConsumerRecord, OffsetAndMetadata
from protocol.errors import BrokerError
from protocol.topic_partition import TopicPartition

Deserializer: TypeAlias = Callable[[str, bytes], Any]
"""Takes the topic and a key or value, and returns what the application gets. Not called for null."""


class RecordBuffer:
    """Takes batches from the fetcher and hands their records to the application."""

    def __init__(
        self, fetcher: Fetcher, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> None:
        self.records = 0
        """Number of records returned to the application."""
        self._fetcher = fetcher
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._leftover: deque[ConsumerRecord] = deque()

    def fill(self, limit: int) -> bool:
        """Decode batches until `limit` records are buffered; returns whether any are."""
        try:
            while len(self._leftover) < limit:
                batch = next(self._fetcher.take(), None)
                if batch is None:
                    break
                self._leftover += self._records(batch)
        except BrokerError:
            if not self._leftover:  # Otherwise the buffered records come first.
                raise
        return bool(self._leftover)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Remove and return at most `limit` buffered records."""
        count = min(limit, len(self._leftover))
        self.records += count
        return [self._leftover.popleft() for _ in range(count)]

    def _records(self, batch: FetchedBatch) -> Iterable[ConsumerRecord]:
        columns = batch.columns
        keys: Iterable[Any] = columns.keys
        values: Iterable[Any] = columns.values
        if self._key_deserializer is not None:
            keys = _deserialized(keys, batch.topic, self._key_deserializer)
        if self._value_deserializer is not None:
            values = _deserialized(values, batch.topic, self._value_deserializer)
        fields = zip(
            repeat(batch.topic),
            repeat(batch.partition),
            columns.offsets,
            columns.timestamps,
            keys,
            values,
            repeat(()) if columns.headers is None else columns.headers,
            repeat(batch.timestamp_type),
            repeat(batch.leader_epoch),
            strict=False,
        )
        return map(ConsumerRecord._make, fields)

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
        """Drop all buffered records, and set the positions back to the first of each partition."""
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


def _deserialized(column: Iterable[bytes | None], topic: str, deserializer: Deserializer) -> Iterable[Any]:
    return [None if item is None else deserializer(topic, item) for item in column]
