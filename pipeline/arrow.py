"""Converts decoded columns to Arrow record batches without creating a Python object per row.

Spark accepts a batch only if its schema equals the announced one, nullability included, so this file has both
schemas.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
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
    """Collects the columns of one partition until they are large enough for a Spark batch."""

    def __init__(self, partition: TopicPartition, include_headers: bool) -> None:
        self._partition = partition
        self._include_headers = include_headers
        self._schema = arrow_schema(include_headers)
        self._clear()

    def _clear(self) -> None:
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets = array("q")
        self._timestamps = array("q")
        self._timestamp_types = array("i")
        self._headers: list[Headers | None] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    @property
    def is_full(self) -> bool:
        return len(self._values) >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def add(self, columns: Columns, timestamp_type: int, start: int, end: int) -> None:
        """Add the records with offsets in [start, end)."""
        low, high = bisect_left(columns.offsets, start), bisect_left(columns.offsets, end)
        if low == high:
            return
        keys, values = columns.keys[low:high], columns.values[low:high]
        self._keys += keys
        self._values += values
        self._offsets.extend(columns.offsets[low:high])
        self._timestamps.extend(columns.timestamps[low:high])
        self._timestamp_types.extend(array("i", [timestamp_type]) * len(values))
        self._bytes += _bytes_in(keys) + _bytes_in(values)
        if self._include_headers:
            self._headers += columns.headers[low:high] if columns.headers else [None] * len(values)

    def take(self) -> pa.RecordBatch:
        """Return the collected columns as a batch, and clear them."""
        count = len(self._values)
        columns = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.repeat(self._partition.topic, count),
            pa.repeat(pa.scalar(self._partition.partition, pa.int32()), count),
            _numbers(self._offsets, pa.int64()),
            _numbers(self._timestamps, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            _numbers(self._timestamp_types, pa.int32()),
        ]
        if self._include_headers:
            columns.append(_header_lists(self._headers))
        self._clear()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


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
