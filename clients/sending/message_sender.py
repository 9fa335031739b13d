"""The part of a producer that the application's threads run: messages become bytes and are queued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

from holdfast_log.clients.arguments import (
    A_COLUMN,
    A_NAME,
    A_TIMESTAMP,
    A_UUID,
    AN_OFFSET,
    PARTITION_NUMBER,
    checked,
    optional,
)
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.message import NO_VERSION, UNKNOWN_OFFSET, Message
from holdfast_log.clients.sending.arguments import (
    A_LEADER_EPOCH,
    A_MESSAGE,
    AN_APPEND_ID,
    GUARDS,
    check_message,
    plain_headers,
)
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.columns import RecordColumns, as_bytes, in_chunks
from holdfast_log.clients.sending.engine import SendingEngine
from holdfast_log.clients.sending.expectations import (
    ANY_EPOCH,
    NO_GUARDS,
    Expectation,
    KeyExpectation,
    guards_in,
)
from holdfast_log.clients.sending.queues import PartitionQueue, Queues, TopicQueues
from holdfast_log.clients.sending.record import SerializedRecord
from holdfast_log.clients.sending.responses import (
    BulkResponse,
    GroupResponse,
    RecordResponse,
    SendResponse,
    SpanResponse,
)
from holdfast_log.protocol.record_codec import encode_headers
from holdfast_log.protocol.records import APPEND_ID_HEADER, TYPICAL_OVERHEAD, BatchBuilder
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.send_fields import SenderFields, compiled
from holdfast_log.protocol.topic_partition import TopicPartition

Serializer: TypeAlias = Callable[[str, Any], bytes | None]
"""(topic, key or value) -> bytes, or None for null. `send` passes on whatever it raises."""

_TIMESTAMP_END = 2**63
_PLAIN_TYPES = {bytes, NoneType}


def to_bytes(topic: str, value: Any) -> bytes | None:
    """The default serializer of keys and values: bytes unchanged, text as UTF-8, None as null.

    Raises TypeError for anything else.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError(
        f"{topic}: keys and values are bytes, str or None, not {type(value).__name__}; "
        "for other types give the producer a key_serializer or value_serializer"
    )


