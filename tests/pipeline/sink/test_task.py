"""Tasks of the sink against a real broker, without Spark: rows in, log out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from holdfast_log import Admin, Consumer, ConsumerRecord, Message, NewTopic, Producer, TopicPartition
from holdfast_log.pipeline.sink import cluster as cluster_module
from holdfast_log.pipeline.sink.chunks import LineIdentity
from holdfast_log.pipeline.sink.cluster import SinkCluster
from holdfast_log.pipeline.sink.options import WriteOptions, write_options
from holdfast_log.pipeline.sink.rows import RowError
from holdfast_log.pipeline.sink.state import QueryState, QueryTakenOverError, Run, committed
from holdfast_log.pipeline.sink.store import QueryStore
from holdfast_log.pipeline.sink.task import SinkTask
from tests.integration.waiting import until

RUN, OTHER = Run("run-1", "host-1", 1), Run("run-2", "host-2", 2)
_numbers = count()


@pytest.fixture
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SinkCluster]:
    monkeypatch.setattr(cluster_module, "_TOPIC_MS", 300_000)  # The broker may be late.
    found = SinkCluster({"bootstrap.servers": bootstrap, "bootstrap.timeout.ms": "120000"})
    yield found
    found.close()


@pytest.fixture
def store(cluster: SinkCluster, bootstrap: str) -> QueryStore:
    return QueryStore(cluster, {"bootstrap.servers": bootstrap})


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"sink-{next(_numbers)}"
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(name, 3)])
    return name


class Writing:
    """Writes of one query to one topic, by a run."""

    def __init__(self, bootstrap: str, cluster: SinkCluster, store: QueryStore, topic: str) -> None:
        self.bootstrap, self.cluster, self.store, self.topic = bootstrap, cluster, store, topic
        self.query = f"query of {topic}"
        self.options: WriteOptions = write_options(
            {"kafka.bootstrap.servers": bootstrap, "topic": topic, "chunkBytes": "400"}, is_streaming=True
        )

    def task(self, batch: int = 0, task: int = 0, run: Run = RUN) -> SinkTask:
        identity = LineIdentity(self.query, batch, task)
        return SinkTask(self.cluster, self.store, self.options, identity, run)

    def commit(self, batch: int, *reports: Any) -> None:
        def change(state: QueryState | None) -> QueryState | None:
            assert state is not None
            return committed(state, batch, reports, {})

        self.store.change(self.query, change)

    def values(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        with Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            for number in range(3):
                consumer.add_topic(self.topic, number)
            partitions = [TopicPartition(self.topic, number) for number in range(3)]
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(partition) < ends[partition] for partition in partitions):
                for record in consumer.poll(500):
                    assert record.value is not None
                    found.setdefault(record.partition, []).append(record.value.decode())
        return found


@pytest.fixture
def writing(bootstrap: str, cluster: SinkCluster, store: QueryStore, topic: str) -> Writing:
    return Writing(bootstrap, cluster, store, topic)


def batch_of(*values: str, partition: int | None = None) -> Any:
    columns: dict[str, Any] = {"value": pa.array(values, pa.string())}
    if partition is not None:
        columns["partition"] = pa.array([partition] * len(values), pa.int32())
    return pa.RecordBatch.from_pydict(columns)


def numbers(first: int, end: int) -> list[str]:
    return [f"value {number}" for number in range(first, end)]


def test_rows_are_written_once_by_any_number_of_attempts(writing: Writing) -> None:
    first = writing.task().write([batch_of(*numbers(0, 100), partition=1)])
    second = writing.task().write([batch_of(*numbers(0, 100), partition=1)])

    assert writing.values() == {1: numbers(0, 100)}
    assert first.counts.chunks > 3
    assert (first.counts.rows, second.counts.rows, second.counts.rows_found) == (100, 0, 100)


def test_a_row_that_a_retry_receives_elsewhere_in_the_order_is_not_written_again(writing: Writing) -> None:
    values = numbers(0, 50)
    with pytest.raises(ZeroDivisionError):
        writing.task().write(_breaking(batch_of(*values[:30], partition=1)))
    until(lambda: 1 in writing.values())  # The task did not wait for the answer to its chunk.
    before = writing.values()

    report = writing.task().write([batch_of(*reversed(values), partition=1)])

    assert sorted(writing.values()[1]) == sorted(values)
    assert writing.values()[1][: len(before[1])] == before[1]
    assert report.counts.reorders == 1


def _breaking(batch: Any) -> Iterator[Any]:
    yield batch
    for _ in range(20):
        yield batch.slice(0, 0)
    yield batch_of("x", partition=0)
    _ = 1 // 0


def test_several_tasks_that_write_to_one_partition_take_the_conflict_path(writing: Writing) -> None:
    reports = [writing.task(0, task).write([batch_of(f"of {task}", partition=2)]) for task in range(4)]

    assert writing.values() == {2: ["of 0", "of 1", "of 2", "of 3"]}
    assert sum(report.counts.conflicts for report in reports) == 3
    assert sum(report.counts.scans for report in reports) == 0


def test_other_producers_may_write_to_the_topic_meanwhile(writing: Writing) -> None:
    reports = []
    with Producer({"bootstrap.servers": writing.bootstrap}) as producer:
        for batch in range(3):
            producer.send(Message(writing.topic, value="other", partition=0)).result()
            reports.append(writing.task(batch).write([batch_of(f"mine {batch}", partition=0)]))
            writing.commit(batch, reports[-1])

    assert writing.values() == {0: ["other", "mine 0", "other", "mine 1", "other", "mine 2"]}
    assert [report.counts.conflicts for report in reports] == [0, 1, 1]


def test_a_committed_micro_batch_is_not_written_again_by_a_later_run(writing: Writing) -> None:
    writing.commit(5, writing.task(5).write([batch_of("a", partition=0)]))

    report = writing.task(5, run=OTHER).write([batch_of("b", partition=0)])

    assert report.is_committed
    assert writing.values() == {0: ["a"]}
    state = writing.store.read(writing.query)
    assert state is not None
    assert (state.batch, state.totals.rows) == (5, 1)


def test_a_run_that_another_has_taken_over_from_is_refused(writing: Writing) -> None:
    writing.task(0).write([batch_of("a", partition=0)])
    writing.task(0, run=OTHER).write([batch_of("a", partition=0)])

    with pytest.raises(QueryTakenOverError, match="run run-2 on host host-2"):
        writing.task(0).write([batch_of("a", partition=0)])

    assert writing.values() == {0: ["a"]}


def test_keys_choose_the_partition_that_the_producer_would(writing: Writing) -> None:
    keys = [f"key {number}".encode() for number in range(30)]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array([key.decode() for key in keys])}
    writing.task().write([pa.RecordBatch.from_pydict(columns)])
    found = writing.values()

    with Producer({"bootstrap.servers": writing.bootstrap}) as producer:
        sent = [producer.send(Message(writing.topic, key=key, value="again")).result() for key in keys]

    for key, metadata in zip(keys, sent, strict=True):
        assert key.decode() in found[metadata.partition]


def test_headers_and_nulls_are_written_as_they_are(writing: Writing) -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[{"key": "a", "value": b"1"}, {"key": "n", "value": None}], None], pa.list_(header))
    columns = {
        "key": pa.array([b"k", None], pa.binary()),
        "value": pa.array([None, b"v"], pa.binary()),
        "headers": headers,
        "partition": pa.array([0, 0], pa.int32()),
    }
    batch = pa.RecordBatch.from_pydict(columns)
    writing.task().write([batch])
    assert writing.task().write([batch]).counts.rows_found == 2

    with Consumer({"bootstrap.servers": writing.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(writing.topic, 0)
        records: list[ConsumerRecord] = []
        while len(records) < 2:
            records += consumer.poll(500)

    assert [(record.key, record.value) for record in records] == [(b"k", None), (None, b"v")]
    assert list(records[0].headers)[1:] == [("a", b"1"), ("n", None)]
    assert not records[1].headers


def test_a_wrong_row_is_reported_with_its_cause(writing: Writing) -> None:
    with pytest.raises(RowError, match=r"partition 3 of .*, which has 3"):
        writing.task().write([batch_of("a", partition=3)])
    writing.options = write_options({"kafka.bootstrap.servers": writing.bootstrap}, is_streaming=True)
    columns = {"value": pa.array(["a"]), "topic": pa.array([None], pa.string())}
    with pytest.raises(RowError, match="topic is null"):
        writing.task().write([pa.RecordBatch.from_pydict(columns)])
    columns = {"value": pa.array(["a"]), "topic": pa.array(["no such topic!"])}
    with pytest.raises(Exception, match="no such topic!"):
        writing.task().write([pa.RecordBatch.from_pydict(columns)])


def test_partitions_that_are_added_do_not_move_the_keys_of_a_micro_batch(writing: Writing) -> None:
    keys = [f"key {number}".encode() for number in range(30)]
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array([key.decode() for key in keys])}
    batch = pa.RecordBatch.from_pydict(columns)
    writing.task().write([batch])
    with Admin({"bootstrap.servers": writing.bootstrap}) as admin:
        admin.create_partitions({writing.topic: 5})

    report = writing.task(run=OTHER).write([batch])

    assert (report.counts.rows, report.counts.rows_found) == (0, 30)


def test_a_retry_that_cuts_its_rows_otherwise_completes_what_is_there(writing: Writing) -> None:
    values = [f"{'long ' * (number % 7)}{number}" for number in range(60)]
    with pytest.raises(ZeroDivisionError):
        writing.task().write(_breaking(batch_of(*values[:40], partition=1)))

    report = writing.task().write([batch_of(*reversed(values), partition=1)])

    assert sorted(writing.values()[1]) == sorted(values)
    assert report.counts.reorders == 1
