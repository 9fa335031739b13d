"""spark.read.format("holdfast") in a real Spark session, against a real broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast_log.pipeline.arrow import ROWS_PER_BATCH
from tests.pipeline.patience import PATIENT

EPOCH_MS = 1_700_000_000_000
PARTITIONS = 3
PER_PARTITION = 400
WAIT_S = 300

Load = Callable[..., DataFrame]


def producer_of(bootstrap: str, settings: Mapping[str, str | int] = MappingProxyType({})) -> Producer:
    """A producer that writes each record once, however late an answer or a new topic is."""
    patient = {"enable.idempotence": True, "topic.metadata.propagation.max.ms": WAIT_S * 1000}
    return Producer({"bootstrap.servers": bootstrap, "on_delivery": must_be_written, **patient, **settings})


def must_be_written(error: KafkaError | None, _: object) -> None:
    if error is not None:
        raise KafkaException(error)


def flush(producer: Producer) -> None:
    """Wait until all records are written."""
    assert producer.flush(WAIT_S) == 0


@pytest.fixture(scope="module")
def events(bootstrap: str) -> str:
    """A topic: offset n of each partition has the value "n", the key "n mod 7", and a time n seconds on.

    Records with an odd number have headers; every tenth has no key.
    """
    topic = "events"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(WAIT_S)
    producer = producer_of(bootstrap, {"compression.type": "zstd", "batch.size": 4000})
    for number in range(PER_PARTITION):
        for partition in range(PARTITIONS):
            producer.produce(
                topic,
                value=str(number).encode(),
                key=None if number % 10 == 0 else str(number % 7).encode(),
                partition=partition,
                timestamp=EPOCH_MS + number * 1000,
                headers=[("number", str(number).encode()), ("null", None)] if number % 2 else None,
            )
    flush(producer)
    return topic


@pytest.fixture
def load(spark: SparkSession, bootstrap: str) -> Load:
    def load(**options: str | bool | int) -> DataFrame:
        reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**(PATIENT | options)).load()

    return load


def test_every_record_is_read_once(load: Load, events: str) -> None:
    rows = load(subscribe=events).select("partition", "offset", "value").collect()

    assert sorted((row.partition, row.offset, int(row.value)) for row in rows) == [
        (partition, number, number) for partition in range(PARTITIONS) for number in range(PER_PARTITION)
    ]


def test_a_topic_partition_is_a_spark_partition_read_in_order(load: Load, events: str) -> None:
    frame = load(subscribe=events)

    parts = frame.select("partition", "offset").rdd.glom().collect()

    assert [[tuple(row) for row in part] for part in parts] == [
        [(partition, offset) for offset in range(PER_PARTITION)] for partition in range(PARTITIONS)
    ]


def test_columns_are_those_of_sparks_kafka_source(load: Load, events: str) -> None:
    frame = load(assign=f'{{"{events}": [1]}}', includeHeaders=True)

    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    even, odd = frame.where("offset in (20, 21)").orderBy("offset").collect()
    at = datetime.fromtimestamp(EPOCH_MS / 1000, UTC).replace(tzinfo=None) + timedelta(seconds=20)
    assert even.asDict(recursive=True) | {"timestamp": None} == {
        "key": None,
        "value": b"20",
        "topic": events,
        "partition": 1,
        "offset": 20,
        "timestamp": None,
        "timestampType": 0,
        "headers": None,
    }
    assert frame.where("offset = 20").selectExpr("cast(timestamp as string)").first() == (str(at),)
    assert odd.key == b"0"
    assert odd.headers == [("number", b"21"), ("null", None)]


def test_a_part_of_each_partition_is_read_exactly(load: Load, events: str) -> None:
    frame = load(
        subscribe=events,
        startingOffsets=f'{{"{events}": {{"0": 10, "1": -2, "2": 399}}}}',
        endingOffsets=f'{{"{events}": {{"0": 13, "1": 2, "2": -1}}}}',
    )

    found = sorted((row.partition, row.offset) for row in frame.collect())

    assert found == [(0, 10), (0, 11), (0, 12), (1, 0), (1, 1), (2, 399)]


def test_times_bound_a_read(load: Load, events: str) -> None:
    frame = load(subscribe=events, startingTimestamp=EPOCH_MS + 99_500, endingTimestamp=EPOCH_MS + 102_000)

    assert sorted((row.partition, row.offset) for row in frame.collect()) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in (100, 101)
    ]


def test_partitions_are_cut_on_request(load: Load, events: str) -> None:
    frame = load(subscribe=events, minPartitions=7)

    sizes = [len(part) for part in frame.select("offset").rdd.glom().collect()]

    assert len(sizes) >= 7
    assert sum(sizes) == PARTITIONS * PER_PARTITION


def test_a_plan_is_kept_while_the_topic_grows(load: Load, bootstrap: str) -> None:
    topic = "growing"
    producer = producer_of(bootstrap)
    producer.produce(topic, b"1")
    flush(producer)
    frame = load(subscribe=topic).cache()
    assert frame.count() == 1

    producer.produce(topic, b"2")
    flush(producer)

    assert frame.count() == 1
    assert load(subscribe=topic).count() == 2


def test_an_empty_topic_gives_no_rows(load: Load, events: str) -> None:
    frame = load(assign=f'{{"{events}": [0]}}', endingOffsets=f'{{"{events}": {{"0": 0}}}}')

    assert frame.collect() == []


def test_more_records_than_fit_an_arrow_batch_are_read(load: Load, bootstrap: str) -> None:
    count = ROWS_PER_BATCH + 1000
    producer = producer_of(bootstrap, {"linger.ms": 50, "queue.buffering.max.messages": 200_000})
    for number in range(count):
        producer.produce("many", str(number).encode())
    flush(producer)

    frame = load(subscribe="many").selectExpr("count(*)", "count(distinct value)", "max(offset)")

    assert tuple(frame.first() or ()) == (count, count, count - 1)


def test_records_deleted_by_the_broker_are_not_missed_silently(load: Load, bootstrap: str) -> None:
    topic = "trimmed"
    producer = producer_of(bootstrap)
    for number in range(10):
        producer.produce(topic, str(number).encode())
    flush(producer)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        deleted.result(WAIT_S)
    asked = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 2}}}}'}

    with pytest.raises(PySparkException, match="failOnDataLoss"):
        load(**asked).collect()
    rows = load(**asked, failOnDataLoss=False).collect()

    assert [row.offset for row in rows] == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "no-such-topic"}, "there is no topic no-such-topic"),
        ({"subscribe": "events", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"subscribe": "events", "kafka.fetch.max.byte": "1"}, "fetch.max.bytes"),
        ({"subscribe": "events", "kafka.auto.offset.reset": "latest"}, "startingOffsets says where"),
    ],
)
def test_invalid_options_are_reported_before_any_task_runs(
    load: Load, events: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        load(**options).collect()

    assert expected in str(raised.value)


def test_a_schema_of_the_users_own_is_refused(spark: SparkSession, bootstrap: str, events: str) -> None:
    reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", bootstrap).schema("value string")

    with pytest.raises(PySparkException, match=r"and use \.select"):
        reader.option("subscribe", events).load().collect()
