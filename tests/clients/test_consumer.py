"""The consumer against brokers in memory: positions, fetching ahead, faults and damaged batches."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import ClosedError, NoOffsetError
from holdfast_log.clients.feedback.events import BatchSkipped, Event
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.protocol.batches import HEADER_SIZE, Compression
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.errors import (
    BrokerError,
    CorruptMessageError,
    ErrorCode,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.list_offsets import ListOffsetsRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from holdfast_log.testing.fakes.fake_partition import FakePartition
from tests.models.batches import encoded

FLIGHTS = TopicPartition("flights", 0)


def fill(partition: FakePartition, count: int, *, per_batch: int = 10, codec: int = 0) -> None:
    """Append `count` records with timestamps one second apart; each value is the record's offset."""
    for start in range(0, count, per_batch):
        first = partition.end_offset
        offsets = range(first, first + min(per_batch, count - start))
        rows = ((offset * 1000, b"k", b"%d" % offset) for offset in offsets)
        partition.append(memoryview(encoded(rows, Compression(codec))))


def fill_all(cluster: FakeCluster, count: int) -> None:
    """Append `count` records to each partition of "flights"."""
    for partition in cluster.topics["flights"]:
        fill(partition, count)


def consumer_on(cluster: FakeCluster, properties: dict[str, Any] | None = None, **more: Any) -> Consumer:
    given = {
        "bootstrap.servers": cluster.bootstrap,
        "auto.offset.reset": "earliest",
        **(properties or {}),
    }
    return Consumer(given, network=cluster, rng=random.Random(1), **more)


def reader_on(
    cluster: FakeCluster,
    properties: dict[str, Any] | None = None,
    *,
    partition: int | None = None,
    **more: Any,
) -> Consumer:
    """A consumer of "flights", or of one of its partitions."""
    consumer = consumer_on(cluster, properties, **more)
    consumer.add_topic("flights", partition)
    return consumer


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    for _ in range(1000):
        records += consumer.poll(1000)
        if len(records) >= count:
            return records
    raise AssertionError(f"{len(records)} records of {count} came")


