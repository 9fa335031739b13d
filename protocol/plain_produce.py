"""The usual produce request: the check of its batch, the assignment of the offset, and its acknowledgement.

A plain batch is the only one of its append, keeps its producer's timestamps, and has no mark: no transaction,
no append id, no flag that only brokers set. `protocol.batches` checks every batch and explains the layout.

The functions are in the compiled `protocol._produce_codec` if it is installed, else here; the environment
variable HOLDFAST_PURE_PYTHON selects the latter. Both check the records of a batch that is not compressed, as
`protocol.record_validation` does; those of a compressed one are for the caller.
"""

from __future__ import annotations

from collections.abc import Callable
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
from holdfast_log.protocol.messages.leader_hint import LeaderIdAndEpoch
from holdfast_log.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast_log.protocol.record_validation import validate

SuccessfulAppend: TypeAlias = tuple[str, int, int, int, int]
"""An append that has succeeded: its topic and partition, the offset of its first record, the log append time
in ms (-1: the records keep their producer's) and the log start offset."""

_NO_LEADER = LeaderIdAndEpoch()
"""Shared by all responses; never modified."""

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


_compiled = extension("_produce_codec")

plain_header: PlainHeader = plain_header_in_python if _compiled is None else _compiled.plain_header
"""See `plain_header_in_python`."""

assign: Assign = batches.assign if _compiled is None else _compiled.assign
"""See `protocol.batches.assign`."""

acknowledgement: Callable[[list[SuccessfulAppend]], ProduceResponse] = (
    acknowledgement_in_python if _compiled is None else _compiled.acknowledgement
)
"""See `acknowledgement_in_python`."""
