"""Rows to a topic, exactly once: the plan is published first, then rows are appended at fixed offsets.

A run that is killed has left its plan in the ledger: which rows, and the offset at which each partition's
rows begin. The next run carries out the same plan, and skips the rows that are in the log already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, IntegerType, IntegralType, StructField, StructType

from holdfast_log import Consumer, Message, Producer, TopicPartition, UnknownTopicOrPartitionError
from holdfast_log.clients.config import CONSUMER_ROWS, PRODUCER_ROWS
from holdfast_log.pipeline.cluster import properties_for
from holdfast_log.pipeline.jobs.append import OutRow, Pending, append_rows
from holdfast_log.pipeline.jobs.run import JobError, JobRun
from holdfast_log.protocol.batches import TimestampType
from holdfast_log.protocol.key_hash import murmur2

PLAN = "plan"
TARGET = "_target"
_READ_MS = 10_000
_RESULT = "partition int, appended bigint, present bigint"
HEADERS = "array<struct<key:string,value:binary>>"
"""The type of the column headers of Spark's Kafka source."""

ClientProperties = Mapping[str, str]
Bases = Mapping[str, int]


def bases_of(client: ClientProperties, topic: str) -> dict[str, int]:
    """The end of each partition of a topic, where a plan's rows begin. Raises `JobError`."""
    with _consumer(client) as consumer:
        try:
            numbers = consumer.partitions_for(topic)
        except UnknownTopicOrPartitionError:
            raise JobError(f"there is no topic {topic}: create it first, with scripts/topics.sh") from None
        ends = consumer.end_offsets(TopicPartition(topic, number) for number in numbers)
    return {str(found.partition): end for found, end in sorted(ends.items())}


def planned(
    run: JobRun, make: Callable[[], Mapping[str, Any]], offsets: Mapping[str, Mapping[str, int]]
) -> Mapping[str, Any]:
    """The plan to carry out: that of a killed run if there is one, otherwise a new one, published at once."""
    last = run.ledger.last_result()
    if last is not None and last.kind == PLAN:
        run.report.details["resumed"] = last.run
        return last.details
    plan = make()
    run.finish(PLAN, offsets, [], plan)
    return plan


def publish(
    run: JobRun, client: ClientProperties, topic: str, bases: Bases, rows: DataFrame, order: Sequence[str]
) -> None:
    """Append rows with the columns key and value, and what `order` names; counts them in the report.

    A key or a value that is neither bytes nor text is written as the text that Spark makes of it. A column
    headers has each row's headers, with the type of `HEADERS`, and a column timestamp its time; both
    may be left out. A null timestamp is the time at which the row is appended. Raises `JobError` for columns
    of another type.

    `order` must put the rows of a partition into the same order in every attempt. A row with a key goes to
    the partition that Kafka's clients choose for it; one without goes where a hash of its value says.
    """
    count = len(bases)
    out = rows.select(_bytes(rows, "key"), _bytes(rows, "value"), _headers(rows), _timestamp(rows), *order)
    placed = out.mapInArrow(_PlaceTask(count), StructType([*out.schema, StructField(TARGET, IntegerType())]))
    parts = placed.repartitionById(count, f.col(TARGET)).sortWithinPartitions(TARGET, *order, "key", "value")
    task = _AppendTask(dict(client), topic, {int(partition): base for partition, base in bases.items()})
    columns = parts.select("key", "value", "headers", "timestamp", TARGET)
    with run.phase("write"):
        answers = columns.mapInArrow(task, _RESULT).collect()
    run.report.records = sum(answer.appended for answer in answers)
    run.report.details["already present"] = sum(answer.present for answer in answers)
    run.report.details["partitions"] = {
        answer.partition: {"appended": answer.appended, "already present": answer.present}
        for answer in answers
    }


def _bytes(rows: DataFrame, name: str) -> Column:
    is_binary = isinstance(rows.schema[name].dataType, BinaryType)
    return f.col(name) if is_binary else f.col(name).cast("string").cast("binary").alias(name)


