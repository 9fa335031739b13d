"""The drill of the source, small; and that it would notice rows that are missing, doubled or changed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.cluster import Cluster
from tests.pipeline.source_drill import Failovers, Job, Verdict, prepare, read_batch, read_stream
from tests.pipeline.source_drill_faults import FAILOVER, KILL, RAISE_AFTER, RAISE_BEFORE, fault_of
from tests.pipeline.source_drill_rows import (
    Delivery,
    ends_of,
    fill,
    judge,
    key_of,
    value_of,
    words_of,
)


def test_each_record_is_delivered_once_while_tasks_workers_and_a_leader_die(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    prepare(spark)
    cluster.start(3, {"zookeeper.session.timeout.ms": "60000"})
    ends = ends_of(60_000, 3)
    fill(cluster.bootstrap, "drill", ends, replicas=3)

    def job(name: str, seed: int) -> Job:
        return Job(cluster.bootstrap, "drill", ends, tmp_path / name, seed, 20_000, max_offsets=30_000)

    def failovers(job: Job, at_most: int) -> Failovers:
        return Failovers(cluster.brokers, job.topic, job.faults(), at_most, cluster.lose)

    batch_job, stream_job = job("batch", 0), job("stream", 4)
    batch = read_batch(spark, batch_job, failovers(batch_job, 1))
    stream = read_stream(spark, stream_job, failovers(stream_job, 0), stops=0)

    assert batch.problem(failovers=1) == "", batch
    assert stream.problem(failovers=0) == "", stream
    assert (batch.delivery, batch.failovers, stream.batches) == (Delivery(60_000), 1, 2)


def test_the_drill_notices_each_row_that_is_missing_doubled_wrong_or_strange(spark: SparkSession) -> None:
    ends = (200, 70)
    rows = [
        (partition, offset, key_of(offset), value_of(partition, offset))
        for partition, end in enumerate(ends)
        for offset in range(end)
    ]
    assert rows.pop(77)[1] == 77
    rows.append(rows[130])
    rows[5] = (0, 5, key_of(5), value_of(0, 6))
    rows[6] = (0, 6, None, value_of(0, 6))  # type: ignore[assignment]
    rows += [(partition, 300, key_of(300), value_of(partition, 300)) for partition in (0, 9)]
    frame = spark.createDataFrame(rows, "partition INT, offset BIGINT, key BINARY, value BINARY")

    found = judge([words_of(frame).toArrow()], ends)

    assert found == Delivery(rows=272, missing=1, doubled=1, wrong=2, strange=2)
    assert not found.is_exact


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ((2, 0b1100), Delivery(4)),
        ((2, 0b0110), Delivery(4, missing=1, doubled=1)),
        ((1, 0b0100), Delivery(3, missing=1)),
        ((3, 0b1100), Delivery(5, doubled=1)),
        ((3, 0b11100), Delivery(5, strange=1)),
    ],
)
def test_an_offset_in_two_micro_batches_is_doubled(second: tuple[int, int], expected: Delivery) -> None:
    rows, bits = second
    tables = [
        pa.table({"partition": [0], "word": [0], "rows": [count], "bits": [mask], "wrong": [0]})
        for count, mask in ((2, 0b0011), (rows, bits))
    ]

    assert judge(tables, [4]) == expected


def test_the_drill_notices_a_fault_that_did_not_strike() -> None:
    struck = Verdict("batch", Delivery(1), batches=1, kills=1, failures=1, failovers=1)
    without = Verdict("batch", Delivery(1), batches=1, kills=0, failures=1, failovers=1)

    assert struck.problem(failovers=1) == ""
    assert struck.problem(failovers=2) == without.problem(failovers=1) == "a fault did not strike"


def test_successive_tasks_have_all_faults_and_a_task_fails_twice_at_most() -> None:
    assert {fault_of(1, 0, task, 0) for task in range(6)} >= {RAISE_BEFORE, RAISE_AFTER, KILL, FAILOVER}
    assert {fault_of(1, 0, task, 1) for task in range(20)} == {KILL, "none"}
    assert {fault_of(1, 0, task, 2) for task in range(20)} == {"none"}
