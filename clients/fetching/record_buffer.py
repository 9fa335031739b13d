"""The last step to the application: what has been decoded and not been handed out yet."""

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
"""(topic, key or value) -> what the application wants in their place; not called for null."""


class RecordBuffer:
    """Records on their way from the fetcher to the application."""

    def __init__(
        self, fetcher: Fetcher, key_deserializer: Deserializer | None, value_deserializer: Deserializer | None
    ) -> None:
        self.records = 0
        """How many have been handed out."""
        self._fetcher = fetcher
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._leftover: deque[ConsumerRecord] = deque()

    def fill(self, limit: int) -> bool:
        """Have `limit` records at hand, if so many have been fetched; whether there are any."""
        try:
            while len(self._leftover) < limit:
                batch = next(self._fetcher.take(), None)
                if batch is None:
                    break
                self._leftover += self._records(batch)
        except BrokerError:
            if not self._leftover:  # Else these come first.
                raise
        return bool(self._leftover)

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Hand out what is at hand, at most `limit` records."""
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
        """Forget what is at hand of a partition."""
        if self._leftover:
            self._leftover = deque(record for record in self._leftover if not _is_of(record, key))

    def put_back(self, position: Position) -> None:
        """Have what is at hand of a partition be fetched again, when it is wanted."""
        first = self.first_offset(position.key)
        if first is not None:
            self.drop(position.key)
            position.go_to(first)

    def put_back_all(self) -> None:
        """The same for all partitions."""
        if self._leftover:
            for position in self._fetcher.positions.values():
                self.put_back(position)

    def first_offset(self, key: TopicPartition) -> int | None:
        """The first offset that is at hand of a partition."""
        return next((record.offset for record in self._leftover if _is_of(record, key)), None)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where each partition stands after what has been handed out, if known."""
        consumed = {
            key: OffsetAndMetadata(position.offset)
            for key, position in self._fetcher.positions.items()
            if position.offset is not None
        }
        for record in reversed(self._leftover):  # What comes first in a partition is looked at last.
            consumed[TopicPartition(record.topic, record.partition)] = OffsetAndMetadata(record.offset)
        return consumed


def _is_of(record: ConsumerRecord, key: TopicPartition) -> bool:
    return record.partition == key.partition and record.topic == key.topic


def _deserialized(column: Iterable[bytes | None], topic: str, deserializer: Deserializer) -> Iterable[Any]:
    return [None if item is None else deserializer(topic, item) for item in column]
