"""The values that applications hand to producers and get from consumers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from inspect import signature
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

from holdfast_log.protocol.batches import TimestampType
from holdfast_log.protocol.records import Headers
from holdfast_log.protocol.send_fields import MessageFields, compiled
from holdfast_log.protocol.topic_partition import TopicPartition

UNKNOWN_OFFSET = -1
NO_VERSION = -1
"""The version of a key that has no record."""


class OffsetAndMetadata(NamedTuple):
    """How far a group has read a partition: the offset of the next record, and metadata of its own."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of partitions by their topics."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


@dataclass(slots=True)
class Message(MessageFields):
    """A message to be sent.

    `key` and `value` are what the producer's serializers take: bytes, text or None by default. Without a
    `partition` the partitioner chooses one. `timestamp` is in ms since the epoch; None means now. `offset` is
    the offset at which the message must be written (KIP-27), -1 for any. `expected_version` is the offset at
    which the last record with the message's key must be, `NO_VERSION` if there must be none, None for any.
    `topic_id` is the id of the topic to which that offset belongs, as `Admin.describe_topics` returns it: if
    the topic was deleted and created again since, the message fails with TopicRecreatedError. None means the
    topic that has the name when the producer first sends a conditional message to the partition.
    """

    topic: str
    key: Any = None
    value: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()
    offset: int = UNKNOWN_OFFSET
    expected_version: int | None = None
    topic_id: UUID | None = None


def _fill_compiled(module: ModuleType) -> None:
    """Let the compiled module fill messages. The dataclass's own __init__ remains for calls with wrong
    arguments, and its signature for help()."""
    names = tuple(field.name for field in fields(Message))
    defaults = tuple(None if field.default is MISSING else field.default for field in fields(Message))
    module.bind_message(Message, names, defaults)
    type.__setattr__(Message, "__signature__", signature(Message))
    type.__delattr__(Message, "__init__")  # From here on it is that of MessageFields.


if compiled is not None:
    _fill_compiled(compiled)


class ConsumerRecord(NamedTuple):
    """A message as a consumer gets it.

    A tuple, because consumers make many of them at a time. `timestamp` is in ms since the epoch, set by the
    producer or the broker as `timestamp_type` says; `leader_epoch` is that of the leader that wrote it.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: Headers = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a sent message was written. `offset` is -1 if the broker did not answer it (acks=0)."""

    topic: str
    partition: int
    offset: int
    timestamp: int