class MessageSender(SenderFields):
    """Serializes messages and puts them in the queues of a SendingEngine. Any number of threads may call it.

    The calling thread serializes keys, because the partition follows from them, and values, because a message
    must not change once it is sent. `is_idempotent` is the setting `enable.idempotence`.
    """

    def __init__(
        self,
        engine: SendingEngine,
        key_serializer: Serializer,
        value_serializer: Serializer,
        *,
        is_idempotent: bool,
    ) -> None:
        self._accumulator = engine.accumulator
        self._network = engine.network
        self._lock = engine.lock
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._has_serializers = key_serializer is not to_bytes or value_serializer is not to_bytes
        self._is_idempotent = is_idempotent
        if not self._has_serializers:
            engine.accumulator.serve(self)

    def send(self, *messages: Message) -> SendResponse:
        """Queue messages and return at once; the response gets their outcome.

        Waits only if `buffer.memory` is used up, for at most `max.block.ms`; a message for which there is no
        room even then fails with BufferFullError in its response. Raises ClosedError, TypeError or ValueError
        for a message that no record can hold, which names the field and harms no other message, and the error
        that has made this producer unusable, such as ProducerFencedError.

        A message with an `expected_version` is written only if the last record with its key is at that
        offset; if not it fails with KeyVersionMismatchError, which has the present version. Other messages
        do not depend on it. It needs `enable.idempotence`, a key, and a topic with key.versions=true.
        """
        if len(messages) != 1:
            if not messages:
                raise ValueError("no message to send")
            for message in messages:
                A_MESSAGE.check("send()", "each argument", message)
            return GroupResponse(tuple([self.send(message) for message in messages]))
        message = messages[0]
        try:
            if (
                message.offset != UNKNOWN_OFFSET
                or message.expected_version is not None
                or message.topic_id is not None
            ):
                return self._send_conditional(message)
            topic, key, value, headers = message.topic, message.key, message.value, message.headers
            if self._has_serializers or type(value) is not bytes or key is not None:
                # Plain names, because they are faster to call than attributes.
                serialize_key, serialize_value = self._key_serializer, self._value_serializer
                key = as_bytes(topic, serialize_key(topic, key))
                value = as_bytes(topic, serialize_value(topic, value))
            size = TYPICAL_OVERHEAD
            if key is not None:
                size += len(key)
            if value is not None:
                size += len(value)
            tail = b""
            if headers:
                tail = encode_headers(plain_headers(headers))
                size += len(tail)
            timestamp = self._network.wall_ms() if message.timestamp is None else _time(message.timestamp)
            record = (timestamp, key, value, tail, size)
            return self._accumulator.enqueue(topic, message.partition, record)
        except Exception:
            check_message(message)  # Raises with what to write, if the message is the reason.
            raise

    @checked(
        expected_offset=AN_OFFSET,
        messages=A_MESSAGE,
        last_leader_epoch=A_LEADER_EPOCH,
        guards=GUARDS,
        append_id=AN_APPEND_ID,
        topic_id=A_UUID,
        unused_before=optional(AN_OFFSET),
    )
    def send_at(
        self,
        expected_offset: int,
        *messages: Message,
        last_leader_epoch: int = ANY_EPOCH,
        guards: Mapping[TopicPartition, int] = NO_GUARDS,
        append_id: bytes | UUID | None = None,
        topic_id: UUID = ZERO_UUID,
        unused_before: int | None = None,
    ) -> SendResponse:
        """Queue messages of one partition, to be written only if its log ends at `expected_offset` (KIP-27).

        The messages are one batch, written all or none, even if it is larger than `batch.size`. Messages
        that together are larger than `max.request.size` fail with RecordTooLargeError before any of them is
        sent; if the broker allows less (`max.message.bytes`), it writes none of them.

        With a `last_leader_epoch`, the record before the first message must have that leader epoch. If the
        log ends elsewhere the messages fail with OffsetMismatchError, which has the actual end, and so do all
        other messages with an `offset` that wait for the partition. Raises ConfigError without
        `enable.idempotence`, UnsupportedRequestError if the broker is not Holdfast's.

        `guards` are other partitions and the offsets at which their logs must end; nothing is written to
        them. If one ends elsewhere the messages fail with GuardMismatchError, which has the actual ends. One
        broker judges all partitions: with a guard that another broker leads they fail with
        GuardElsewhereError.

        `append_id`, 16 bytes, names this append for ever. If any process has already appended with this id,
        nothing is written: the response succeeds with the offset of that append, and `is_repeat` is true. The
        first message gets a header `holdfast.append.id`. The messages must be the same each time: with other
        keys, values or headers the broker answers INVALID_REQUEST.

        A broker forgets old ids (`append.ids.max`). `unused_before` is an offset before which the partition
        has no append with this id, for example the end of the log when the id was made. If the broker does
        not remember all ids from there on, it cannot tell whether the id was used: the messages are not
        written, and fail with AppendIdUnknownError, which says what to do. Always name it: without it the
        whole log counts, and a broker that has forgotten any id of the partition refuses every new one. After
        OffsetMismatchError the same append may be sent at the error's `next_offset`, with the same
        `unused_before`.

        `topic_id` is the id of the topic to which the expected offset belongs, as `Admin.describe_topics`
        returns it. If the topic was deleted and created again since then, the messages fail with
        TopicRecreatedError. By default it is the topic that has the name when this producer first sends a
        conditional message to the partition.
        """
        if not messages:
            raise ValueError("no message to send")
        for message in messages:
            check_message(message)
        if any(
            (other.topic, other.partition) != (messages[0].topic, messages[0].partition) for other in messages
        ):
            raise ValueError("all messages must name the same topic and partition")
        topic, partition = messages[0].topic, messages[0].partition
        all_guards = () if partition is None else guards_in(TopicPartition(topic, partition), guards)
        name = append_id or b""
        assert isinstance(name, bytes)  # AN_APPEND_ID has made it of a UUID.
        _check_unused_before(unused_before, expected_offset, name)
        expected = Expectation(
            expected_offset, last_leader_epoch, all_guards, name, topic_id, unused_before or 0
        )
        responses = self._send_at(expected, messages)
        return responses[0] if len(responses) == 1 else GroupResponse(tuple(responses))

    def _send_conditional(self, message: Message) -> SendResponse:
        check_message(message)
        if message.offset != UNKNOWN_OFFSET:
            expected = Expectation(message.offset, topic_id=message.topic_id or ZERO_UUID)
            return self._send_at(expected, (message,))[0]
        if message.expected_version is not None:
            return self._send_versioned(message, message.expected_version)
        raise ValueError(
            f"{message.topic}: topic_id says to which topic an offset belongs: give the message an offset or "
            "an expected_version too"
        )

    def _send_at(self, expected: Expectation, messages: Sequence[Message]) -> Sequence[SendResponse]:
        topic, partition = messages[0].topic, messages[0].partition
        if expected.offset < 0 or partition is None:
            place = f"offset {expected.offset} of partition {partition}"
            raise ValueError(f"{place}: a conditional message must name both")
        if not self._is_idempotent:
            raise ConfigError(
                "a message with an offset needs enable.idempotence=true, or its retry would fail"
            )
        if expected.append_id:
            headers = ((APPEND_ID_HEADER, expected.append_id), *messages[0].headers)
            messages = (replace(messages[0], headers=headers), *messages[1:])
        records = [self._record(message) for message in messages]
        return self._accumulator.enqueue_at(topic, partition, expected, records)

    def _send_versioned(self, message: Message, expected_version: int) -> SendResponse:
        if not self._is_idempotent:
            raise ConfigError(
                "a message with an expected version needs enable.idempotence=true, or its retry would fail"
            )
        record = self._record(message)
        if record[1] is None or expected_version < NO_VERSION:
            raise ValueError(
                f"{message.topic}: a message that expects version {expected_version} needs a key, and a "
                f"version is an offset or {NO_VERSION}"
            )
        expected = KeyExpectation(expected_version, message.topic_id or ZERO_UUID)
        return self._accumulator.enqueue_versioned(message.topic, message.partition, expected, record)

    def _record(self, message: Message) -> SerializedRecord:
        key = as_bytes(message.topic, self._key_serializer(message.topic, message.key))
        value = as_bytes(message.topic, self._value_serializer(message.topic, message.value))
        headers = plain_headers(message.headers)
        tail = encode_headers(headers) if headers else b""
        size = TYPICAL_OVERHEAD + len(key or b"") + len(value or b"") + len(tail)
        timestamp = self._network.wall_ms() if message.timestamp is None else _time(message.timestamp)
        return timestamp, key, value, tail, size

    @checked(
        topic=A_NAME,
        values=A_COLUMN,
        keys=optional(A_COLUMN),
        partition=optional(PARTITION_NUMBER),
        timestamp=optional(A_TIMESTAMP),
    )
    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> BulkResponse:
        """Queue many messages for one topic, at a fraction of the cost of `send` for each.

        `values` and `keys`, which must have equal lengths, may be Arrow columns. The response has one
        `SpanResponse` for each batch, or part of one, in `responses`: in the order of the messages, or with
        keys in the order of messages within each partition. `timestamp`, in ms, is for all. Raises what
        `send` raises, and ValueError for no message at all or for too few or too many keys; the messages
        before the mismatch may have been queued then.
        """
        timestamp = self._network.wall_ms() if timestamp is None else _time(timestamp)
        responses: list[SpanResponse] = []
        for some_values, some_keys in in_chunks(values, keys):
            value_column = self._serialized(topic, some_values, self._value_serializer)
            key_column = None
            if some_keys is not None:
                key_column = self._serialized(topic, some_keys, self._key_serializer)
            columns = RecordColumns(timestamp, key_column, value_column)
            self._accumulator.enqueue_columns(topic, partition, columns, responses)
        if not responses:
            raise ValueError("no message to send")
        return BulkResponse(tuple(responses))

    def _serialized(self, topic: str, column: list[Any], serializer: Serializer) -> list[bytes | None]:
        if serializer is to_bytes and set(map(type, column)) <= _PLAIN_TYPES:
            return column
        return [as_bytes(topic, serializer(topic, item)) for item in column]


send_in_python = MessageSender.send
"""`send` where nothing is compiled. If it is, this function gets every message that is not usual."""

if compiled is not None:
    # Queues the usual message in one call.
    MessageSender.send = compiled.bind(  # type: ignore[method-assign]
        send_in_python, RecordResponse, Batch, BatchBuilder, TopicQueues, PartitionQueue, Queues
    )


def _check_unused_before(unused_before: int | None, expected_offset: int, append_id: bytes) -> None:
    """Raises ValueError for an offset that is none, or that no append needs."""
    if unused_before is None:
        return
    if not append_id:
        raise ValueError("unused_before says something about an append_id, and there is none")
    if not 0 <= unused_before <= expected_offset:
        raise ValueError(
            f"unused_before={unused_before}: it is where the log ended when the append id was made, or "
            f"before, and at most the expected offset {expected_offset}"
        )


def _time(timestamp_ms: int) -> int:
    """The timestamp of a message. Raises TypeError or ValueError for one that no record can have."""
    if type(timestamp_ms) is int and 0 <= timestamp_ms < _TIMESTAMP_END:
        return timestamp_ms
    timestamp: int = A_TIMESTAMP.check("send()", "the timestamp of a message", timestamp_ms)
    return timestamp