def pass_over_damage(cluster: FakeCluster, damaged: list[int]) -> None:
    """Read a partition of three batches, of which those with these numbers are damaged."""
    partition = cluster.topics["flights"][0]
    fill(partition, 30)
    for number in damaged:
        batch = bytearray(partition.batches[number])
        batch[-1] ^= 0xFF
        partition.batches[number] = bytes(batch)
    events: list[Event] = []
    consumer = reader_on(cluster, {"on.corrupt.batch": "skip"}, partition=0, on_event=events.append)
    sound = [offset for offset in range(30) if offset // 10 not in damaged]

    assert [record.offset for record in read(consumer, len(sound))] == sound
    consumer.poll(0)

    assert consumer.position(FLIGHTS) == 30
    skipped = [event for event in events if isinstance(event, BatchSkipped)]
    assert [(each.offset, each.next_offset) for each in skipped] == [
        (10 * number, 10 * number + 10) for number in damaged
    ]
    assert all("its checksum does not match" in str(each.error) for each in skipped)
    assert consumer.feedback().batches_skipped == len(damaged)


def cluster_in_memory() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    return cluster


@pytest.fixture
def cluster() -> FakeCluster:
    return cluster_in_memory()


class TestReading:
    @pytest.mark.parametrize("codec", list(Compression))
    def test_all_records_are_read_once_and_in_order(self, cluster: FakeCluster, codec: int) -> None:
        fill(cluster.topics["flights"][0], 1000, codec=codec)
        consumer = reader_on(cluster)
        records = read(consumer, 1000)

        assert [record.offset for record in records] == list(range(1000))
        assert [record.value for record in records] == [b"%d" % n for n in range(1000)]
        assert records[7].timestamp == 7000 and records[7].topic == "flights"

    def test_a_topic_added_without_a_group_is_read_from_all_partitions(self) -> None:
        cluster = FakeCluster(3)
        for partition in cluster.add_topic("flights", 5):
            fill(partition, 100)
        consumer = reader_on(cluster)
        records = read(consumer, 500)

        for number in range(5):
            assert [r.offset for r in records if r.partition == number] == list(range(100))

    def test_a_single_partition_is_read(self) -> None:
        cluster = FakeCluster()
        for partition in cluster.add_topic("flights", 2):
            fill(partition, 10)
        consumer = reader_on(cluster, partition=1)

        assert {record.partition for record in read(consumer, 10)} == {1}
        assert consumer.poll(100) == []

    def test_partitions_added_later_are_read_from_their_start(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, {"auto.offset.reset": "latest", "metadata.max.age.ms": 1000})
        consumer.poll(100)
        cluster.topics["flights"].append(FakePartition(1))
        fill(cluster.topics["flights"][1], 5)

        assert [record.partition for record in read(consumer, 5)] == [1] * 5

    def test_a_topic_created_later_is_read(self, cluster: FakeCluster) -> None:
        consumer = consumer_on(cluster)
        consumer.add_topic("later")
        assert consumer.poll(500) == []
        fill(cluster.add_topic("later")[0], 3)

        assert len(read(consumer, 3)) == 3

    def test_poll_returns_at_most_max_records(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 100)
        consumer = reader_on(cluster, {"max.poll.records": 7})

        assert max(len(consumer.poll(1000)) for _ in range(5)) == 7
        assert len(consumer.poll(1000, 3)) == 3

    def test_poll_batches_returns_columns(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 30)
        consumer = reader_on(cluster)
        batches = consumer.poll_batches(1000)

        assert [len(batch) for batch in batches] == [10, 10, 10]
        assert batches[1].columns.offsets == range(10, 20)
        assert batches[2].next_offset == 30 and consumer.position(FLIGHTS) == 30

    def test_poll_batches_continues_where_poll_stopped(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 30)
        consumer = reader_on(cluster)
        first = []
        while len(first) < 5:
            first += consumer.poll(1000, 5)
        offsets = [offset for batch in consumer.poll_batches(1000) for offset in batch.columns.offsets]

        assert offsets == list(range(5, 30))

    @pytest.mark.parametrize("codec", Compression)
    def test_poll_encoded_returns_batches_without_their_compression(
        self, cluster: FakeCluster, codec: Compression
    ) -> None:
        fill(cluster.topics["flights"][0], 30, codec=codec)
        plain = encoded([(offset * 1000, b"k", b"%d" % offset) for offset in range(10, 20)])
        consumer = reader_on(cluster)
        batches = consumer.poll_encoded(1000)

        assert [batch.header.base_offset for batch in batches] == [0, 10, 20]
        assert [(batch.topic, batch.partition, batch.start) for batch in batches] == [
            ("flights", 0, 0), ("flights", 0, 10), ("flights", 0, 20),
        ]  # fmt: skip
        assert bytes(batches[1].records) == plain[HEADER_SIZE:]
        assert consumer.position(FLIGHTS) == 30 and consumer.feedback().records == 30

    def test_poll_encoded_continues_where_poll_stopped(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 30)
        consumer = reader_on(cluster)
        first = []
        while len(first) < 15:
            first += consumer.poll(1000, 5)
        batches = consumer.poll_encoded(1000)

        assert [(batch.header.base_offset, batch.start) for batch in batches] == [(10, 15), (20, 20)]

    def test_keys_and_values_are_deserialized(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 3)
        consumer = consumer_on(
            cluster,
            key_deserializer=lambda topic, key: key.decode(),
            value_deserializer=lambda topic, value: int(value),
        )
        consumer.add_topic("flights")

        assert [(record.key, record.value) for record in read(consumer, 3)] == [("k", 0), ("k", 1), ("k", 2)]

    def test_a_consumer_can_be_iterated(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 3)
        consumer = reader_on(cluster)
        records = iter(consumer)

        assert [next(records).offset for _ in range(3)] == [0, 1, 2]

    def test_the_next_fetch_is_in_flight_while_records_are_returned(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 100)
        consumer = reader_on(cluster, {"max.partition.fetch.bytes": 500})
        read(consumer, 1)
        before = len(cluster.brokers[1].requests)
        consumer.poll(0)
        cluster.wait(0, [])

        assert any(isinstance(r, FetchRequest) for r in cluster.brokers[1].requests[before:])

    def test_fetching_ahead_is_bounded(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 10_000)
        consumer = consumer_on(
            cluster, {"max.partition.fetch.bytes": 1000, "fetch.max.bytes": 3000, "max.poll.records": 1}
        )
        consumer.add_topic("flights")
        for _ in range(50):
            consumer.poll(100)

        assert sum(position.stored_bytes for position in consumer._fetcher.positions.values()) < 4000


class TestPositions:
    def test_seek_sets_the_next_offset(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 100)
        consumer = reader_on(cluster, partition=0)
        consumer.seek(FLIGHTS, 42)
        assert read(consumer, 1)[0].offset == 42
        consumer.seek(FLIGHTS, 7)
        assert read(consumer, 1)[0].offset == 7
        consumer.seek_to_beginning(FLIGHTS)
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end(FLIGHTS)
        assert consumer.position(FLIGHTS) == 100

    def test_position_and_lag_count_returned_records(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 100)
        consumer = reader_on(cluster, {"max.poll.records": 13}, partition=0)
        assert consumer.lag(FLIGHTS) is None
        count = len(consumer.poll(1000)) or len(consumer.poll(1000))

        assert count == 13 and consumer.position(FLIGHTS) == 13 and consumer.lag(FLIGHTS) == 87

    def test_reset_to_latest_reads_only_new_records(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 10)
        consumer = reader_on(cluster, {"auto.offset.reset": "latest"}, partition=0)
        assert consumer.poll(100) == []
        fill(cluster.topics["flights"][0], 5)

        assert [record.offset for record in read(consumer, 5)] == [10, 11, 12, 13, 14]

    def test_without_a_reset_policy_a_position_is_required(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, {"auto.offset.reset": "none"}, partition=0)
        with pytest.raises(NoOffsetError):
            consumer.poll(100)

    @pytest.mark.parametrize(("reset", "expected"), [("earliest", 20), ("latest", 30)])
    def test_a_deleted_offset_is_reset_by_the_policy(
        self, cluster: FakeCluster, reset: str, expected: int
    ) -> None:
        fill(cluster.topics["flights"][0], 30)
        cluster.topics["flights"][0].start_offset = 20
        consumer = reader_on(cluster, {"auto.offset.reset": reset}, partition=0)
        consumer.seek(FLIGHTS, 3)
        while consumer.position(FLIGHTS) == 3:
            consumer.poll(100, 0)

        assert consumer.position(FLIGHTS) == expected

    def test_a_deleted_offset_without_a_reset_policy_is_an_error(self, cluster: FakeCluster) -> None:
        consumer = reader_on(cluster, {"auto.offset.reset": "none"}, partition=0)
        consumer.seek(FLIGHTS, 99)
        with pytest.raises(OffsetOutOfRangeError, match="flights-0 does not have offset 99"):
            consumer.poll(1000)

    def test_paused_partitions_return_no_records_and_lose_none(self) -> None:
        cluster = FakeCluster()
        for partition in cluster.add_topic("flights", 2):
            fill(partition, 50)
        consumer = reader_on(cluster, {"max.poll.records": 5})
        seen = read(consumer, 5)
        consumer.pause(FLIGHTS)
        while len(seen) < 50 or {r.partition for r in seen[-5:]} != {1}:
            more = consumer.poll(100)
            assert all(record.partition == 1 for record in more)
            seen += more
            if not more:
                break
        consumer.resume(FLIGHTS)
        seen += read(consumer, 100 - len(seen))

        for number in (0, 1):
            assert [r.offset for r in seen if r.partition == number] == list(range(50))

    def test_offsets_are_found_by_timestamp(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 30)
        consumer = consumer_on(cluster)

        assert consumer.offsets_for_times({FLIGHTS: 7500})[FLIGHTS] == (8, 8000, -1)
        assert consumer.offsets_for_times({FLIGHTS: 10**9}) == {FLIGHTS: None}
        assert consumer.beginning_offsets([FLIGHTS]) == {FLIGHTS: 0}
        assert consumer.end_offsets([FLIGHTS]) == {FLIGHTS: 30}

    def test_partitions_for_returns_the_partitions_of_a_topic(self, cluster: FakeCluster) -> None:
        cluster.add_topic("more", 4)
        consumer = consumer_on(cluster)

        assert consumer.partitions_for("more") == [0, 1, 2, 3]
        assert consumer.topics() == ["flights", "more"]
        with pytest.raises(UnknownTopicOrPartitionError, match="topic less"):
            consumer.partitions_for("less")

    def test_a_removed_topic_is_no_longer_read(self, cluster: FakeCluster) -> None:
        fill(cluster.topics["flights"][0], 100)
        consumer = reader_on(cluster)
        read(consumer, 1)
        consumer.remove_topic("flights")

        assert consumer.assignment() == [] and consumer.poll(100) == []


class TestFaults:
    @pytest.mark.parametrize(
        "how", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, "cut", "cut after"]
    )
    def test_retriable_faults_are_not_reported(self, cluster: FakeCluster, how: str | ErrorCode) -> None:
        fill(cluster.topics["flights"][0], 50)
        cluster.brokers[1].fail_next(FetchRequest, how)
        cluster.brokers[1].fail_next(ListOffsetsRequest, how)
        consumer = reader_on(cluster)

        assert [record.offset for record in read(consumer, 50)] == list(range(50))

    def test_reading_continues_at_a_new_leader(self) -> None:
        cluster = FakeCluster(2)
        (partition,) = cluster.add_topic("flights")
        fill(partition, 10)
        consumer = reader_on(cluster)
        read(consumer, 10)
        cluster.brokers[1].stop()
        partition.leader, partition.leader_epoch = 2, 1
        fill(partition, 10)

        assert [record.offset for record in read(consumer, 10)] == list(range(10, 20))

    def test_random_faults_lose_nothing_and_repeat_nothing(self) -> None:
        for seed in range(20):
            rng = random.Random(seed)
            cluster = FakeCluster(3)
            partitions = cluster.add_topic("flights", 4)
            for partition in partitions:
                fill(partition, 300, per_batch=rng.choice([1, 10, 50]), codec=rng.choice([0, 4]))
            consumer = reader_on(cluster, {"max.partition.fetch.bytes": 2000})
            offsets: list[list[int]] = [[] for _ in partitions]
            while sum(len(each) for each in offsets) < 1200:
                for record in consumer.poll(rng.randint(0, 100), rng.randint(1, 50)):
                    offsets[record.partition].append(record.offset)
                broker = cluster.brokers[rng.randint(1, 3)]
                if rng.random() < 0.1:
                    broker.fail_next(FetchRequest, rng.choice(["cut", ErrorCode.UNKNOWN_LEADER_EPOCH]))
                if rng.random() < 0.05:
                    moved = rng.choice(partitions)
                    moved.leader, moved.leader_epoch = rng.randint(1, 3), moved.leader_epoch + 1
                broker.receive_bytes = rng.choice([7, 1000, 2**30])
            assert offsets == [list(range(300))] * 4, seed

    def test_an_authorization_error_is_raised(self, cluster: FakeCluster) -> None:
        cluster.brokers[1].fail_next(FetchRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        consumer = reader_on(cluster, partition=0)
        consumer.seek(FLIGHTS, 0)
        with pytest.raises(BrokerError) as caught:
            consumer.poll(1000)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def test_a_damaged_batch_is_named_and_can_be_skipped(self, cluster: FakeCluster) -> None:
        partition = cluster.topics["flights"][0]
        fill(partition, 30)
        damaged = bytearray(partition.batches[1])
        damaged[-1] ^= 0xFF
        partition.batches[1] = bytes(damaged)
        consumer = reader_on(cluster, partition=0)
        records = []
        with pytest.raises(CorruptMessageError, match="flights-0, batch at offset 10"):
            for _ in range(10):
                records += consumer.poll(1000)
        assert consumer.position(FLIGHTS) == 10
        consumer.seek(FLIGHTS, 20)

        assert [record.offset for record in read(consumer, 10)] == list(range(20, 30))

    @pytest.mark.parametrize("damaged", [[1], [0, 1], [2]], ids=str)
    def test_damaged_batches_are_passed_over_and_told_if_the_application_wants_that(
        self, cluster: FakeCluster, damaged: list[int], caplog: pytest.LogCaptureFixture
    ) -> None:
        pass_over_damage(cluster, damaged)

        assert f"flights-0 from offset {10 * damaged[0]} to before" in caplog.text

    def test_malformed_records_and_bombs_are_passed_over_too(self, cluster: FakeCluster) -> None:
        partition = cluster.topics["flights"][0]
        malformed = bytearray(encoded([(0, None, b"first")]))
        malformed[64] = 1  # The offset delta.
        malformed[17:21] = crc32c(memoryview(malformed)[21:]).to_bytes(4, "big")
        bomb = encoded([(0, None, bytes(10_000_000))], Compression.ZSTD)
        for batch in (malformed, bomb, encoded([(0, None, b"last")])):
            partition.append(memoryview(batch))
        consumer = reader_on(cluster, {"on.corrupt.batch": "skip", "batch.max.bytes": 1_000_000}, partition=0)

        assert [record.value for record in read(consumer, 1)] == [b"last"]
        assert consumer.feedback().batches_skipped == 2

    def test_a_batch_that_stays_encoded_is_checked_too(self, cluster: FakeCluster) -> None:
        partition = cluster.topics["flights"][0]
        fill(partition, 30)
        damaged = bytearray(partition.batches[1])
        damaged[-1] ^= 0xFF
        partition.batches[1] = bytes(damaged)
        consumer = reader_on(cluster, partition=0)
        batches = []
        with pytest.raises(CorruptMessageError, match="flights-0, batch at offset 10: its checksum"):
            for _ in range(10):
                batches += consumer.poll_encoded(1000)

        assert [batch.header.base_offset for batch in batches] == [0]
        assert consumer.position(FLIGHTS) == 10

    def test_a_decompression_bomb_is_refused(self, cluster: FakeCluster) -> None:
        bomb = encoded([(0, None, bytes(10_000_000))], Compression.ZSTD)
        cluster.topics["flights"][0].append(memoryview(bomb))
        consumer = reader_on(cluster, {"batch.max.bytes": 1_000_000}, partition=0)
        for poll in (consumer.poll, consumer.poll_encoded):
            with pytest.raises(CorruptMessageError, match="1000000"):
                for _ in range(5):
                    poll(1000)

    def test_a_closed_consumer_refuses_calls(self, cluster: FakeCluster) -> None:
        consumer = consumer_on(cluster)
        consumer.close()
        with pytest.raises(ClosedError):
            consumer.poll(0)
