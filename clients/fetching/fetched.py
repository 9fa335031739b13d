"""A fetched batch: decoded into one column for each field, or still encoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast_log.clients.fetching.positions import Position, StoredBatch
from holdfast_log.protocol.batches import BatchHeader, TimestampType, has_valid_crc
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.record_codec import Headers
from holdfast_log.protocol.records import Columns, decode_columns, records_of
from holdfast_log.protocol.wire import Buffer

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")


@dataclass(slots=True)
class FetchedBatch:
    """The records of one batch, as columns. Those before the consumer's position are left out."""

    topic: str
    partition: int
    columns: Columns
    timestamp_type: TimestampType
    leader_epoch: int
    next_offset: int
    """The offset after this batch."""

    def __len__(self) -> int:
        return len(self.columns)

    def to_arrow(self) -> pyarrow.RecordBatch:
        """The records with the columns offset, timestamp (ms, UTC), key, value and headers; key, value and
        headers can be null. Topic and partition are in the schema's metadata.

        Needs pyarrow. Raises pyarrow.ArrowInvalid for a timestamp of more than 64 bits.
        """
        import pyarrow as pa

        columns = self.columns
        header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        headers: Sequence[Headers | None] = columns.headers or [None] * len(columns)
        fields: list[tuple[str, Any, Any, bool]] = [
            ("offset", columns.offsets, pa.int64(), False),
            ("timestamp", columns.timestamps, pa.timestamp("ms", "UTC"), False),
            ("key", columns.keys, pa.binary(), True),
            ("value", columns.values, pa.binary(), True),
            ("headers", headers, pa.list_(header), True),
        ]
        schema = pa.schema(
            [pa.field(name, type_, nullable=nullable) for name, _, type_, nullable in fields],
            metadata={"topic": self.topic, "partition": str(self.partition)},
        )
        return pa.record_batch([pa.array(column, type_) for _, column, type_, _ in fields], schema=schema)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The records of one batch, decompressed and still encoded."""

    topic: str
    partition: int
    header: BatchHeader
    records: Buffer
    start: int
    """The consumer's position when it took the batch: records with smaller offsets are not for the
    application."""


def take_first(position: Position, *, check_crcs: bool, limit: int) -> FetchedBatch | None:
    """Take the first stored batch, from the position on, and move the position behind it.

    Returns None if no record of it is for the application. At most `limit` bytes are decompressed. Raises
    BrokerError (mostly CORRUPT_MESSAGE) for a damaged batch; the position then stays before it.
    """
    stored = position.store[0]
    header = stored.header
    columns = None if stored.is_skipped else _checked(position, stored, decode_columns, check_crcs, limit)
    start = pass_first(position)
    if columns is None:
        return None
    if header.base_offset < start:
        columns = _from_offset(columns, start)
    if not len(columns):
        return None
    return _batch(position, columns, header)


def take_first_encoded(position: Position, *, check_crcs: bool, limit: int) -> EncodedBatch | None:
    """Like `take_first`, but the records are only decompressed. They may be malformed."""
    stored = position.store[0]
    records = None if stored.is_skipped else _checked(position, stored, records_of, check_crcs, limit)
    start = pass_first(position)
    if records is None:
        return None
    return EncodedBatch(position.topic, position.partition, stored.header, records, start)


def pass_first(position: Position) -> int:
    """Move the position behind the first stored batch. Returns where it was."""
    start = position.offset
    assert start is not None
    header = position.store.popleft().header
    position.stored_bytes -= header.size
    position.offset = header.next_offset
    return start


def _batch(position: Position, columns: Columns, header: BatchHeader) -> FetchedBatch:
    return FetchedBatch(
        position.topic,
        position.partition,
        columns,
        header.timestamp_type,
        header.leader_epoch,
        header.next_offset,
    )


def _checked(
    position: Position, stored: StoredBatch, read: Callable[..., T], check_crcs: bool, limit: int
) -> T:
    """What `read` makes of a stored batch. Errors say which batch is damaged."""
    where = f"{position.key}, batch at offset {stored.header.base_offset}"
    if check_crcs and not has_valid_crc(stored.records, stored.header):
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"{where}: its checksum does not match its bytes")
    try:
        return read(stored.records, stored.header, limit=limit)
    except BrokerError as error:
        raise error_for(error.code, f"{where}: {error.message}") from None


def _from_offset(columns: Columns, offset: int) -> Columns:
    """The rows from `offset` on."""
    first = next((index for index, each in enumerate(columns.offsets) if each >= offset), len(columns))
    return Columns(
        columns.offsets[first:],
        columns.timestamps[first:],
        columns.keys[first:],
        columns.values[first:],
        None if columns.headers is None else columns.headers[first:],
    )
