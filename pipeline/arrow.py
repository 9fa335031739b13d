"""Makes Arrow record batches of encoded records, without a Python object for each row.

Spark accepts a batch only if its schema equals the announced one, nullability included, so this file has both
schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
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

from holdfast_log.clients.fetching.fetched import EncodedBatch
from holdfast_log.protocol.arrow_columns import ArrowColumns, BinaryParts, ColumnParts, HeaderParts
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.protocol.wire import Buffer

ROWS_PER_BATCH = 32_768
"""Most rows of a batch that goes to Spark."""
BYTES_PER_BATCH = 32 * 2**20
"""Most bytes of keys, values and headers in a batch that goes to Spark. A larger record is a batch alone."""

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
    """Collects the records of one partition until they are enough for a Spark batch."""

    def __init__(self, partition: TopicPartition, include_headers: bool) -> None:
        self._partition = partition
        self._schema = arrow_schema(include_headers)
        self._columns = ArrowColumns(
            has_headers=include_headers, row_limit=ROWS_PER_BATCH, byte_limit=BYTES_PER_BATCH
        )

    def __len__(self) -> int:
        """Number of collected rows."""
        return len(self._columns)

    def add(self, batch: EncodedBatch, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Add the records with offsets in [start, end); yield a Spark batch whenever one is full.

        The iterator must be read to its end. Raises BrokerError (CORRUPT_MESSAGE) for records that are not
        well-formed, and OverflowError for a timestamp or a record that Arrow cannot hold.
        """
        try:
            for parts in self._columns.add(batch.records, batch.header, max(start, batch.start), end):
                yield self._record_batch(parts)
        except BrokerError as error:
            raise error_for(error.code, f"{self._name(batch)}: {error.message}") from None
        except OverflowError as error:
            raise OverflowError(f"{self._name(batch)}: {error}") from None

    def take(self) -> pa.RecordBatch:
        """Return the collected rows as a batch, and clear them."""
        return self._record_batch(self._columns.take())

    def _name(self, batch: EncodedBatch) -> str:
        return f"{self._partition}, batch at offset {batch.header.base_offset}"

    def _record_batch(self, parts: ColumnParts) -> pa.RecordBatch:
        rows, keys, values, offsets, timestamps, timestamp_types, headers = parts
        columns = [
            _binary(rows, keys),
            _binary(rows, values),
            pa.repeat(self._partition.topic, rows),
            pa.repeat(pa.scalar(self._partition.partition, pa.int32()), rows),
            _array(pa.int64(), rows, None, offsets),
            _array(pa.timestamp("us", "UTC"), rows, None, timestamps),
            _array(pa.int32(), rows, None, timestamp_types),
        ]
        if headers is not None:
            columns.append(_header_lists(rows, headers))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _array(kind: Any, count: int, *buffers: Buffer | None, nulls: int = 0) -> Any:
    """An Arrow array that shares memory with the buffers, which must not change afterwards."""
    shared = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(kind, count, shared, nulls)


def _binary(count: int, parts: BinaryParts) -> Any:
    nulls, *buffers = parts
    return _array(pa.binary(), count, *buffers, nulls=nulls)


def _header_lists(rows: int, parts: HeaderParts) -> Any:
    """A list column; null for a record without headers, as in Spark's Kafka source."""
    nulls, validity, ends, count, name_ends, names, contents = parts
    headers = pa.StructArray.from_arrays(
        [_array(pa.string(), count, None, name_ends, names), _binary(count, contents)],
        fields=list(_ARROW_HEADER),
    )
    buffers = [pa.py_buffer(validity), pa.py_buffer(ends)]
    return pa.Array.from_buffers(_ARROW_HEADERS[1], rows, buffers, nulls, children=[headers])
