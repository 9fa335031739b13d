"""The records inside a batch: many appended, encoded together; one batch decoded into columns.

A record is, every number but the attributes a zigzag varint:

    length | attributes (int8) | timestamp delta | offset delta | key length, key | value length, value
    | header count | (key length, key, value length, value) of each header

Length -1 stands for null. Records come in batches and are treated so: a `BatchBuilder` keeps references until
the batch is built, then encodes all records in one loop; `decode_columns` takes a batch apart in one loop
into a list for each field. Whoever wants records one by one has `iterate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple, TypeAlias

from protocol.batches import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    Compression,
    TimestampType,
    attributes,
    corrupt,
    read_header,
    write_header,
)
from protocol.checksum import Buffer
from protocol.compression import DEFAULT_LIMIT, DecompressionError, compress, decompress
from protocol.errors import BrokerError, ErrorCode

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]

TYPICAL_OVERHEAD = 14
"""What a record of a middling batch takes besides its key and value: short varints and the attributes."""


class Record(NamedTuple):
    """One record of a batch. `timestamp` is in milliseconds since the epoch, -1 where it has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Columns:
    """The records of one batch, a column for each field; all columns are of one length.

    `offsets` is a range where no record is missing in between, as it is until a log is compacted. `headers`
    is None where no record has any.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None

    def __len__(self) -> int:
        return len(self.values)


# Encoding ---------------------------------------------------------------------------------------------


def zigzag_varint(number: int) -> bytes:
    """`number`, of at most 64 bits, as Kafka writes signed numbers of variable length."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_VARINT_COUNT = 8192
_VARINTS = [zigzag_varint(number) for number in range(_VARINT_COUNT)]
"""Encoded ahead: all that take one or two bytes, which is nearly every number in nearly every record."""
_NULL = zigzag_varint(-1)
_NO_HEADERS = zigzag_varint(0)


def _varint(number: int) -> bytes:
    return _VARINTS[number] if 0 <= number < _VARINT_COUNT else zigzag_varint(number)


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varint(len(headers))]
    for key, value in headers:
        name = key.encode()
        parts += (_varint(len(name)), name)
        if value is None:
            parts.append(_NULL)
        else:
            parts += (_varint(len(value)), value)
    return b"".join(parts)


class BatchBuilder:
    """Records on their way to becoming one batch.

    Appending keeps references and adds up sizes; the work is done in `build`, which a sending thread calls.
    """

    __slots__ = ("_compression", "_headers", "_keys", "_level", "_values", "size", "timestamps")

    def __init__(self, compression: Compression = Compression.NONE, level: int | None = None) -> None:
        self.size = HEADER_SIZE
        """About how many bytes the batch would have uncompressed."""
        self._compression = compression
        self._level = level
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self.timestamps: list[int] = []
        """Of each record, in ms."""
        self._headers: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._values)

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add a record, which must not change any more; its offset delta in the batch. `timestamp` in ms."""
        delta = len(self._values)
        size = self.size + TYPICAL_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers:
            self._headers[delta] = encoded = _encode_headers(headers)
            size += len(encoded)
        self._keys.append(key)
        self._values.append(value)
        self.timestamps.append(timestamp)
        self.size = size
        return delta

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        base_offset: int = 0,
    ) -> bytearray:
        """The batch, checksum included; there must be a record in it. May be called again."""
        if self._compression is Compression.NONE:
            batch = bytearray().join((bytes(HEADER_SIZE), *self._encode()))
        else:
            records = compress(self._compression, b"".join(self._encode()), self._level)
            batch = bytearray().join((bytes(HEADER_SIZE), records))
        count = len(self._values)
        write_header(
            batch,
            attributes=attributes(self._compression),
            record_count=count,
            last_offset_delta=count - 1,
            base_timestamp=self.timestamps[0],
            max_timestamp=max(self.timestamps),
            base_offset=base_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        return batch

    def _encode(self) -> list[bytes]:
        """The records in pieces: joining them copies every byte once."""
        pieces: list[bytes] = []
        varints, known, slow = _VARINTS, _VARINT_COUNT, zigzag_varint
        base = last = self.timestamps[0]
        start = b"\0\0"  # attributes and timestamp delta, which seldom change from one record to the next
        for delta, (timestamp, key, value, headers) in enumerate(
            zip(self.timestamps, self._keys, self._values, self._tails(), strict=False)
        ):
            if timestamp != last:
                start = b"\0" + _varint(timestamp - base)
                last = timestamp
            offset = varints[delta] if delta < known else slow(delta)
            if key is None:
                key, key_length, size = b"", _NULL, 0
            else:
                size = len(key)
                key_length = varints[size] if size < known else slow(size)
            if value is None:
                value, value_length = b"", _NULL
            else:
                length = len(value)
                value_length = varints[length] if length < known else slow(length)
                size += length
            size += len(start) + len(offset) + len(key_length) + len(value_length) + len(headers)
            total = varints[size] if size < known else slow(size)
            pieces += (total, start, offset, key_length, key, value_length, value, headers)
        return pieces

    def _tails(self) -> Iterable[bytes]:
        if not self._headers:
            return repeat(_NO_HEADERS)
        return [self._headers.get(delta, _NO_HEADERS) for delta in range(len(self._values))]


def set_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Stamp a built batch anew, its checksum included."""
    header = read_header(batch)
    write_header(
        batch,
        attributes=header.attributes,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


# Decoding ---------------------------------------------------------------------------------------------


def iterate(
    buffer: Buffer, header: BatchHeader | None = None, *, limit: int = DEFAULT_LIMIT
) -> Iterator[Record]:
    """The records of a batch, in order. Raises as `decode_columns` does, before the first record."""
    columns = decode_columns(buffer, header, limit=limit)
    headers: Iterable[Headers] = repeat(()) if columns.headers is None else columns.headers
    fields = zip(columns.offsets, columns.timestamps, columns.keys, columns.values, headers, strict=False)
    return map(Record._make, fields)


def decode_columns(
    buffer: Buffer, header: BatchHeader | None = None, *, limit: int = DEFAULT_LIMIT
) -> Columns:
    """The records of the batch that `header` (by default the first in `buffer`) describes.

    The checksum is not looked at; that is `protocol.batches.has_valid_crc`. No more than `limit` bytes are
    decompressed. Raises BrokerError: CORRUPT_MESSAGE for anything that is no whole batch of well-formed
    records, UNSUPPORTED_COMPRESSION_TYPE for a codec that has no name.
    """
    if header is None:
        header = read_header(buffer)
    data = _records_of(buffer, header, limit)
    try:
        columns, end = _decode(data, header)
    except IndexError:
        raise corrupt("the records of a batch end early") from None
    except UnicodeDecodeError:
        raise corrupt("the key of a record's header is not UTF-8") from None
    if end != len(data):
        raise corrupt(f"{len(data) - end} bytes after the last record of a batch")
    return columns


def _records_of(buffer: Buffer, header: BatchHeader, limit: int) -> bytes:
    if header.end > len(buffer):
        raise corrupt(f"a batch of {header.size} bytes is cut off after {len(buffer) - header.position}")
    try:
        codec = Compression(header.compression)
    except ValueError:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"no codec has the number {header.compression}"
        ) from None
    try:
        # One copy of the batch, so that keys and values become bytes by slicing, at C's speed.
        return bytes(decompress(codec, memoryview(buffer)[header.position + HEADER_SIZE : header.end], limit))
    except DecompressionError as error:
        raise corrupt(str(error)) from None


