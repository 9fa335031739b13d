"""The records of control batches: a transaction's end marker in its partition (KIP-98).

A control batch has the control attribute, is transactional, and holds one record. Its key is a version and a
type (int16 each), its value a version (int16) and the epoch of the transaction coordinator (int32). Later
versions may only add fields at the end, so every version from 0 on is read as version 0. Types above 1 belong
to Kafka's own controllers; they never stand in the log of a topic, and readers skip them.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from holdfast_log.protocol.batches import (
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    attributes,
    corrupt,
    write_header,
)
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.record_codec import NO_HEADERS, zigzag_varint
from holdfast_log.protocol.records import decode_columns
from holdfast_log.protocol.wire import Buffer

NO_COORDINATOR_EPOCH = -1

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(enum.IntEnum):
    """The types of control records that end a transaction, as their keys encode them."""

    ABORT = 0
    COMMIT = 1


class EndMarker(NamedTuple):
    """The end of a producer's transaction in a partition. `coordinator_epoch` is the leader epoch of the
    coordinator's partition of `__transaction_state` in which the coordinator wrote it."""

    is_commit: bool
    coordinator_epoch: int = NO_COORDINATOR_EPOCH


def end_marker_batch(
    producer_id: int, producer_epoch: int, marker: EndMarker, timestamp_ms: int, base_offset: int = 0
) -> bytearray:
    """The control batch that ends the transaction of a producer, checksum included."""
    key = _KEY.pack(_VERSION, ControlType.COMMIT if marker.is_commit else ControlType.ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    batch = _control_batch(key, value, timestamp_ms, timestamp_ms)
    write_header(
        batch,
        attributes=attributes(0, is_transactional=True, is_control=True),
        record_count=1,
        last_offset_delta=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    return batch


def with_delete_horizon(batch: bytes, header: BatchHeader, horizon_ms: int) -> bytes:
    """A control batch with the time in ms from which on compaction may remove it (KIP-534). Its record
    keeps its timestamp. Raises BrokerError for a record that cannot be decoded."""
    columns = decode_columns(batch, header)
    key, value, timestamp = columns.keys[0] or b"", columns.values[0] or b"", columns.timestamps[0]
    changed = _control_batch(key, value, horizon_ms, timestamp)
    write_header(
        changed,
        attributes=header.attributes | DELETE_HORIZON,
        record_count=1,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=horizon_ms,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return bytes(changed)


def _control_batch(key: bytes, value: bytes, base_timestamp: int, timestamp: int) -> bytearray:
    """Room for a header, and one record."""
    start = b"\0" + zigzag_varint(timestamp - base_timestamp) + b"\0"
    body = b"".join(
        # Attributes, timestamp delta, offset delta; then key, value and no headers.
        (start, zigzag_varint(len(key)), key, zigzag_varint(len(value)), value, NO_HEADERS)
    )
    return bytearray(HEADER_SIZE) + zigzag_varint(len(body)) + body


def end_marker_of(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """The end marker in a control batch, which begins at the header's position.

    None for a batch whose record compaction has removed, and for control records that end no transaction.
    Raises BrokerError with CORRUPT_MESSAGE for a record that no broker writes.
    """
    if not header.record_count:
        return None
    columns = decode_columns(batch, header)
    key, value = columns.keys[0], columns.values[0]
    if key is None or len(key) < _KEY.size:
        raise corrupt("the key of a control record is too short")
    version, type_ = _KEY.unpack_from(key)
    if version < 0:
        raise corrupt(f"version {version} of a control record's key is impossible")
    if type_ not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if value is None or len(value) < _VALUE.size:
        raise corrupt("the value of a transaction's end marker is too short")
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < 0:
        raise corrupt(f"version {version} of a transaction's end marker is impossible")
    return EndMarker(type_ == ControlType.COMMIT, coordinator_epoch)


def readable_end_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """As `end_marker_of`; None for a record that cannot be decoded."""
    try:
        return end_marker_of(batch, header)
    except BrokerError:
        return None