def _headers(rows: DataFrame) -> Column:
    if "headers" not in rows.columns:
        return f.lit(None).cast(HEADERS).alias("headers")
    return _cast(rows, "headers", HEADERS)


def _timestamp(rows: DataFrame) -> Column:
    """The column timestamp in ms since 1970. A number has that unit already."""
    if "timestamp" not in rows.columns:
        return f.lit(None).cast("bigint").alias("timestamp")
    if isinstance(rows.schema["timestamp"].dataType, IntegralType):
        return f.col("timestamp").cast("bigint").alias("timestamp")
    return f.unix_millis(_cast(rows, "timestamp", "timestamp")).alias("timestamp")


def _cast(rows: DataFrame, name: str, kind: str) -> Column:
    try:
        cast = rows.select(f.col(name).cast(kind))
        _ = cast.schema  # Only now does Spark look at the types.
    except PySparkException:
        found = rows.schema[name].dataType.simpleString()
        raise JobError(f"the column {name} must have the type {kind}, not {found}") from None
    return f.col(name).cast(kind).alias(name)


@dataclass(frozen=True, slots=True)
class _PlaceTask:
    """Adds the column `TARGET`, in Spark's tasks."""

    count: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
            targets = [self._target(key, value) for key, value in zip(keys, values, strict=True)]
            columns = [*batch.columns, pa.array(targets, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, TARGET])

    def _target(self, key: bytes | None, value: bytes | None) -> int:
        return (murmur2((value or b"") if key is None else key) & 0x7FFFFFFF) % self.count


@dataclass(frozen=True, slots=True)
class _AppendTask:
    """Runs in Spark's tasks."""

    client: ClientProperties
    topic: str
    bases: Mapping[int, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in _rows_in(batch))
        found = []
        own = properties_for(PRODUCER_ROWS, self.client)
        with Producer({"compression.type": "lz4", **own, "acks": "all"}) as producer:
            for number, of_partition in groupby(rows, key=lambda row: row[0]):
                log = _PartitionLog(self.client, producer, TopicPartition(self.topic, number))
                with log.consumer:
                    done = append_rows((row for _, row in of_partition), log, self.bases[number])
                found.append({"partition": number, "appended": done.appended, "present": done.present})
        schema = pa.schema([("partition", pa.int32()), ("appended", pa.int64()), ("present", pa.int64())])
        yield pa.RecordBatch.from_pylist(found, schema=schema)


def _rows_in(batch: pa.RecordBatch) -> Iterator[tuple[int, OutRow]]:
    for key, value, headers, timestamp, target in zip(
        *(column.to_pylist() for column in batch.columns), strict=True
    ):
        pairs = tuple((header["key"], header["value"]) for header in headers or ())
        yield target, OutRow(key, value, pairs, timestamp)


def _consumer(client: ClientProperties) -> Consumer:
    return Consumer({**properties_for(CONSUMER_ROWS, client), "auto.offset.reset": "none"})


class _PartitionLog:
    """`pipeline.jobs.append.TargetLog` through the clients."""

    def __init__(self, client: ClientProperties, producer: Producer, partition: TopicPartition) -> None:
        self.consumer = _consumer(client)
        self._producer = producer
        self._partition = partition

    def end(self) -> int:
        return self.consumer.end_offsets([self._partition])[self._partition]

    def record_at(self, offset: int) -> OutRow:
        if self._partition not in self.consumer.assignment():
            self.consumer.add_topic(*self._partition)
        self.consumer.seek(self._partition, offset)
        for record in self.consumer.poll(_READ_MS, max_records=1):
            if record.offset == offset:
                is_own_time = record.timestamp_type is TimestampType.CREATE_TIME
                timestamp_ms = record.timestamp if is_own_time else None
                return OutRow(record.key, record.value, tuple(record.headers), timestamp_ms)
        raise JobError(f"the record at offset {offset} of {self._partition} cannot be read")

    def append(self, offset: int, rows: Sequence[OutRow]) -> Pending:
        topic, number = self._partition
        messages = [Message(topic, row.key, row.value, number, row.timestamp_ms, row.headers) for row in rows]
        return self._producer.send_at(offset, *messages)
