"""From the columns of a data frame to the rows of topic partitions.

The columns are those of Spark's Kafka sink: value (required), key, headers, topic and partition. Other
columns are left out, as Spark's sink does. A row goes to the partition that it names, else to the one that
its key's hash chooses as in Kafka's producer. Rows without a key go to one partition for each task and
micro-batch. So a retry maps every row as the first attempt did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.sink.chunks import NO_HEADERS, RowColumns
from holdfast_log.pipeline.sink.line import SinkError
from holdfast_log.protocol.key_hash import places
from holdfast_log.protocol.records import Headers
from holdfast_log.protocol.topic_partition import TopicPartition

_HEADERS_TYPE = "array<struct<key:string,value:binary>>"


class RowError(SinkError):
    """A row cannot be written: it names no topic, or a partition that does not exist."""


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise `OptionError` unless the columns can be written."""
    columns = {field.name: field.dataType for field in schema.fields}
    if "value" not in columns:
        raise OptionError(
            f"there is no column value: the columns are {', '.join(columns)}. Name the column to write: "
            'df.selectExpr("CAST(id AS STRING) AS key", "to_json(struct(*)) AS value")'
        )
    if topic is None and "topic" not in columns:
        raise OptionError('no topic to write to: give .option("topic", "name"), or a column topic')
    for name in ("key", "value"):
        _check(columns, name, (StringType, BinaryType), "STRING or BINARY")
    _check(columns, "topic", (StringType,), "STRING")
    _check(columns, "partition", (IntegerType,), "INT")
    if "headers" in columns and not _are_headers(columns["headers"]):
        found = columns["headers"].simpleString()
        raise OptionError(f"the column headers is {found}: it must be {_HEADERS_TYPE}")


def _check(columns: Mapping[str, DataType], name: str, kinds: tuple[type, ...], expected: str) -> None:
    found = columns.get(name)
    if found is not None and not isinstance(found, kinds):
        raise OptionError(
            f"the column {name} is {found.simpleString()}: it must be {expected}, so CAST({name} AS "
            f"{expected.split()[0]})"
        )


def _are_headers(found: DataType) -> bool:
    return (
        isinstance(found, ArrayType)
        and isinstance(found.elementType, StructType)
        and found.elementType.fieldNames() == ["key", "value"]
        and isinstance(found.elementType["key"].dataType, StringType)
        and isinstance(found.elementType["value"].dataType, BinaryType)
    )


class RowSplitter:
    """Divides the record batches of one task by topic partition.

    `topic` is the topic of all rows, None if each names its own. `counts` gives for a topic the number of
    partitions over which keys are distributed, and the number of all that exist; it raises for a topic that
    does not exist. Rows without a key and a partition go to partition `turn` modulo the first number.
    """

    def __init__(self, topic: str | None, counts: Callable[[str], tuple[int, int]], turn: int) -> None:
        self._topic = topic
        self._counts = counts
        self._turn = turn

    def split(self, batch: Any) -> dict[TopicPartition, RowColumns]:
        """The rows of a record batch by topic partition, in order. Raises `RowError`."""
        if not batch.num_rows:
            return {}
        names = batch.schema.names
        if self._topic is not None:
            return self._split_topic(self._topic, batch)
        topics = batch.column(names.index("topic"))
        if topics.null_count:
            raise RowError('the column topic is null in a row: give .option("topic", "name"), or drop it')
        found: dict[TopicPartition, RowColumns] = {}
        for topic in pc.unique(topics).to_pylist():
            found |= self._split_topic(topic, batch.filter(pc.equal(topics, topic)))
        return found

    def _split_topic(self, topic: str, batch: Any) -> dict[TopicPartition, RowColumns]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        count, existing = self._counts(topic)
        values = _binary(columns["value"])
        keys = _binary(columns["key"]) if "key" in columns else None
        headers = columns.get("headers")
        if headers is not None and headers.null_count == len(headers):
            headers = None
        named = columns.get("partition")
        if named is not None and named.null_count == len(named):
            named = None
        own = self._turn % count
        if named is None and (count == 1 or keys is None or keys.null_count == len(keys)):
            return {TopicPartition(topic, own): _rows(keys, values, headers)}
        targets = _places(keys, len(values), count, own)
        if named is not None:
            _check_named(topic, named, existing)
            targets = pc.coalesce(named, targets)
        order = pc.sort_indices(targets)  # Stable: rows of one partition keep their order.
        keys, values, headers = [
            None if column is None else column.take(order) for column in (keys, values, headers)
        ]
        found = {}
        start = 0
        sizes = {each["values"]: each["counts"] for each in pc.value_counts(targets).to_pylist()}
        for place, size in sorted(sizes.items()):
            part = [
                None if column is None else column.slice(start, size) for column in (keys, values, headers)
            ]
            found[TopicPartition(topic, place)] = _rows(*part)
            start += size
        return found


def _places(keys: Any | None, rows: int, count: int, own: int) -> Any:
    """The partition of each row by its key, as an Arrow array; `own` for rows without a key."""
    if keys is None:
        return pa.repeat(pa.scalar(own, pa.int32()), rows)
    valid, ends, data = keys.buffers()
    found = places(ends, data or b"", valid, keys.offset, rows, count, own)
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(found)])


def _check_named(topic: str, named: Any, existing: int) -> None:
    """Raise `RowError` if a row names a partition that does not exist."""
    span = pc.min_max(named).as_py()
    if span["min"] < 0 or span["max"] >= existing:
        wrong = min(
            number for number in named.to_pylist() if number is not None and not 0 <= number < existing
        )
        raise RowError(f"a row names partition {wrong} of {topic}, which has {existing}, from 0")


def _rows(keys: Any | None, values: Any, headers: Any | None) -> RowColumns:
    found: list[bytes | None] = values.to_pylist()
    return RowColumns(
        [None] * len(found) if keys is None else keys.to_pylist(),
        found,
        None if headers is None else _headers(headers),
    )


def _binary(column: Any) -> Any:
    """The column as an Arrow array of binary values."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: Any) -> list[Headers] | None:
    """The headers of each row; None if no row has any."""
    found = [
        tuple([(header["key"], header["value"]) for header in of_row]) if of_row else NO_HEADERS
        for of_row in column.to_pylist()
    ]
    return found if any(found) else None
