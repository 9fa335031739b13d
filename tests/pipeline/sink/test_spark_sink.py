"""df.write and df.writeStream with format("holdfast") in a real Spark session, against a real broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast_log import Admin, NewTopic
from tests.pipeline.patience import PATIENT

WAIT_S = 300

_numbers = count()

Read = Callable[[str], list[tuple[int, str]]]
RunExample = Callable[[int, str], None]


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"spark-sink-{next(_numbers)}"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(name, 3)])
    return name


@pytest.fixture
def read(spark: SparkSession, bootstrap: str) -> Read:
    """(partition, value) of each record of a topic, in the order of the log."""

    def read(topic: str) -> list[tuple[int, str]]:
        reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
        frame = reader.options(subscribe=topic, **PATIENT).load()
        rows = frame.select("partition", "offset", "value").collect()
        return [(row.partition, row.value.decode()) for row in sorted(rows)]

    return read


def write(frame: DataFrame, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("holdfast").mode("append").option("kafka.bootstrap.servers", bootstrap)
    writer.options(**(PATIENT | options)).save()


def test_a_data_frame_is_written_with_the_columns_of_sparks_kafka_sink(
    spark: SparkSession, bootstrap: str, topic: str
) -> None:
    frame = spark.sql(
        f"""SELECT CAST(id AS STRING) AS key, CONCAT('v', id) AS value, '{topic}' AS topic,
            IF(id < 2, 1, NULL) AS partition,
            IF(id = 0, ARRAY(STRUCT('h' AS key, CAST('1' AS BINARY) AS value)), NULL) AS headers
            FROM RANGE(6)"""
    )

    write(frame, bootstrap)

    reader = spark.read.format("holdfast").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(subscribe=topic, includeHeaders=True, **PATIENT).load().collect()
    assert sorted((row.key.decode(), row.value.decode()) for row in rows) == [
        (str(number), f"v{number}") for number in range(6)
    ]
    assert {row.partition for row in rows if row.key in (b"0", b"1")} == {1}
    (first,) = [row for row in rows if row.key == b"0"]
    assert ("h", b"1") in [tuple(header) for header in first.headers]


def test_a_job_with_a_key_is_written_once(
    spark: SparkSession, bootstrap: str, topic: str, read: Read
) -> None:
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value").repartition(3)

    for _ in range(2):
        write(frame, bootstrap, topic=topic, jobKey=f"job of {topic}")

    assert sorted(int(value) for _, value in read(topic)) == list(range(100))
    write(frame, bootstrap, topic=topic)
    write(frame, bootstrap, topic=topic, delivery="at-least-once")
    assert len(read(topic)) == 300


def test_a_stream_is_written_once_over_restarts(
    spark: SparkSession, bootstrap: str, topic: str, read: Read, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()

    def run() -> None:
        source = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "1")
        query = (
            source.text(str(tmp_path / "in"))
            .writeStream.format("holdfast")
            .option("kafka.bootstrap.servers", bootstrap)
            .option("topic", topic)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .options(**PATIENT)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(WAIT_S)

    for number in range(4):
        (tmp_path / "in" / f"{number}.txt").write_text(f"{number}a\n{number}b\n")
        if number % 2:
            run()

    assert sorted(value for _, value in read(topic)) == sorted(
        f"{number}{letter}" for number in range(4) for letter in "ab"
    )


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("id AS value", {"topic": "t"}, "the column value is bigint: it must be STRING or BINARY"),
        ("CAST(id AS STRING) AS v", {"topic": "t"}, "there is no column value"),
        ("CAST(id AS STRING) AS value", {}, "no topic to write to"),
        ("CAST(id AS STRING) AS value", {"topic": "t", "deliver": "x"}, "did you mean delivery?"),
        ("CAST(id AS STRING) AS value", {"topic": "t", "delivery": "once"}, "at-least-once"),
        ("CAST(id AS STRING) AS value", {"topic": "t", "kafka.linger": "1"}, "linger.ms"),
        ("CAST(id AS STRING) AS value", {"topic": "t", "kafka.acks": "1"}, "needs kafka.acks=all"),
        ("CAST(id AS STRING) AS value, id AS headers", {"topic": "t"}, "array<struct<key:string"),
    ],
)
def test_invalid_writes_are_reported_before_any_task_runs(
    spark: SparkSession, bootstrap: str, columns: str, options: dict[str, str], expected: str
) -> None:
    frame = spark.range(3).selectExpr(*columns.split(", "))

    with pytest.raises(PySparkException) as raised:
        write(frame, bootstrap, **options)

    assert expected in str(raised.value)


def test_brokers_that_are_away_are_reported_with_their_address(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:1: cannot connect: Connection refused"):
        rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
        write(rows, "127.0.0.1:1", topic="t", **{"kafka.bootstrap.timeout.ms": "1000"})


PAGE = Path(__file__).parents[3] / "docs" / "spark-sink.md"


@pytest.fixture
def run_example(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunExample:
    """Runs one of the page's programs, numbered from 0, with its topic."""

    def run(number: int, topic: str) -> None:
        programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
        program = programs[number].replace("localhost:9092", bootstrap).replace("/tmp/", f"{tmp_path}/")
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics([NewTopic(topic, 3)])
        monkeypatch.chdir(tmp_path)
        exec(compile(program, str(PAGE), "exec"), {"__name__": "__main__"})

    return run


def test_the_streaming_example_of_the_page_writes_each_row_of_its_committed_micro_batches_once(
    spark: SparkSession, read: Read, tmp_path: Path, run_example: RunExample
) -> None:
    """The program stops its query at any moment, so the log may have some rows of one more micro-batch."""
    run_example(0, "numbers")

    commits = (tmp_path / "numbers-checkpoint" / "commits").iterdir()
    committed = 100 * (1 + max(int(each.name) for each in commits if each.name.isdecimal()))
    found = sorted(int(value) for _, value in read("numbers"))
    assert committed >= 300
    assert found[:committed] == list(range(committed))
    assert found == sorted(set(found)) and found[-1] < committed + 100


def test_the_batch_example_of_the_page_writes_each_row_once(
    spark: SparkSession, read: Read, run_example: RunExample
) -> None:
    run_example(1, "thousand")

    assert sorted(int(value) for _, value in read("thousand")) == list(range(1000))
