"""The header of a record batch, version 2: 61 bytes, the only part that a broker reads.

This module never reads the records: a batch is its header and a piece of a buffer. The layout of the header:

    bytes   field                   bytes   field
     0- 7   base offset             27-34   base timestamp, ms
     8-11   length of what follows  35-42   max timestamp, ms
    12-15   partition leader epoch  43-50   producer id
    16      magic                   51-52   producer epoch
    17-20   CRC-32C of bytes 21 on  53-56   base sequence
    21-22   attributes              57-60   record count
    23-26   last offset delta       61-     records, maybe compressed

Base offset and leader epoch lie outside the checksum, so that a broker assigns them in the bytes it received.
"""

from __future__ import annotations

import enum
import struct
from typing import NamedTuple

from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.wire import Buffer

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Base offset and length: what the length field does not count."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
MAGIC = 2

_HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
_CRC_AT = 17
_ATTRIBUTES_AT = 21
CHECKED_FROM = _ATTRIBUTES_AT
"""Where the bytes begin that the checksum of a batch covers."""
_MAX_TIMESTAMP_AT = 35
_MIN_OLD_SIZE = 17

COMPRESSION_MASK = 0x07
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
_CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The base timestamp is the time in ms from which on the batch's tombstones may be removed (KIP-534)."""
HAS_APPEND_ID = 0x4000
"""Holdfast's own attribute: the first record has the batch's append id in a header. Kafka leaves the bit
unused, and its clients and tools ignore it."""
_MARKS = TRANSACTIONAL | _CONTROL | DELETE_HORIZON | HAS_APPEND_ID
NOT_AS_SENT = _MARKS | _LOG_APPEND_TIME
"""The attributes of the batches that only brokers write, or that stand for more than their records."""

_MIN_RECORD_SIZE = 7
"""Length, attributes, timestamp, offset, key, value and number of headers: at least one byte each."""


class Compression(enum.IntEnum):
    """The codec of a batch's records, as its attributes number it."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_LAST_CODEC = int(Compression.ZSTD)


class TimestampType(enum.IntEnum):
    """Who set a batch's timestamps: the producer or the broker that appended it."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """One batch's header as read, and where in the buffer the batch begins.

    A tuple for speed: a broker makes one for every batch, and a tuple costs no more than unpacking.
    """

    position: int
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LOG_OVERHEAD

    @property
    def end(self) -> int:
        """Position of the byte after the batch."""
        return self.position + self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if the batch has none. Sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """The codec's number. Numbers above 4 are undefined."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return (
            TimestampType.LOG_APPEND_TIME if self.attributes & _LOG_APPEND_TIME else TimestampType.CREATE_TIME
        )

    @property
    def has_log_append_time(self) -> bool:
        """Whether a broker set the batch's timestamps."""
        return bool(self.attributes & _LOG_APPEND_TIME)

    @property
    def is_plain(self) -> bool:
        """Whether the batch has no mark: no transaction, no append id, and no flag that only brokers set."""
        return not self.attributes & _MARKS

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether a log cleaner has replaced the base timestamp by its delete horizon."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def has_append_id(self) -> bool:
        """Whether the batch's first record has its append id in a header."""
        return bool(self.attributes & HAS_APPEND_ID)


# What a named tuple's constructor calls, without the cost of a Python function.
_new_tuple = tuple.__new__


def attributes_of(batch: Buffer) -> int:
    """The lower byte of the attributes, which has all of Kafka's, of the batch at the start of the buffer: a
    quick look at bytes that are not checked yet. 0 if there is no batch."""
    return batch[_ATTRIBUTES_AT + 1] if len(batch) > HEADER_SIZE else 0


def is_compressed(batch: Buffer) -> bool:
    """Whether the attributes of the batch at the start of the buffer name a codec (`attributes_of`)."""
    return bool(attributes_of(batch) & COMPRESSION_MASK)


def corrupt(message: str) -> BrokerError:
    """The error for bytes that are not a record batch."""
    return error_for(ErrorCode.CORRUPT_MESSAGE, message)


def read_header(buffer: Buffer, position: int = 0, buffer_position: int = 0) -> BatchHeader:
    """The header of the batch that begins at `position`; the batch itself may end beyond the buffer.

    If the buffer is a piece of a file that begins at `buffer_position`, the header has the batch's position
    in the file.

    Raises BrokerError: CORRUPT_MESSAGE if the header is incomplete or its length is impossible,
    UNSUPPORTED_FOR_MESSAGE_FORMAT for the message formats 0 and 1, which are older than batches.
    """
    try:
        values = (buffer_position + position, *_HEADER.unpack_from(buffer, position))
    except struct.error:
        _refuse_old_format(buffer, position)
        raise corrupt(f"{len(buffer) - position} bytes are too few for a batch header") from None
    _, _, length, _, magic, _, _, _, _, _, _, _, _, _ = values
    if magic != MAGIC:
        _refuse_old_format(buffer, position)
        raise corrupt(f"unknown message format {magic}")
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise corrupt(f"a batch length of {length} is impossible")
    return _new_tuple(BatchHeader, values)


def _refuse_old_format(buffer: Buffer, position: int) -> None:
    if len(buffer) - position >= _MIN_OLD_SIZE and buffer[position + _MAGIC_AT] in (0, 1):
        raise error_for(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {buffer[position + _MAGIC_AT]} is not supported; use record batches (format 2)",
        )


def split(buffer: Buffer) -> list[BatchHeader]:
    """The headers of all batches in `buffer`, which must end where the last batch ends.

    Raises BrokerError as `read_header` does, and CORRUPT_MESSAGE for a batch that is cut off.
    """
    headers = []
    position = 0
    size = len(buffer)
    while position < size:
        header = read_header(buffer, position)
        position += header.length + LOG_OVERHEAD
        if position > size:
            raise corrupt(f"a batch of {header.size} bytes is cut off after {size - header.position}")
        headers.append(header)
    return headers


