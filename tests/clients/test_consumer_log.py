"""The consumer on truncated logs (KIP-320), on transactions, and on batches read as Arrow."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import LogTruncatedError
from holdfast_log.protocol.batches import attributes, write_header
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import AbortedTransaction
from holdfast_log.protocol.messages.list_offsets import ListOffsetsRequest
from holdfast_log.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from holdfast_log.protocol.records import BatchBuilder
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from holdfast_log.testing.fakes.fake_partition import FakePartition
from tests.clients.test_consumer import FLIGHTS, consumer_on, fill, read
from tests.models.batches import encoded


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


def checks(cluster: FakeCluster) -> list[OffsetForLeaderEpochRequest]:
    requests = [request for broker in cluster.brokers.values() for request in broker.requests]
    return [request for request in requests if isinstance(request, OffsetForLeaderEpochRequest)]


def reading(cluster: FakeCluster, **properties: Any) -> Consumer:
    consumer = consumer_on(cluster, {name.replace("_", "."): value for name, value in properties.items()})
    consumer.add_topic("flights", 0)
    return consumer


class TestLogsThatAreCut:
    """KIP-320: the consumer asks a new leader whether its log contains the records read so far."""

    def test_reading_continues_at_a_new_leader_with_the_same_log(self) -> None:
        cluster = FakeCluster(brokers=2)
        (partition,) = cluster.add_topic("flights")
        fill(partition, 20)
        consumer = reading(cluster)
        read(consumer, 20)
        partition.leader, partition.leader_epoch = 2, 1
        fill(partition, 20)

        assert [record.offset for record in read(consumer, 20)] == list(range(20, 40))
        assert len(checks(cluster)) == 1
        assert consumer.last_error(FLIGHTS) is None

    def test_the_same_leader_is_not_asked_for_its_epochs(self, cluster: FakeCluster) -> None:
        (partition,) = cluster.topics["flights"]
        fill(partition, 20)
        consumer = reading(cluster)
        read(consumer, 20)
        fill(partition, 20)
        read(consumer, 20)

        assert checks(cluster) == []

    def test_records_that_replaced_lost_ones_are_read(self, cluster: FakeCluster) -> None:
        (partition,) = cluster.topics["flights"]
        fill(partition, 40)
        consumer = reading(cluster)
        read(consumer, 40)
        partition.cut(20)
        # The log gets longer than before, so only the leader epochs show that records are missing.
        fill(partition, 60)

        records = read(consumer, 60)
        assert [record.offset for record in records] == list(range(20, 80))

    def test_fetched_records_not_yet_returned_are_neither_lost_nor_repeated(
        self, cluster: FakeCluster
    ) -> None:
        (partition,) = cluster.topics["flights"]
        fill(partition, 40)
        consumer = reading(cluster, max_poll_records=10)
        first = consumer.poll(1000) + consumer.poll(1000)
        while len(first) < 10:
            first += consumer.poll(1000)
        partition.cut(30)
        fill(partition, 10)
        seen = [record.offset for record in first + read(consumer, 40 - len(first))]

        assert seen == sorted(set(seen)) == list(range(len(seen)))

    def test_without_a_reset_policy_a_truncation_raises_until_the_application_seeks(
        self, cluster: FakeCluster
    ) -> None:
        (partition,) = cluster.topics["flights"]
        fill(partition, 40)
        consumer = reading(cluster, auto_offset_reset="none")
        consumer.seek(FLIGHTS, 0)
        read(consumer, 40)
        partition.cut(20)
        fill(partition, 5)
        for _ in range(2):
            with pytest.raises(LogTruncatedError, match=r"flights-0 .* up to offset 40, .* up to offset 20"):
                read(consumer, 1)
        consumer.seek(FLIGHTS, 20)

        assert [record.offset for record in read(consumer, 5)] == list(range(20, 25))

    def test_a_log_truncated_to_nothing_is_read_from_its_start(self, cluster: FakeCluster) -> None:
        (partition,) = cluster.topics["flights"]
        fill(partition, 40)
        consumer = reading(cluster)
        read(consumer, 40)
        partition.cut(0)
        fill(partition, 50)

        assert [record.offset for record in read(consumer, 50)] == list(range(50))

    def test_a_broker_without_epoch_lookup_is_trusted(self, cluster: FakeCluster) -> None:
        (partition,) = cluster.topics["flights"]
        del cluster.brokers[1].versions[23]
        fill(partition, 20)
        consumer = reading(cluster)
        read(consumer, 20)
        partition.leader_epoch += 1
        fill(partition, 20)

        assert len(read(consumer, 20)) == 20

    @pytest.mark.parametrize("how", ["cut", ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH])
    def test_a_failed_epoch_lookup_is_retried(self, cluster: FakeCluster, how: str | ErrorCode) -> None:
        (partition,) = cluster.topics["flights"]
        fill(partition, 20)
        consumer = reading(cluster)
        read(consumer, 20)
        cluster.brokers[1].fail_next(OffsetForLeaderEpochRequest, how)
        partition.leader_epoch += 1
        fill(partition, 20)

        assert len(read(consumer, 20)) == 20
        assert len(checks(cluster)) == 2


COMMIT, ABORT = 1, 0


def write(partition: FakePartition, producer: int, *values: bytes) -> None:
    """Append a batch of a transaction."""
    batch = encoded((1, None, value) for value in values)
    mark(batch, len(values), producer, attributes(0, is_transactional=True))
    partition.producers.clear(0)
    assert partition.append(memoryview(batch))[0] is ErrorCode.NONE


def end(partition: FakePartition, producer: int, kind: int) -> None:
    """Append the marker of a transaction's end."""
    batch = encoded([(1, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))])
    mark(batch, 1, producer, attributes(0, is_transactional=True, is_control=True))
    partition.producers.clear(0)
    assert partition.append(memoryview(batch))[0] is ErrorCode.NONE


