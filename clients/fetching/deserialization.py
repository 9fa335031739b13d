"""Applies an application's deserializers to fetched batches.

A deserializer that raises for one record must cost no other record. The batch is then read record by record,
and `deserialization.errors` decides about the unreadable one: the consumer stops before it, or skips it, or
has it dead-lettered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from holdfast_log.clients.errors import RecordDeserializationError
from holdfast_log.clients.feedback.events import Events, RecordDeadLettered, RecordSkipped
from holdfast_log.clients.fetching.fetched import FetchedBatch
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol.records import rows

Deserializer: TypeAlias = Callable[[str, bytes], Any]
"""Takes the topic and a key or value, and returns what the application gets. Not called for null.

Called again for records that were deserialized before, when a later record of their batch is unreadable.
"""
DeadLetter: TypeAlias = Callable[[RecordDeserializationError], object]
"""Stores an unreadable record elsewhere. Returns once the record is safe there, and raises if it is not."""


class Unreadable(enum.Enum):
    """What happens to a record that a deserializer cannot read: the values of `deserialization.errors`."""

    STOP = "stop"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


class Deserialization:
    """The deserializers of a consumer, and the application's choice for the records that they cannot read."""

    def __init__(
        self,
        key_deserializer: Deserializer | None,
        value_deserializer: Deserializer | None,
        choice: Unreadable,
        dead_letter: DeadLetter | None,
        events: Events,
    ) -> None:
        self.choice = choice
        self.skipped = 0
        """Number of unreadable records that were skipped."""
        self.dead_lettered = 0
        """Number of unreadable records that `dead_letter` has stored."""
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._dead_letter = dead_letter
        self._events = events

    def records(self, batch: FetchedBatch) -> list[ConsumerRecord]:
        """All records of a batch. Raises what a deserializer raises."""
        columns = batch.columns
        keys: list[Any] = columns.keys
        values: list[Any] = columns.values
        if self._key_deserializer is not None:
            keys = _deserialized(keys, batch.topic, self._key_deserializer)
        if self._value_deserializer is not None:
            values = _deserialized(values, batch.topic, self._value_deserializer)
        return _as_records(batch, keys, values)

    def one_by_one(
        self, batch: FetchedBatch
    ) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        """The readable records of a batch, up to the first one before which the consumer must stop, if there
        is one; its error is returned too."""
        records: list[ConsumerRecord] = []
        for raw in _as_records(batch, batch.columns.keys, batch.columns.values):
            try:
                records.append(self._read(raw))
            except RecordDeserializationError as error:
                if not self._may_pass(error):
                    return records, error
        return records, None

    def _read(self, raw: ConsumerRecord) -> ConsumerRecord:
        part = "key"
        try:
            key = _applied(self._key_deserializer, raw.topic, raw.key)
            part = "value"
            value = _applied(self._value_deserializer, raw.topic, raw.value)
        except Exception as error:
            raise RecordDeserializationError(raw, part, f"{type(error).__name__}: {error}") from error
        return raw._replace(key=key, value=value)

    def _may_pass(self, error: RecordDeserializationError) -> bool:
        """Do what the application has chosen; returns whether the consumer may go on after the record."""
        record = error.record
        if self.choice is Unreadable.SKIP:
            self.skipped += 1
            self._events.note(RecordSkipped(record.topic, record.partition, record.offset, error))
            return True
        if self.choice is Unreadable.STOP or self._dead_letter is None:
            return False
        try:
            self._dead_letter(error)
        except Exception as failure:
            error.dead_letter_error = failure
            return False
        self.dead_lettered += 1
        self._events.note(RecordDeadLettered(record.topic, record.partition, record.offset, error))
        return True


def _as_records(batch: FetchedBatch, keys: list[Any], values: list[Any]) -> list[ConsumerRecord]:
    return rows(
        ConsumerRecord,
        batch.topic,
        batch.partition,
        batch.columns,
        keys,
        values,
        batch.timestamp_type,
        batch.leader_epoch,
    )


def _deserialized(column: Iterable[bytes | None], topic: str, deserializer: Deserializer) -> list[Any]:
    return [None if item is None else deserializer(topic, item) for item in column]


def _applied(deserializer: Deserializer | None, topic: str, item: bytes | None) -> Any:
    return item if deserializer is None or item is None else deserializer(topic, item)
