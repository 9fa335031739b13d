"""The jobs in a real Spark session, against a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import DataFrame, SparkSession

from holdfast_log import Admin, Consumer, ConsumerRecord, Lease, Message, NewTopic, Producer, TopicPartition
from holdfast_log.pipeline.jobs import publish
from holdfast_log.pipeline.jobs.__main__ import main
from holdfast_log.pipeline.jobs.append import ForeignRecordsError
from holdfast_log.pipeline.jobs.bulk import BulkJob, bulk
from holdfast_log.pipeline.jobs.load import LoadJob, load
from holdfast_log.pipeline.jobs.page import page_of, read_reports, write_report
from holdfast_log.pipeline.jobs.run import LEASE_GROUP, JobError
from holdfast_log.pipeline.jobs.snapshot import SnapshotJob, snapshot
from holdfast_log.pipeline.jobs.tables import TableShape, read_table
from holdfast_log.pipeline.jobs.transform import TransformJob, transform
from tests.pipeline.patience import PATIENT

SCHEMA = "carrier string, delay int"


@pytest.fixture
def topic(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own, with three partitions."""
    name = request.node.name.replace("[", "-").replace("]", "")[:200]
    create(bootstrap, name, 3)
    return name


def create(bootstrap: str, name: str, partitions: int, **configs: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(name, partitions, configs=configs)])


def produce(bootstrap: str, topic: str, values: list[str], keys: list[str] | None = None) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number, value in enumerate(values):
            key = keys[number] if keys else None
            partition = None if keys else number % 3
            producer.send(Message(topic, key=key, value=value, partition=partition))


