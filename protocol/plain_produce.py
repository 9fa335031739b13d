"""The usual produce request: the check of its batch, the assignment of the offset, and its acknowledgement.

A plain batch is the only one of its append, keeps its producer's timestamps, and has no mark: no transaction,
no append id, no flag that only brokers set. `protocol.batches` checks every batch and explains the layout.

The functions are in the compiled `protocol._produce_codec` if it is installed, else here; the environment
variable HOLDFAST_PURE_PYTHON selects the latter. Both check the records of a batch that is not compressed, as
`protocol.record_validation` does; those of a compressed one are for the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from holdfast_log.protocol import batches
from holdfast_log.protocol.batches import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
)
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.frames import SIZE, Part, join_parts
from holdfast_log.protocol.headers import encode_response
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch
from holdfast_log.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast_log.protocol.record_validation import validate
from holdfast_log.protocol.wire import DECODE_ERRORS, MalformedMessage, read_uvarint

SuccessfulAppend: TypeAlias = tuple[str, int, int, int, int]
"""An append that has succeeded: its topic and partition, the offset of its first record, the log append time
in ms (-1: the records keep their producer's) and the log start offset."""

_NO_LEADER = LeaderIdAndEpoch()
"""Shared by all responses; never modified."""

_KNOWN_FORMS = 1024
"""Number of acknowledgements whose form is remembered: one for each partition and version."""
_CORRELATION_BYTES = 4
_FLEXIBLE_FROM = 9
"""The first version with compact lengths and tagged fields."""
_HEAD, _PARTITION = struct.Struct(">hhiih"), struct.Struct(">iii")
"""Up to a topic's name, and from there to the records: the lengths before them included."""
_COMPACT_HEAD, _COMPACT_PARTITION = struct.Struct(">BhiBB"), struct.Struct(">Bi")
_NO_TAGS = bytes(3)
"""The tagged fields of a partition, its topic and the request: none."""
_SAID_LATER = b"\x80" * 8
"""Stands for a number while the form of an acknowledgement is made. No name has these bytes, in UTF-8."""

PlainHeader: TypeAlias = "Callable[[memoryview, int, int, int, int], BatchHeader | None]"
Assign: TypeAlias = "Callable[[bytearray | memoryview, int, int, int], None]"


def plain_header_in_python(
    records: memoryview, size_max: int, now_ms: int, before_max_ms: int, after_max_ms: int
) -> BatchHeader | None:
    """The header of `records` if they are one plain batch that a broker may append; None if they are not, or
    if anything is wrong with them: their caller then looks for the error.

    At most `size_max` bytes are allowed, and timestamps at most `before_max_ms` before and `after_max_ms`
    after `now_ms`, the time of day. The records of a compressed batch are not checked.
    """
    try:
        header = batches.read_header(records)
        if header.length + LOG_OVERHEAD != len(records):
            return None
        batches.check(records, header, size_max)
    except BrokerError:
        return None
    # Read together, because each read of a named tuple's field is a call.
    _, _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, record_count = header
    if attributes & batches.NOT_AS_SENT:
        return None
    # Compare differences: adding a limit of 2**63 - 1 to a timestamp would exceed 64 bits.
    is_in_time = max_timestamp - now_ms <= after_max_ms and (
        now_ms - base_timestamp <= before_max_ms or base_timestamp <= NO_TIMESTAMP
    )
    if not is_in_time:
        return None
    if not attributes & COMPRESSION_MASK:
        verdict = validate(records[HEADER_SIZE:], record_count, base_timestamp)
        _, reason, most, _, least, _, _, _ = verdict
        if reason is not None or most != max_timestamp or (least >= 0 and now_ms - least > before_max_ms):
            return None
    return header


def acknowledgement_in_python(rows: list[SuccessfulAppend]) -> ProduceResponse:
    """The response to a request whose appends have all succeeded, in the order of `rows`."""
    topics: dict[str, TopicProduceResponse] = {}
    for name, index, first_offset, append_time_ms, log_start_offset in rows:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = TopicProduceResponse(name=name, partition_responses=[])
        topic.partition_responses.append(
            PartitionProduceResponse(
                index=index,
                error_code=0,
                base_offset=first_offset,
                log_append_time_ms=append_time_ms,
                log_start_offset=log_start_offset,
                current_leader=_NO_LEADER,
            )
        )
    return ProduceResponse(responses=list(topics.values()))


PlainRequest: TypeAlias = tuple[int, int, str, int, memoryview]
"""A request for one partition: its acks, its timeout in ms, the topic, the partition and the records."""


def plain_request(frame: memoryview, version: int, position: int) -> PlainRequest | None:
    """The produce request whose body is at a position of a frame, from version 3 on, if it is for one
    partition, without a transaction and without tagged fields. None for every other, and for all that is
    malformed: the generic decoder decides about them."""
    try:
        if version < _FLEXIBLE_FROM:
            transactional, acks, timeout_ms, topics, size = _HEAD.unpack_from(frame, position)
            if transactional != -1 or topics != 1 or size < 0:
                return None
            start = position + _HEAD.size
            position = start + size
            name = str(frame[start:position], "utf-8")
            partitions, index, size = _PARTITION.unpack_from(frame, position)
            position += _PARTITION.size
            if partitions != 1 or size < 0 or position + size != len(frame):
                return None
            return acks, timeout_ms, name, index, frame[position:]
        # Lengths and counts are one more than they say, and 0 stands for null.
        transactional, acks, timeout_ms, topics, size = _COMPACT_HEAD.unpack_from(frame, position)
        if transactional or topics != 2 or not 0 < size < 0x80:
            return None
        start = position + _COMPACT_HEAD.size
        position = start + size - 1
        name = str(frame[start:position], "utf-8")
        partitions, index = _COMPACT_PARTITION.unpack_from(frame, position)
        position += _COMPACT_PARTITION.size
        size, position = read_uvarint(frame, position)
        end = position + size - 1
        if partitions != 2 or size < 1 or end + len(_NO_TAGS) != len(frame) or frame[end:] != _NO_TAGS:
            return None
    except (MalformedMessage, *DECODE_ERRORS):
        return None
    return acks, timeout_ms, name, index, frame[position:end]


def encode_acknowledgement(version: int, correlation_id: int, row: SuccessfulAppend) -> list[Part]:
    """The response to a request whose only append has succeeded, as a frame with its size and header. It is
    what `encode_response` makes of `acknowledgement_in_python([row])`, in a seventh of the time."""
    topic, index, first_offset, append_time_ms, log_start_offset = row
    pack, has_log_start, size, before, after = _form_of(version, topic, index)
    if has_log_start:
        return [pack(size, correlation_id, before, first_offset, append_time_ms, log_start_offset, after)]
    return [pack(size, correlation_id, before, first_offset, append_time_ms, after)]


@lru_cache(_KNOWN_FORMS)
def _form_of(version: int, topic: str, index: int) -> tuple[Callable[..., bytes], bool, bytes, bytes, bytes]:
    """How the acknowledgements of a partition are packed, from version 2 on; whether they name the log start;
    and their bytes that are always the same."""
    number = int.from_bytes(_SAID_LATER, signed=True)
    response = acknowledgement_in_python([(topic, index, number, number, number)])
    whole = join_parts(encode_response(response, version, 0))
    start = whole.index(_SAID_LATER)
    has_log_start = whole.startswith(_SAID_LATER * 3, start)
    end = start + len(_SAID_LATER) * (3 if has_log_start else 2)
    size, before, after = whole[: SIZE.size], whole[SIZE.size + _CORRELATION_BYTES : start], whole[end:]
    layout = f">{len(size)}si{len(before)}s{'qqq' if has_log_start else 'qq'}{len(after)}s"
    return struct.Struct(layout).pack, has_log_start, size, before, after


_compiled = extension("_produce_codec")

plain_header: PlainHeader = plain_header_in_python if _compiled is None else _compiled.plain_header
"""See `plain_header_in_python`."""

assign: Assign = batches.assign if _compiled is None else _compiled.assign
"""See `protocol.batches.assign`."""

acknowledgement: Callable[[list[SuccessfulAppend]], ProduceResponse] = (
    acknowledgement_in_python if _compiled is None else _compiled.acknowledgement
)
"""See `acknowledgement_in_python`."""
