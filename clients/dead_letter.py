"""Stores the records that a consumer cannot read in a topic of their own.

with Producer(properties) as producer:
    consumer = Consumer(
        {**properties, "deserialization.errors": "dead-letter"},
        value_deserializer=parse,
        dead_letter=DeadLetterTopic(producer, "flights-unreadable"),
    )
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast_log.clients.arguments import A_NAME, A_WAIT, Kind, Refused, checked
from holdfast_log.clients.errors import RecordDeserializationError
from holdfast_log.clients.message import Message

if TYPE_CHECKING:
    from holdfast_log.clients.producer import Producer

_TIMEOUT_MS = 120_000
_PREFIX = "__holdfast.errors."


def _take_producer(value: Any) -> Any:
    if isinstance(value, type) or not callable(getattr(value, "send", None)):
        raise Refused("write DeadLetterTopic(producer, 'topic')")
    return value


_A_PRODUCER = Kind("a Producer", _take_producer)


class DeadLetterTopic:
    """Writes each unreadable record to a topic, as it is, and waits until it is acknowledged.

    Key, value, timestamp and headers are the record's. Headers are added, as text: `__holdfast.errors.topic`,
    `.partition` and `.offset` say where the record came from; `.part` (key or value), `.exception` and
    `.message` say why it could not be read. The producer must leave bytes unchanged, as it does without
    serializers, and `acks` should be `all`. A record may be written more than once, because the consumer
    tries again after a failure.
    """

    @checked(producer=_A_PRODUCER, topic=A_NAME, timeout_ms=A_WAIT)
    def __init__(self, producer: Producer, topic: str, timeout_ms: int = _TIMEOUT_MS) -> None:
        self._producer = producer
        self._topic = topic
        self._timeout_ms = timeout_ms

    def __call__(self, error: RecordDeserializationError) -> None:
        """Write the record of `error`.

        Raises the producer's error, and RequestTimeoutError if there is no outcome within `timeout_ms`.
        """
        record, cause = error.record, error.__cause__
        why = {
            "topic": record.topic,
            "partition": str(record.partition),
            "offset": str(record.offset),
            "part": error.part,
            "exception": type(cause).__name__,
            "message": str(cause),
        }
        response = self._producer.send(
            Message(
                self._topic,
                key=record.key,
                value=record.value,
                timestamp=max(record.timestamp, 0),
                headers=(
                    *record.headers,
                    *((_PREFIX + name, text.encode("utf-8", "replace")) for name, text in why.items()),
                ),
            )
        )
        response.result(self._timeout_ms)
