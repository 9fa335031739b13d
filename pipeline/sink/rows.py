"""From the columns of a data frame to the rows of topic partitions.

The columns are those of Spark's Kafka sink: value (required), key, headers, topic and partition. Other
columns are left out, as Spark's sink does. A row goes to the partition that it names, else to the one that
its key's hash chooses as in Kafka's producer. Rows without a key go to one partition for each task and
micro-batch. So a retry maps every row as the first attempt did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

from clients.sending.partitioner import murmur2
from pipeline.options import OptionError
from pipeline.sink.chunks import NO_HEADERS, RowColumns
from pipeline.sink.line import SinkError
from protocol.records import Headers
from protocol.topic_partition import TopicPartition

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
        names = batch.schema.names
        count, existing = self._counts(topic)
        keys: Sequence[bytes | None] | None = None
        if "key" in names:
            keys = _binary(batch.column(names.index("key")))
        values = _binary(batch.column(names.index("value")))
        headers = _headers(batch.column(names.index("headers"))) if "headers" in names else None
        own = self._turn % count
        named = batch.column(names.index("partition")) if "partition" in names else None
        if named is not None and named.null_count == len(named):
            named = None
        if named is None and (keys is None or count == 1 or not any(key is not None for key in keys)):
            all_keys: list[bytes | None] = [None] * len(values) if keys is None else list(keys)
            return {TopicPartition(topic, own): RowColumns(all_keys, values, headers)}
        hashed: Sequence[bytes | None] = [None] * len(values) if keys is None else keys
        # Plain names and one comprehension: this is most of what a row costs.
        places = [own if key is None else (murmur2(key) & 0x7FFFFFFF) % count for key in hashed]
        if named is not None:
            asked = named.to_pylist()
            wrong = {number for number in asked if number is not None and not 0 <= number < existing}
            if wrong:
                raise RowError(f"a row names partition {min(wrong)} of {topic}, which has {existing}, from 0")
            places = [at if number is None else number for at, number in zip(places, asked, strict=True)]
        return _divided(topic, places, hashed, values, headers)


def _divided(
    topic: str,
    places: Sequence[int],
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    headers: Sequence[Headers] | None,
) -> dict[TopicPartition, RowColumns]:
    found = {place: RowColumns([], [], None if headers is None else []) for place in sorted(set(places))}
    if headers is None:
        adders = {place: (rows.keys.append, rows.values.append) for place, rows in found.items()}
        for place, key, value in zip(places, keys, values, strict=True):
            add_key, add_value = adders[place]
            add_key(key)
            add_value(value)
    else:
        for place, key, value, of_row in zip(places, keys, values, headers, strict=True):
            rows = found[place]
            rows.keys.append(key)
            rows.values.append(value)
            assert rows.headers is not None
            rows.headers.append(of_row)
    return {TopicPartition(topic, place): rows for place, rows in found.items()}


def _binary(column: Any) -> list[bytes | None]:
    if pa.types.is_string(column.type):
        column = column.cast(pa.binary())
    elif pa.types.is_large_string(column.type):
        column = column.cast(pa.large_binary())
    found: list[bytes | None] = column.to_pylist()
    return found


def _headers(column: Any) -> list[Headers] | None:
    """The headers of each row; None if no row has any."""
    if column.null_count == len(column):
        return None
    found = [
        tuple([(header["key"], header["value"]) for header in of_row]) if of_row else NO_HEADERS
        for of_row in column.to_pylist()
    ]
    return found if any(found) else None