def _decode(data: bytes, header: BatchHeader) -> tuple[Columns, int]:
    """The columns and where the records end. Raises IndexError where the data ends before the records do.

    The loop is one function on purpose: calls would cost more than what they do. Its pattern for a varint:
    one byte, else two, else the general case.
    """
    timestamps: list[int] = []
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    headers: dict[int, Headers] = {}
    sparse_offsets: list[int] = []
    is_sparse = header.record_count != header.last_offset_delta + 1
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    position = 0
    last_delta = -1
    for index in range(header.record_count):
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        end = position + (number >> 1)

        position += 1  # attributes, of which none are defined
        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        timestamps.append(base_timestamp + ((number >> 1) ^ -(number & 1)))

        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if is_sparse:
            delta = (number >> 1) ^ -(number & 1)
            if not last_delta < delta <= header.last_offset_delta:
                raise corrupt(f"offset delta {delta} after {last_delta}")
            sparse_offsets.append(base_offset + delta)
            last_delta = delta
        elif number != index + index:
            raise corrupt(f"offset delta {(number >> 1) ^ -(number & 1)} where {index} is due")

        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if not number & 1:
            start = position
            position += number >> 1
            keys.append(data[start:position])
        elif number == 1:
            keys.append(None)
        else:
            raise corrupt("the length of a key is below -1")

        number = data[position]
        if number < 0x80:
            position += 1
        elif (high := data[position + 1]) < 0x80:
            number = number & 0x7F | high << 7
            position += 2
        else:
            number, position = _zigzag(data, position)
        if not number & 1:
            start = position
            position += number >> 1
            values.append(data[start:position])
        elif number == 1:
            values.append(None)
        else:
            raise corrupt("the length of a value is below -1")

        if data[position]:
            headers[index], position = _decode_headers(data, position)
        else:
            position += 1
        if position != end:
            raise corrupt(f"a record ends {position - end} bytes from where its length says")
    columns = Columns(
        offsets=sparse_offsets if is_sparse else range(base_offset, base_offset + len(values)),
        timestamps=timestamps,
        keys=keys,
        values=values,
        headers=[headers.get(index, ()) for index in range(len(values))] if headers else None,
    )
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        columns.timestamps = [header.max_timestamp] * len(values)
    return columns, position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    """The varint at `position`, its zigzag not undone, and where it ends."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise corrupt("a number of more than 64 bits")


def _decode_headers(data: bytes, position: int) -> tuple[Headers, int]:
    count, position = _zigzag(data, position)
    if count & 1:
        raise corrupt("the number of a record's headers is negative")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        key, position = _decode_bytes(data, position)
        if key is None:
            raise corrupt("a record's header has no key")
        value, position = _decode_bytes(data, position)
        headers.append((key.decode(), value))
    return tuple(headers), position


def _decode_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    number, position = _zigzag(data, position)
    if number == 1:
        return None, position
    if number & 1:
        raise corrupt("the length in a record's header is below -1")
    end = position + (number >> 1)
    if end > len(data):
        raise IndexError
    return data[position:end], end
