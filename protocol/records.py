"""The records inside a batch: many appended and encoded together, or one batch decoded into columns.

Records are handled by batch, for speed: a `BatchBuilder` keeps references until the batch is built, then
encodes all records in one loop; `decode_columns` decodes a batch in one loop into a list for each field.
`iterate` gives the records one by one. The loops are in the compiled `protocol._record_codec` if it is
installed, else in `protocol.record_codec`; the environment variable HOLDFAST_PURE_PYTHON selects the
latter.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import repeat
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from holdfast_log.protocol.batches import (
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
from holdfast_log.protocol.compression import DEFAULT_LIMIT, DecompressionError, compress, decompress
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.record_codec import NO_HEADERS, encode_headers
from holdfast_log.protocol.record_codec import Headers as Headers
from holdfast_log.protocol.send_fields import PURE_PYTHON_VARIABLE as PURE_PYTHON_VARIABLE
from holdfast_log.protocol.send_fields import BuilderFields
from holdfast_log.protocol.wire import Buffer


def _fastest_codec() -> ModuleType:
    if not os.environ.get(PURE_PYTHON_VARIABLE):
        try:
            from holdfast_log.protocol import _record_codec
        except ImportError:
            pass
        else:
            return _record_codec
    from holdfast_log.protocol import record_codec

    return record_codec


_codec = _fastest_codec()

_Row = TypeVar("_Row", bound="tuple[Any, ...]")


def rows(
    row: type[_Row],
    topic: str,
    partition: int,
    columns: Columns,
    keys: list[Any],
    values: list[Any],
    timestamp_type: TimestampType,
    leader_epoch: int,
) -> list[_Row]:
    """The records of a batch as tuples of a class with the fields of `clients.message.ConsumerRecord`. `keys`
    and `values` take the place of those in the columns."""
    offsets = columns.offsets
    made: list[_Row] = _codec.rows(
        row,
        topic,
        partition,
        offsets.start if isinstance(offsets, range) else list(offsets),
        columns.timestamps,
        keys,
        values,
        columns.headers,
        timestamp_type,
        leader_epoch,
    )
    return made


APPEND_ID_HEADER = "holdfast.append.id"
"""Key of the header of a batch's first record that holds the batch's append id."""
APPEND_ID_SIZE = 16
CONTENT_DIGEST_SIZE = 8

TYPICAL_OVERHEAD = 14
"""Bytes of an average record besides its key and value: short varints and the attributes."""


class Record(NamedTuple):
    """One record of a batch. `timestamp` is in ms since the epoch, -1 if there is none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass(slots=True)
class Columns:
    """The records of one batch, a column for each field; all columns have the same length.

    `offsets` is a range unless compaction has removed records. `headers` is None if no record has any.
    """

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[Headers] | None

    def __len__(self) -> int:
        return len(self.values)


# Encoding ---------------------------------------------------------------------------------------------