def mark(batch: bytearray, count: int, producer: int, value: int) -> None:
    write_header(
        batch, attributes=value, record_count=count, last_offset_delta=count - 1, base_timestamp=1,
        max_timestamp=1, producer_id=producer, producer_epoch=0, base_sequence=0,
    )  # fmt: skip


class TestTransactions:
    """Transactions: Holdfast has none, but other brokers do, and the consumer obeys their rules."""

    @pytest.fixture
    def partition(self, cluster: FakeCluster) -> FakePartition:
        (partition,) = cluster.topics["flights"]
        write(partition, 1, b"aborted 1", b"aborted 2")  # 0, 1
        write(partition, 2, b"committed 1")  # 2
        end(partition, 1, ABORT)  # 3
        write(partition, 1, b"second try")  # 4
        end(partition, 1, COMMIT)  # 5
        end(partition, 2, COMMIT)  # 6
        fill(partition, 1)  # 7
        write(partition, 2, b"aborted 3")  # 8
        end(partition, 2, ABORT)  # 9
        fill(partition, 1)  # 10
        partition.aborted = [
            AbortedTransaction(producer_id=2, first_offset=8),
            AbortedTransaction(producer_id=1, first_offset=0),
        ]
        return partition

    def test_read_committed_skips_aborted_records(
        self, cluster: FakeCluster, partition: FakePartition
    ) -> None:
        consumer = reading(cluster, isolation_level="read_committed")
        records = read(consumer, 4)

        assert [(record.offset, record.value) for record in records] == [
            (2, b"committed 1"), (4, b"second try"), (7, b"7"), (10, b"10"),
        ]  # fmt: skip
        assert consumer.position(FLIGHTS) == 11

    @pytest.mark.parametrize(
        ("isolation", "expected"),
        [("read_committed", [2, 4, 7, 10]), ("read_uncommitted", [0, 2, 4, 7, 8, 10])],
    )
    def test_batches_that_stay_encoded_are_skipped_alike(
        self, cluster: FakeCluster, partition: FakePartition, isolation: str, expected: list[int]
    ) -> None:
        consumer = reading(cluster, isolation_level=isolation)
        batches: list[Any] = []
        while consumer.position(FLIGHTS) < 11:
            batches += consumer.poll_encoded(1000)

        assert [batch.header.base_offset for batch in batches] == expected

    def test_read_uncommitted_skips_only_the_markers(
        self, cluster: FakeCluster, partition: FakePartition
    ) -> None:
        assert [record.offset for record in read(reading(cluster), 7)] == [0, 1, 2, 4, 7, 8, 10]

    def test_offset_queries_use_the_consumers_isolation_level(self, cluster: FakeCluster) -> None:
        consumer = reading(cluster, isolation_level="read_committed")
        consumer.end_offsets([FLIGHTS])
        asked = [r for r in cluster.brokers[1].requests if isinstance(r, ListOffsetsRequest)]

        assert [request.isolation_level for request in asked] == [1]


class TestArrow:
    def test_a_batch_becomes_a_record_batch(self, cluster: FakeCluster) -> None:
        pa = pytest.importorskip("pyarrow")
        builder = BatchBuilder()
        builder.append(1_700_000_000_123, b"k", b"v", [("h", b"1"), ("n", None)])
        builder.append(1_700_000_000_124, None, None)
        cluster.topics["flights"][0].append(memoryview(builder.build()))
        (batch,) = reading(cluster).poll_batches(10_000) or reading(cluster).poll_batches(10_000)
        table = batch.to_arrow()

        assert table.schema.metadata == {b"topic": b"flights", b"partition": b"0"}
        assert table.schema.field("timestamp").type == pa.timestamp("ms", "UTC")
        assert table.column("offset").to_pylist() == [0, 1]
        assert table.column("key").to_pylist() == [b"k", None]
        assert table.column("headers").to_pylist() == [
            [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
            [],
        ]
        assert table.column("timestamp").cast(pa.int64()).to_pylist() == [
            1_700_000_000_123,
            1_700_000_000_124,
        ]

    def test_without_headers_the_column_is_null(self, cluster: FakeCluster) -> None:
        pytest.importorskip("pyarrow")
        fill(cluster.topics["flights"][0], 3)
        consumer = reading(cluster)
        batches: list[Any] = []
        while not batches:
            batches = consumer.poll_batches(1000)

        assert batches[0].to_arrow().column("headers").to_pylist() == [None] * 3
        assert TopicPartition(batches[0].topic, batches[0].partition) == FLIGHTS
