"""The arguments of consumers, and the shapes that users of other clients write first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast_log.clients.arguments import (
    A_FUNCTION,
    A_NAME,
    A_PARTITION,
    A_TEXT,
    AN_OFFSET,
    FOR_SIMULATIONS,
    INT_MAX,
    LONG_MAX,
    PARTITION_NUMBER,
    PROPERTIES,
    Kind,
    OutOfRange,
    Refused,
    an_instance,
    an_int,
    mapping,
    optional,
)
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.message import ConsumerRecord, OffsetAndMetadata

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_COMMIT_OFFSETS = "commit(offsets={TopicPartition('topic', 0): 5})"


def _take_topic_to_add(value: Any) -> str:
    if isinstance(value, tuple) and hasattr(value, "_fields") and len(value) == 2:
        raise Refused(f"write add_topic({value[0]!r}, {value[1]!r})")
    if isinstance(value, list | tuple | set | frozenset):
        raise Refused("call add_topic() for each topic")
    text: str = A_TEXT.take(value)
    return text


def _take_offset_to_seek(value: Any) -> int:
    if value is None:
        raise Refused(
            "where offsets_for_times() has None, no record is as late, and seek_to_end(partition) is meant; "
            "where committed() has None, nothing is committed"
        )
    if isinstance(value, ConsumerRecord):
        raise Refused("record.offset reads the record again, record.offset + 1 goes on behind it")
    if isinstance(value, tuple):
        value = getattr(value, "offset", value)
    try:
        offset: int = AN_OFFSET.take(value)
    except OutOfRange:
        meant = {_LATEST: "write seek_to_end(partition)", _EARLIEST: "write seek_to_beginning(partition)"}
        raise OutOfRange(meant.get(value, "")) from None
    return offset


def _take_offset_to_commit(value: Any) -> OffsetAndMetadata:
    if isinstance(value, ConsumerRecord):
        raise Refused("write record.offset + 1, the offset of the next record")
    offset = value.offset if isinstance(value, tuple) and hasattr(value, "offset") else value
    metadata, epoch = getattr(value, "metadata", None), getattr(value, "leader_epoch", None)
    try:
        number: int = AN_OFFSET.take(offset)
        text: str = A_TEXT.take("" if metadata is None else metadata)
        leader_epoch: int = _EPOCH.take(-1 if epoch is None or offset is value else epoch)
    except OutOfRange:
        raise OutOfRange("the offset of the next record is committed, an int from 0 on") from None
    except Refused:
        raise Refused from None
    return OffsetAndMetadata(number, text if offset is not value else "", leader_epoch)


def _take_committed_topic(value: Any) -> str | Mapping[Any, Any] | None:
    """What `commit` takes first: a topic, or as in other clients the offsets themselves."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        offsets: dict[Any, Any] = OFFSETS_TO_COMMIT.take(value)
        return offsets
    if isinstance(value, ConsumerRecord):
        place = f"TopicPartition({value.topic!r}, {value.partition})"
        raise Refused(f"to go on behind this record, write commit(offsets={{{place}: {value.offset + 1}}})")
    if isinstance(value, tuple) and hasattr(value, "_fields") and len(value) == 2:
        raise Refused(f"write commit({value[0]!r}, {value[1]!r}), or {_COMMIT_OFFSETS}")
    if not isinstance(value, str):
        raise Refused(f"write commit() for all that poll() has returned, or {_COMMIT_OFFSETS}")
    topic: str = A_NAME.take(value)
    return topic


def _take_listener(value: Any) -> Any:
    names = ("on_partitions_revoked", "on_partitions_assigned", "on_partitions_lost")
    missing = [name for name in names if not callable(getattr(value, name, None))]
    if missing or isinstance(value, type):
        raise Refused("derive a class from holdfast.RebalanceListener and give an object of it")
    return value


METHODS_OF_OTHER_CLIENTS: Final = {
    "subscribe": "add_topic(topic), once for each topic, or add_pattern(pattern)",
    "unsubscribe": "remove_topic(topic)",
    "assign": "add_topic(topic, partition), once for each partition",
    "consume": "poll(timeout_ms, max_records)",
    "commit_async": "commit()",
    "commit_sync": "commit()",
    "list_topics": "topics()",
    "get_watermark_offsets": "beginning_offsets([partition]) and end_offsets([partition])",
}
"""What to write instead of them."""

_EPOCH: Final = an_int("a leader epoch", -1, INT_MAX)
A_TOPIC_TO_ADD: Final = Kind("the name of a topic, a str", _take_topic_to_add)
A_PLACE_TO_SEEK: Final = Kind("an offset, an int from 0 on", _take_offset_to_seek)
AN_OFFSET_TO_COMMIT: Final = Kind("an offset (int) or an OffsetAndMetadata", _take_offset_to_commit)
OFFSETS: Final = mapping(A_PARTITION, AN_OFFSET, "{TopicPartition('topic', 0): 5}")
OFFSETS_TO_COMMIT: Final = mapping(A_PARTITION, AN_OFFSET_TO_COMMIT, "{TopicPartition('topic', 0): 5}")
TO_COMMIT: Final = Kind("the name of a topic, or a dict of offsets", _take_committed_topic)
A_TIME: Final = an_int(
    "a time in ms since 1970 (-1: the end, -2: the beginning, -3: the record with the latest timestamp)",
    _MAX_TIMESTAMP,
    LONG_MAX,
    lambda value: f"write int({value!r} * 1000) if it is in seconds" if isinstance(value, float) else "",
)
TIMES: Final = mapping(A_PARTITION, A_TIME, "{TopicPartition('topic', 0): 1700000000000}")
A_COUNT: Final = an_int("a number of records, an int from 0 on", 0, INT_MAX)
PARTITION_OR_ALL: Final = optional(PARTITION_NUMBER)
OF_CONSUMERS: Final = {
    "properties": PROPERTIES,
    "key_deserializer": optional(A_FUNCTION),
    "value_deserializer": optional(A_FUNCTION),
    "rebalance_listener": optional(Kind("a RebalanceListener", _take_listener)),
    "on_event": optional(A_FUNCTION),
    "fence": optional(an_instance(OwnerFence, "an OwnerFence, as Lease.fence() returns it")),
    "dead_letter": optional(A_FUNCTION),
    "network": FOR_SIMULATIONS["network"],
    "rng": FOR_SIMULATIONS["rng"],
}
"""What the constructors of consumers take."""