class BatchBuilder(BuilderFields):
    """Collects records for one batch.

    Appending keeps references and adds up sizes; `build`, which a sending thread calls, does the work.
    """

    __slots__ = ("_compression", "_headers", "_level")

    def __init__(self, compression: Compression = Compression.NONE, level: int | None = None) -> None:
        self.size = HEADER_SIZE
        """Estimated size of the uncompressed batch, in bytes."""
        self._compression = compression
        self._level = level
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int] = []
        """The timestamp of each record, in ms."""
        self._headers: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self.values)

    def append(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers = ()) -> int:
        """Add a record, which must not change afterwards. Returns its offset delta. `timestamp` is in ms."""
        return self.append_encoded(timestamp, key, value, encode_headers(headers) if headers else b"")

    def append_encoded(self, timestamp: int, key: bytes | None, value: bytes | None, tail: bytes) -> int:
        """As `append`, for headers that `encode_headers` has encoded; empty for none."""
        delta = len(self.values)
        size = self.size + TYPICAL_OVERHEAD + len(tail)
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if tail:
            self._headers[delta] = tail
        self.keys.append(key)
        self.values.append(value)
        self.timestamps.append(timestamp)
        self.size = size
        return delta

    def extend(
        self, timestamp: int, keys: Sequence[bytes | None], values: Sequence[bytes | None], size: int
    ) -> None:
        """Add records with one `timestamp` (ms) and without headers, of about `size` bytes in total."""
        self.keys.extend(keys)
        self.values.extend(values)
        self.timestamps.extend(repeat(timestamp, len(values)))
        self.size += size

    def build(
        self,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        base_offset: int = 0,
        has_append_id: bool = False,
        is_transactional: bool = False,
    ) -> bytearray:
        """The batch, checksum included. It must have at least one record. May be called repeatedly.

        `has_append_id`: the first record has a header APPEND_ID_HEADER.
        """
        if self._compression is Compression.NONE:
            batch = self._encode(HEADER_SIZE)
        else:
            records = compress(self._compression, self._encode(0), self._level)
            batch = bytearray().join((bytes(HEADER_SIZE), records))
        count = len(self.values)
        write_header(
            batch,
            attributes=attributes(
                self._compression, is_transactional=is_transactional, has_append_id=has_append_id
            ),
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

    def _encode(self, prefix_size: int) -> bytearray:
        tails = None
        if self._headers:
            tails = [NO_HEADERS] * len(self.values)
            for delta, encoded_headers in self._headers.items():
                tails[delta] = encoded_headers
        encoded: bytearray = _codec.encode(prefix_size, self.timestamps, self.keys, self.values, tails)
        return encoded


def set_producer(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Change the producer id, epoch and sequence of a built batch, and update its checksum."""
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

    The checksum is not verified; `protocol.batches.has_valid_crc` does that. At most `limit` bytes are
    decompressed. Raises BrokerError: CORRUPT_MESSAGE unless the bytes are a whole batch of well-formed
    records, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    if header is None:
        header = read_header(buffer)
    # Copied once, so that keys and values become bytes by slicing, at C speed.
    data = bytes(records_of(buffer, header, limit=limit))
    try:
        offsets, timestamps, keys, values, headers = _codec.decode(
            data, header.record_count, header.last_offset_delta, header.base_offset, header.base_timestamp
        )
    except IndexError:
        raise corrupt("the records of a batch end early") from None
    except UnicodeDecodeError:
        raise corrupt("the key of a record's header is not UTF-8") from None
    except ValueError as error:
        raise corrupt(str(error)) from None
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        timestamps = [header.max_timestamp] * len(values)
    if offsets is None:
        return Columns(
            range(header.base_offset, header.base_offset + len(values)), timestamps, keys, values, headers
        )
    return Columns(offsets, timestamps, keys, values, headers)


def append_id_of(buffer: Buffer, header: BatchHeader) -> bytes | None:
    """The append id of a batch that is marked to have one (`BatchHeader.has_append_id`): 16 bytes in a header
    of its first record. None if the mark is wrong. Raises as `decode_columns` does."""
    return _append_id_in(decode_columns(buffer, header))


def named_append_of(buffer: Buffer, header: BatchHeader) -> tuple[bytes, bytes | None] | None:
    """The append id of a marked batch, as `append_id_of` has it, and the digest of its records, None if some
    of them are gone. None if the mark is wrong. Raises as `decode_columns` does."""
    columns = decode_columns(buffer, header)
    append_id = _append_id_in(columns)
    if append_id is None:
        return None
    is_whole = len(columns) == header.last_offset_delta + 1
    return append_id, _digest_of(columns) if is_whole else None


def content_digest(buffer: Buffer, header: BatchHeader) -> bytes:
    """A digest of the keys, values and headers of a batch's records: equal for batches that another process
    has made of the same messages, at another time or with another codec. Raises as `decode_columns` does."""
    return _digest_of(decode_columns(buffer, header))


def _append_id_in(columns: Columns) -> bytes | None:
    first = dict(columns.headers[0]) if columns.headers else {}
    append_id = first.get(APPEND_ID_HEADER)
    return append_id if append_id is not None and len(append_id) == APPEND_ID_SIZE else None


def _digest_of(columns: Columns) -> bytes:
    count = len(columns)
    tails = None
    if columns.headers:
        tails = [encode_headers(headers) if headers else NO_HEADERS for headers in columns.headers]
    encoded = _codec.encode(0, [0] * count, columns.keys, columns.values, tails)
    return blake2b(encoded, digest_size=CONTENT_DIGEST_SIZE).digest()


def records_of(buffer: Buffer, header: BatchHeader, *, limit: int = DEFAULT_LIMIT) -> Buffer:
    """The encoded records of a batch, decompressed if need be; those of an uncompressed batch are not copied.

    At most `limit` bytes are decompressed. Raises BrokerError: CORRUPT_MESSAGE unless the batch is whole and
    can be decompressed, UNSUPPORTED_COMPRESSION_TYPE for an unknown codec.
    """
    if header.end > len(buffer):
        raise corrupt(f"a batch of {header.size} bytes is cut off after {len(buffer) - header.position}")
    try:
        codec = Compression(header.compression)
    except ValueError:
        raise BrokerError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {header.compression}"
        ) from None
    try:
        return decompress(codec, memoryview(buffer)[header.position + HEADER_SIZE : header.end], limit)
    except DecompressionError as error:
        raise corrupt(str(error)) from None
