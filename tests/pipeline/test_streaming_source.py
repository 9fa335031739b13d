"""spark.readStream.format("holdfast") in a real Spark session, against a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast_log import Admin, Message, NewTopic, Producer
from holdfast_log.pipeline.lag import lag
from tests.integration.waiting import until
from tests.pipeline.patience import NAME, PATIENT, PatientDataSource

WAIT_S = 300

Stream = Callable[..., DataFrame]


@pytest.fixture
def stream(spark: SparkSession, bootstrap: str) -> Stream:
    def stream(source: str = "holdfast", **options: str | bool | int) -> DataFrame:
        reader = spark.readStream.format(source).option("kafka.bootstrap.servers", bootstrap)
        return reader.options(**(PATIENT | options)).load()

    return stream


@pytest.fixture
def started(spark: SparkSession) -> Iterator[Callable[..., StreamingQuery]]:
    """Starts a query into a table of memory or a folder; every query is stopped afterwards."""
    queries: list[StreamingQuery] = []

    def start(frame: DataFrame, **trigger: str | bool) -> StreamingQuery:
        while True:
            writer = frame.writeStream.format("memory").queryName(f"into{time.monotonic_ns()}")
            queries.append(writer.trigger(**trigger).start() if trigger else writer.start())
            if not was_too_slow_to_start(queries[-1]):
                return queries[-1]

    yield start
    for query in queries:
        query.stop()


def was_too_slow_to_start(query: StreamingQuery) -> bool:
    """Whether Spark has given the query's Python process up: it waits 10 s, and no setting changes that."""
    while query.isActive and "Initializing" in query.status["message"]:
        time.sleep(0.1)
    return "failed to connect back" in str(query.exception())


def produce(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        sent = [
            producer.send(Message(topic, value=str(number), partition=number % partitions))
            for number in range(count)
        ]
        for each in sent:
            each.result()


def create(bootstrap: str, topic: str, partitions: int) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, partitions)])


def rows_read(spark: SparkSession, query: StreamingQuery) -> list[Row]:
    """All rows, once the query has read what is there."""
    query.processAllAvailable()
    return spark.table(query.name or "").collect()


def test_a_query_reads_new_records_and_new_partitions_once_and_reports_its_lag(
    spark: SparkSession, bootstrap: str, stream: Stream, started: Callable[..., StreamingQuery]
) -> None:
    create(bootstrap, "live", 2)
    produce(bootstrap, "live", 50, partitions=2)
    query = started(stream(subscribe="live", startingOffsets="earliest"))
    assert len(rows_read(spark, query)) == 50

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_partitions({"live": 3})
    produce(bootstrap, "live", 60, partitions=3)
    rows = rows_read(spark, query)

    found = sorted((row.partition, row.offset) for row in rows)
    assert found == [
        (partition, offset) for partition, end in ((0, 45), (1, 45), (2, 20)) for offset in range(end)
    ]
    progress = query.lastProgress
    assert progress is not None
    assert json.loads(progress.sources[0].endOffset) == {"live": {"0": 45, "1": 45, "2": 20}}
    assert lag(progress) == {"live-0": 0, "live-1": 0, "live-2": 0}


def test_a_topic_that_is_deleted_under_a_query_fails_it_before_any_timeout_of_the_client(
    bootstrap: str, stream: Stream, started: Callable[..., StreamingQuery]
) -> None:
    create(bootstrap, "doomed", 1)
    # Longer than the test waits: a look-up that waits for the topic to come back fails the test.
    timeout = {"kafka.default.api.timeout.ms": 2000 * WAIT_S}
    query = started(stream(subscribe="doomed", **timeout))
    wait_until_idle(query)

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.delete_topics(["doomed"])
    with pytest.raises(StreamingQueryException, match=r"deleted.*failOnDataLoss"):
        query.awaitTermination(WAIT_S)


def wait_until_idle(query: StreamingQuery) -> None:
    """Wait until the query has asked for offsets, so that the topic is deleted under it."""
    until(lambda: not query.isActive or query.lastProgress is not None, WAIT_S)
    assert query.isActive, query.exception()


def test_an_idle_query_with_the_default_trigger_does_not_spin_and_stops_at_once(
    spark: SparkSession, bootstrap: str, stream: Stream, started: Callable[..., StreamingQuery]
) -> None:
    create(bootstrap, "quiet", 1)
    produce(bootstrap, "quiet", 1)
    query = started(stream(subscribe="quiet", startingOffsets="earliest"))
    assert len(rows_read(spark, query)) == 1
    time.sleep(1.5)

    began = time.monotonic()
    query.stop()

    assert query.exception() is None
    assert time.monotonic() - began < WAIT_S / 2, "not after a wait for records"


def test_available_now_reads_in_limited_batches_and_continues_after_a_restart(
    spark: SparkSession, bootstrap: str, stream: Stream, tmp_path: Path
) -> None:
    create(bootstrap, "nightly", 2)
    produce(bootstrap, "nightly", 100, partitions=2)
    frame = stream(subscribe="nightly", startingOffsets="earliest", maxOffsetsPerTrigger=30)

    def run() -> list[int]:
        """The numbers of rows of the micro-batches of one run."""
        writer = frame.select("partition", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        if was_too_slow_to_start(query):
            return run()
        assert query.awaitTermination(WAIT_S)
        return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]

    assert run() == [30, 30, 30, 10]
    produce(bootstrap, "nightly", 20, partitions=2)
    assert run() == [20]

    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((row.partition, row.offset) for row in rows) == [
        (partition, offset) for partition in range(2) for offset in range(60)
    ]


def test_brokers_that_are_away_fail_a_query_with_their_address(
    stream: Stream, started: Callable[..., StreamingQuery]
) -> None:
    away = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.bootstrap.timeout.ms": "1000"}
    frame = stream(subscribe="t", **away)

    began = time.monotonic()
    query = started(frame, availableNow=True)
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        query.awaitTermination(WAIT_S)

    # The client gives up after 1 s; the rest is what a slow machine takes to start the query.
    assert time.monotonic() - began < 300


def test_a_query_with_a_reader_group_reads_what_it_owns_and_a_second_run_is_refused(
    spark: SparkSession, bootstrap: str, stream: Stream, started: Callable[..., StreamingQuery]
) -> None:
    create(bootstrap, "owned", 1)
    produce(bootstrap, "owned", 5)
    spark.dataSource.register(PatientDataSource)
    options = {"subscribe": "owned", "startingOffsets": "earliest", "readerGroup": "one-run"}
    frame = stream(NAME, **options)
    first = started(frame)
    assert len(rows_read(spark, first)) == 5

    second = started(frame, availableNow=True)
    with pytest.raises(Exception, match=r"another run reads owned-0 in the reader group one-run"):
        second.awaitTermination(WAIT_S)

    produce(bootstrap, "owned", 5)
    assert len(rows_read(spark, first)) == 10
    first.stop()
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        until(lambda: not any(row.owner_id for row in admin.describe_owners(["one-run"])), WAIT_S)
    third = started(frame, availableNow=True)
    assert third.awaitTermination(WAIT_S)
    assert len(rows_read(spark, third)) == 10
