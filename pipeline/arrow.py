"""Converts decoded columns to Arrow record batches without creating a Python object per row.

Spark accepts a batch only if its schema equals the announced one, nullability included, so this file has both
schemas.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from protocol.records import Columns, Headers
from protocol.topic_partition import TopicPartition

ROWS_PER_BATCH = 32_768
BYTES_PER_BATCH = 32 * 2**20
"""Size in bytes of keys and values at which a batch goes to Spark; `ROWS_PER_BATCH` is the limit in rows."""

_ROWS_WORTH_AN_ARRAY = 50
_COUNTED = pa.array(range(ROWS_PER_BATCH), pa.int64())

_SPARK_FIELDS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_SPARK_HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)

_ARROW_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_ARROW_FIELDS = (
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("topic", pa.string()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
    ("timestamp", pa.timestamp("us", "UTC")),
    ("timestampType", pa.int32()),
)
_ARROW_HEADERS = ("headers", pa.list_(pa.field("element", _ARROW_HEADER)))


def spark_schema(include_headers: bool) -> StructType:
    """The columns of Spark's Kafka source, with the same names and types."""
    return StructType([*_SPARK_FIELDS, _SPARK_HEADERS] if include_headers else list(_SPARK_FIELDS))


def arrow_schema(include_headers: bool) -> pa.Schema:
    """`spark_schema` as an Arrow schema."""
    return pa.schema([*_ARROW_FIELDS, _ARROW_HEADERS] if include_headers else _ARROW_FIELDS)


class BatchCollector:
    """Collects the columns of one partition until they are large enough for a Spark batch.

    The records of a large batch become Arrow arrays at once, which are joined in the end; those of small
    batches are collected in lists first, because each array costs as much as some fifty records.
    """

    def __init__(self, partition: TopicPartition, include_headers: bool) -> None:
        self._partition = partition
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._clear()

    def _clear(self) -> None:
        self._count = 0
        self._bytes = 0
        self._key_arrays: list[Any] = []
        self._value_arrays: list[Any] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[Sequence[int]] = []
        self._timestamps = array("q")
        self._timestamp_types = array("i")
        self._headers: list[Headers | None] = []

    def __len__(self) -> int:
        return self._count

    @property
    def is_full(self) -> bool:
        return self._count >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def add(self, columns: Columns, timestamp_type: int, start: int, end: int) -> None:
        """Add the records with offsets in [start, end)."""
        low, high = bisect_left(columns.offsets, start), bisect_left(columns.offsets, end)
        if low == high:
            return
        self._add_offsets(columns.offsets[low:high])
        self._timestamps.fromlist(list(columns.timestamps[low:high]))  # Twice as fast as `extend`.
        self._timestamp_types.extend(array("i", [timestamp_type]) * (high - low))
        if self._include_headers:
            self._headers += columns.headers[low:high] if columns.headers else [None] * (high - low)
        self._count += high - low
        if high - low < _ROWS_WORTH_AN_ARRAY:
            self._keys += columns.keys[low:high]
            self._values += columns.values[low:high]
            self._bytes += _bytes_in(columns.keys[low:high]) + _bytes_in(columns.values[low:high])
            return
        self._turn_into_arrays()
        keys = pa.array(columns.keys[low:high], pa.binary())
        values = pa.array(columns.values[low:high], pa.binary())
        self._key_arrays.append(keys)
        self._value_arrays.append(values)
        self._bytes += keys.nbytes + values.nbytes

    def take(self) -> pa.RecordBatch:
        """Return the collected columns as a batch, and clear them."""
        self._turn_into_arrays()
        columns = [
            _joined(self._key_arrays),
            _joined(self._value_arrays),
            pa.repeat(self._partition.topic, self._count),
            pa.repeat(pa.scalar(self._partition.partition, pa.int32()), self._count),
            _joined([piece for offsets in self._offsets for piece in _offset_arrays(offsets)]),
            _numbers(self._timestamps, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            _numbers(self._timestamp_types, pa.int32()),
        ]
        if self._include_headers:
            columns.append(_header_lists(self._headers))
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _add_offsets(self, offsets: Sequence[int]) -> None:
        last = self._offsets[-1] if self._offsets else None
        if isinstance(last, range) and isinstance(offsets, range) and last.stop == offsets.start:
            self._offsets[-1] = range(last.start, offsets.stop)
        else:
            self._offsets.append(offsets)

    def _turn_into_arrays(self) -> None:
        if self._values or not self._value_arrays:
            self._key_arrays.append(pa.array(self._keys, pa.binary()))
            self._value_arrays.append(pa.array(self._values, pa.binary()))
            self._keys, self._values = [], []


def _joined(arrays: list[Any]) -> Any:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _offset_arrays(offsets: Sequence[int]) -> Iterator[Any]:
    """Offsets as Arrow arrays. Consecutive ones are counted by Arrow, which takes no time for each."""
    if not isinstance(offsets, range):
        yield pa.array(offsets, pa.int64())
        return
    for start in range(offsets.start, offsets.stop, ROWS_PER_BATCH):
        count = min(ROWS_PER_BATCH, offsets.stop - start)
        yield pc.add(_COUNTED.slice(0, count), pa.scalar(start, pa.int64()))


def _bytes_in(column: Sequence[bytes | None]) -> int:
    return sum(map(len, filter(None, column)))


def _numbers(numbers: array[int], kind: Any) -> Any:
    """An Arrow array that shares memory with a Python array, which must not change afterwards."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _header_lists(headers: Sequence[Headers | None]) -> Any:
    """A list column; null for a record without headers, as in Spark's Kafka source."""
    flat = [header for of_record in headers for header in of_record or ()]
    position = 0
    starts: list[int | None] = []
    for of_record in headers:
        starts.append(position if of_record else None)
        position += len(of_record or ())
    names = pa.array([name for name, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    structs = pa.StructArray.from_arrays([names, values], fields=list(_ARROW_HEADER))
    return pa.ListArray.from_arrays(
        pa.array([*starts, position], pa.int32()), structs, type=_ARROW_HEADERS[1]
    )