def whole_batches(buffer: Buffer) -> list[BatchHeader]:
    """The headers of the whole batches in `buffer`, the records of one fetch response.

    The last batch may be cut off; it is left out.

    Raises BrokerError as `read_header` does.
    """
    headers = []
    position = 0
    size = len(buffer)
    while size - position >= HEADER_SIZE:
        header = read_header(buffer, position)
        position = header.end
        if position > size:
            break
        headers.append(header)
    return headers


def has_valid_crc(buffer: Buffer, header: BatchHeader) -> bool:
    """Whether the batch's checksum matches its bytes. The whole batch must be in `buffer`."""
    position = header.position
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    covered = view[position + _ATTRIBUTES_AT : position + header.length + LOG_OVERHEAD]
    return crc32c(covered) == header.crc


def check(buffer: Buffer, header: BatchHeader, max_bytes: int) -> None:
    """Raise for a batch that no broker may append, by the checks that need no knowledge of the log.

    `max_bytes` is the size of the largest allowed batch (`max.message.bytes`). Raises BrokerError:
    MESSAGE_TOO_LARGE, CORRUPT_MESSAGE (checksum), UNSUPPORTED_COMPRESSION_TYPE, INVALID_RECORD.
    """
    # Read together, because each read of a named tuple's field is a call.
    (
        _, _, length, _, _, _, attributes, last_offset_delta, _, _,
        producer_id, producer_epoch, base_sequence, record_count,
    ) = header  # fmt: skip
    size = length + LOG_OVERHEAD
    if size > max_bytes:
        raise error_for(
            ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes; at most {max_bytes} are allowed"
        )
    if not has_valid_crc(buffer, header):
        raise corrupt(f"the CRC-32C of the batch at byte {header.position} does not match its header")
    compression = attributes & COMPRESSION_MASK
    if compression > _LAST_CODEC:
        raise error_for(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {compression}")
    if record_count <= 0 or record_count != last_offset_delta + 1:
        raise _invalid(f"{record_count} records do not fit the last offset delta {last_offset_delta}")
    if not compression and record_count * _MIN_RECORD_SIZE > size - HEADER_SIZE:
        raise _invalid(f"{record_count} records do not fit in {size - HEADER_SIZE} bytes")
    if producer_id < 0:
        if producer_id != NO_PRODUCER_ID:
            raise _invalid(f"producer id {producer_id} is negative")
        if attributes & TRANSACTIONAL:
            raise _invalid("a transactional batch has no producer id")
    elif producer_epoch < 0 or (
        # Coordinators number neither markers nor the offsets that groups commit in transactions.
        base_sequence < 0 and not attributes & (_CONTROL | TRANSACTIONAL)
    ):
        raise _invalid(
            f"producer {producer_id} has a negative epoch or sequence: {producer_epoch}, {base_sequence}"
        )


def _invalid(message: str) -> BrokerError:
    return error_for(ErrorCode.INVALID_RECORD, message)


def assign(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write the offset and the leader epoch into the batch at `position`. The checksum covers neither."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def set_log_append_time(
    buffer: bytearray | memoryview, header: BatchHeader, timestamp_ms: int
) -> BatchHeader:
    """Set the broker's time as the timestamp of all records of the batch. Returns the new header."""
    start = header.position
    attributes = header.attributes | _LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(buffer, start + _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(buffer, start + _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = crc32c(memoryview(buffer)[start + _ATTRIBUTES_AT : header.end])
    _CRC.pack_into(buffer, start + _CRC_AT, crc)
    return header._replace(attributes=attributes, max_timestamp=timestamp_ms, crc=crc)


def set_max_timestamp(buffer: bytearray | memoryview, header: BatchHeader, timestamp_ms: int) -> BatchHeader:
    """Correct the largest timestamp of the batch's records. Returns the new header."""
    start = header.position
    _MAX_TIMESTAMP.pack_into(buffer, start + _MAX_TIMESTAMP_AT, timestamp_ms)
    crc = crc32c(memoryview(buffer)[start + _ATTRIBUTES_AT : header.end])
    _CRC.pack_into(buffer, start + _CRC_AT, crc)
    return header._replace(max_timestamp=timestamp_ms, crc=crc)


def attributes(
    compression: int,
    *,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    is_transactional: bool = False,
    is_control: bool = False,
    has_append_id: bool = False,
) -> int:
    """The attributes field of a batch."""
    return (
        compression
        | (_LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL if is_transactional else 0)
        | (_CONTROL if is_control else 0)
        | (HAS_APPEND_ID if has_append_id else 0)
    )


def write_header(
    batch: bytearray | memoryview,
    *,
    attributes: int,
    record_count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> None:
    """Write length, checksum and all other fields into the first 61 bytes of `batch`. Its records follow
    them."""
    values = (
        attributes, last_offset_delta, base_timestamp, max_timestamp,
        producer_id, producer_epoch, base_sequence, record_count,
    )  # fmt: skip
    length = len(batch) - LOG_OVERHEAD
    _HEADER.pack_into(batch, 0, base_offset, length, leader_epoch, MAGIC, 0, *values)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))


def batch_size_at(buffer: Buffer, position: int) -> int | None:
    """The size in bytes of the batch at `position`.

    None if the buffer ends before its length field, or if that length is impossible.
    """
    if position + LOG_OVERHEAD > len(buffer):
        return None
    length: int = _OFFSET_AND_LENGTH.unpack_from(buffer, position)[1]
    return None if length < HEADER_SIZE - LOG_OVERHEAD else length + LOG_OVERHEAD