def consumed(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Key and value of every record of a topic."""
    return [(record.key, record.value) for record in records_of(bootstrap, topic)]


def source(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **PATIENT}


def flight(number: int) -> str:
    return json.dumps({"carrier": "UA" if number % 2 else "AA", "delay": number})


def test_each_run_of_a_load_adds_what_is_new_as_typed_and_partitioned_rows(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, [flight(number) for number in range(30)])
    shape = TableShape(SCHEMA, partition_by=("date", "carrier"))
    job = LoadJob(source(bootstrap, topic), tmp_path / "table", shape)

    first = load(spark, job)
    produce(bootstrap, topic, [flight(number) for number in range(30, 40)])
    second, third = load(spark, job), load(spark, job)

    assert (first.status, first.records) == ("done", 30)
    assert (second.status, second.records) == ("done", 10)
    assert (third.status, third.records) == ("nothing new", 0)
    rows = read_table(spark, tmp_path / "table").orderBy("delay").collect()
    assert [row.delay for row in rows] == list(range(40))
    assert rows[7].carrier == "UA"
    assert {(row._partition, row._offset) for row in rows} == {
        (partition, offset) for partition, end in ((0, 14), (1, 13), (2, 13)) for offset in range(end)
    }
    assert list((tmp_path / "table" / "data").glob("run=*/date=*/carrier=UA/*.parquet"))


def test_two_runs_at_once_one_wins_and_the_other_is_told_why(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, ["1"])
    place = (tmp_path / "table").resolve()
    job = LoadJob(source(bootstrap, topic), place, TableShape())

    lease = Lease(
        {"bootstrap.servers": bootstrap},
        LEASE_GROUP,
        [str(place)],
        owner_id="the other run",
        session_timeout_ms=600_000,  # It must not expire, however late its renewals are.
    )

    with (
        lease,
        pytest.raises(JobError, match=r"another run of a job works on .*the other run"),
    ):
        load(spark, job)

    assert not place.exists()
    assert load(spark, job).records == 1


def test_a_value_that_does_not_fit_the_schema_fails_the_load_or_is_kept(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, [flight(0), "no json"])
    failing = LoadJob(source(bootstrap, topic), tmp_path / "table", TableShape(SCHEMA))

    with pytest.raises(Exception, match=r"(?i)malformed"):
        load(spark, failing)
    load(spark, LoadJob(source(bootstrap, topic), tmp_path / "table", TableShape(SCHEMA, True)))

    rows = read_table(spark, tmp_path / "table").collect()
    assert sorted((row.delay, row._corrupt_record) for row in rows if row.delay is not None) == [(0, None)]
    assert [row._corrupt_record for row in rows if row.delay is None] == ["no json"]
    with pytest.raises(JobError, match="neither DDL nor JSON"):
        load(spark, LoadJob(source(bootstrap, topic), tmp_path / "other", TableShape("carrier strin g h")))


def test_a_snapshot_has_the_last_record_of_each_key(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    job = SnapshotJob(source(bootstrap, topic), tmp_path / "table")
    produce(bootstrap, topic, ["1", "2", "3"], keys=["a", "b", "a"])
    snapshot(spark, job)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(Message(topic, key="b", value=None))
        producer.send(Message(topic, key="c", value="5"))
    for _ in range(3):
        snapshot(spark, job)

    rows = read_table(spark, tmp_path / "table").collect()

    assert sorted((bytes(row.key), bytes(row.value)) for row in rows) == [(b"a", b"3"), (b"c", b"5")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_files_are_loaded_once_although_the_first_run_fails_in_the_middle(
    kind: str,
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frame = spark.range(500).selectExpr("concat('key', id % 50) AS name", "id AS number")
    frame.repartition(3).write.option("header", "true").format(kind).save(str(tmp_path / "files"))
    client = {"bootstrap.servers": bootstrap, "linger.ms": "5", "fetch.max.bytes": "1000000"}
    job = BulkJob(client, topic, tmp_path / "files", tmp_path / "state", kind, key="name")
    with monkeypatch.context() as patched:
        # The plan is published, the rows of one partition are appended, and then the driver fails.
        patched.setattr(publish, "_AppendTask", failing_after_one)
        with pytest.raises(Exception, match="broken on purpose"):
            bulk(spark, job)
    present = len(consumed(bootstrap, topic))

    again, third = bulk(spark, job), bulk(spark, job)

    assert 0 < present < 500
    assert (again.records, again.details["already present"]) == (500 - present, present)
    assert third.status == "nothing new"
    values = [json.loads(value or b"") for _, value in consumed(bootstrap, topic)]
    assert sorted(int(value["number"]) for value in values) == list(range(500))


def failing_after_one(
    client: Mapping[str, str], topic: str, bases: Mapping[int, int]
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A task that appends the rows of partition 0; those of the other partitions fail once that is done."""

    def task(batches: Iterator[Any]) -> Iterator[Any]:
        from holdfast_log.pipeline.jobs.publish import _AppendTask

        rows = list(batches)
        if rows and rows[0].column(4)[0].as_py() == 0:
            yield from _AppendTask(client, topic, bases)(iter(rows))
            return
        with Consumer({"bootstrap.servers": client["bootstrap.servers"]}) as consumer:
            first = TopicPartition(topic, 0)
            while consumer.end_offsets([first])[first] == 0:
                time.sleep(0.05)
        raise RuntimeError("broken on purpose")

    return task


def test_a_transform_writes_each_record_that_it_makes_once(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    target = f"{topic}-upper"
    create(bootstrap, target, 2)
    job = TransformJob(
        source(bootstrap, topic),
        target,
        tmp_path / "state",
        value="upper(cast(value AS string))",
        where="cast(value AS string) <> 'skip'",
    )
    produce(bootstrap, topic, ["a", "skip", "b"])
    assert transform(spark, job).records == 2
    produce(bootstrap, topic, ["c"])
    assert transform(spark, job).records == 1
    assert transform(spark, job).status == "nothing new"
    by_function = TransformJob(
        source(bootstrap, topic), target, tmp_path / "other", function=f"{__name__}:doubled"
    )
    assert transform(spark, by_function).records == 4

    values = sorted(value or b"" for _, value in consumed(bootstrap, target))

    assert values == [b"A", b"B", b"C", b"aa", b"bb", b"cc", b"skipskip"]


def doubled(records: DataFrame) -> DataFrame:
    """The function that a test names."""
    return records.selectExpr("key", "concat(value, value) AS value", "_topic", "_partition", "_offset")


def test_a_bulk_load_sets_headers_and_timestamps_and_a_transform_keeps_them(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    client, target = {"bootstrap.servers": bootstrap}, f"{topic}-kept"
    create(bootstrap, target, 1)
    meta = "IF(id = 1, NULL, array(struct('carrier' AS key, CAST('UA' AS BINARY) AS value)))"
    rows = spark.range(3).selectExpr("id", f"{meta} AS meta", "timestamp_millis(1000 * id + 7) AS at")
    rows.coalesce(1).write.parquet(str(tmp_path / "files"))
    files = BulkJob(
        client, topic, tmp_path / "files", tmp_path / "bulk", key="id", value="id", headers="meta",
        timestamp="at",
    )  # fmt: skip
    bulk(spark, files)
    transform(spark, TransformJob(source(bootstrap, topic), target, tmp_path / "state", key="NULL"))

    wanted = [(b"0", 7), (b"1", 1007), (b"2", 2007)]
    for name in (topic, target):
        found = sorted(records_of(bootstrap, name), key=lambda record: record.timestamp)
        assert [(record.value, record.timestamp) for record in found] == wanted
        assert [list(record.headers) for record in found] == [[("carrier", b"UA")], [], [("carrier", b"UA")]]
    wrong = BulkJob(client, topic, tmp_path / "files", tmp_path / "wrong", headers="at")
    with pytest.raises(JobError, match=r"the column headers must have the type array<.*, not timestamp"):
        bulk(spark, wrong)


def records_of(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    """Every record of a topic, with headers and timestamp."""
    found: list[ConsumerRecord] = []
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        (described,) = admin.describe_topics([topic])
    partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        for partition in partitions:
            consumer.add_topic(*partition)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(500)
    return found


def test_a_record_of_another_program_stops_a_resumed_load(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark.range(20).selectExpr("id AS number").coalesce(1).write.parquet(str(tmp_path / "files"))
    job = BulkJob({"bootstrap.servers": bootstrap}, topic, tmp_path / "files", tmp_path / "state")
    with monkeypatch.context() as patched:
        patched.setattr("holdfast_log.pipeline.jobs.bulk.publish", broken)
        with pytest.raises(RuntimeError):
            bulk(spark, job)
    for partition in range(3):
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            producer.send(Message(topic, value="foreign", partition=partition))

    with pytest.raises(Exception, match=ForeignRecordsError.__name__):
        bulk(spark, job)

    assert len(consumed(bootstrap, topic)) == 3


def broken(*_: object) -> None:
    raise RuntimeError("broken on purpose")


def test_a_report_is_a_line_of_json_and_a_page_with_plots(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    produce(bootstrap, topic, ["1", "2"])
    job = LoadJob(source(bootstrap, topic), tmp_path / "table", TableShape(), max_offsets=1)
    for _ in range(2):
        write_report(load(spark, job), tmp_path / "runs.jsonl")

    first, second = read_reports(tmp_path / "runs.jsonl")

    assert (first["status"], first["records"], first["lag"]) == ("done", 1, 1)
    assert (second["status"], second["lag"]) == ("done", 0)
    assert second["end"] == {topic: {"0": 1, "1": 1, "2": 0}}
    assert list(first["phases"]) == ["look up", "write", "publish"]
    assert sum(first["phases"].values()) <= first["seconds"]
    pytest.importorskip("matplotlib")
    page = page_of([first, second])
    assert "data:image/png;base64," in page and first["run"] in page


def test_a_property_that_no_client_has_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = BulkJob({"bootstrap.servers": "b:1", "fetch.max.byte": "1"}, "t", tmp_path, tmp_path / "state")

    with pytest.raises(JobError, match=r"no client has the property fetch\.max\.byte"):
        bulk(spark, job)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["load", "--bootstrap-server", "b:1", "--output", "o"], "give either --topic or --topic-pattern"),
        (
            ["load", "--bootstrap-server", "b:1", "--output", "o", "--topic", "t", "--property", "x"],
            "expected NAME=VALUE",
        ),
    ],
)
def test_wrong_usage_is_explained(arguments: list[str], expected: str) -> None:
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 2
    assert expected in result.output


def test_a_snapshot_keeps_its_rows_when_all_new_records_are_deleted_before_it_has_taken_them(
    spark: SparkSession, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    given = source(bootstrap, topic) | {"failOnDataLoss": "false"}
    job = SnapshotJob(given, tmp_path / "table")
    produce(bootstrap, topic, ["1", "2"], keys=["a", "b"])
    snapshot(spark, job)
    produce(bootstrap, topic, ["3"], keys=["a"])
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with Admin({"bootstrap.servers": bootstrap}) as admin, Consumer({"bootstrap.servers": bootstrap}) as ends:
        admin.delete_records(ends.end_offsets(partitions))

    report = snapshot(spark, job)

    assert (report.status, report.records, report.lag) == ("done", 0, 0)
    rows = read_table(spark, tmp_path / "table").collect()
    assert sorted((bytes(row.key), bytes(row.value)) for row in rows) == [(b"a", b"1"), (b"b", b"2")]
