"""Single readers (own API) against brokers in memory; claims and fetches share a connection."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast_log.broker.ownership.interludes import BeginInterlude, Stranger
from holdfast_log.clients.errors import RecordDeserializationError, RequestTimeoutError
from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.clients.producer import Producer
from holdfast_log.coordinator.ownership.records import PartitionKey
from holdfast_log.protocol.errors import ErrorCode, OwnershipFencedError, OwnershipRefusedError
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.ownership import LossReason, OwnRequest, ResumeRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from holdfast_log.testing.fakes.fake_ownership import resource_key

LOG = TopicPartition("log", 0)
OTHER = TopicPartition("log", 1)
WAIT_MS = 30_000


@pytest.fixture
def cluster() -> FakeCluster:
    """A topic with four records in its first partition."""
    cluster = FakeCluster()
    cluster.add_topic(LOG.topic, 2)
    write(cluster, "a", "b", "c", "d")
    return cluster


def write(cluster: FakeCluster, *values: str, partition: TopicPartition = LOG) -> None:
    given = {"bootstrap.servers": cluster.bootstrap}
    with Producer(given, network=cluster.network(), is_threaded=False) as producer:
        for value in values:
            producer.send(Message(partition.topic, value=value, partition=partition.partition))


class Reader(ExclusiveConsumer):
    """A reader in the group `app`, and the ownership events that it got."""

    def __init__(self, cluster: FakeCluster, *partitions: TopicPartition, **options: Any) -> None:
        self.told: list[OwnershipEvent] = []
        given = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}
        given |= options.pop("properties", {})
        super().__init__(
            given,
            "app",
            partitions or [LOG],
            network=cluster.network(),
            rng=random.Random(1),
            on_ownership=self.told.append,
            **options,
        )

    @property
    def states(self) -> list[ClaimState]:
        return [event.state for event in self.told]

    def read(self, count: int) -> list[bytes]:
        """Read the next `count` records. Returns their values."""
        values: list[bytes] = []
        while len(values) < count:
            values += [record.value for record in self.poll(WAIT_MS, count - len(values))]
        return values


def asked(cluster: FakeCluster, kind: type[Any]) -> list[Any]:
    return [request for request in cluster.brokers[1].requests if isinstance(request, kind)]


def cut_all(cluster: FakeCluster) -> None:
    for channel in cluster.brokers[1].channels:
        channel.cut()


def test_partitions_are_claimed_by_one_request_before_any_is_read(cluster: FakeCluster) -> None:
    reader = Reader(cluster, OTHER, LOG)
    assert reader.read(4) == [b"a", b"b", b"c", b"d"]
    (claim,) = asked(cluster, OwnRequest)
    assert [row.partition for row in claim.resources] == [0, 1]
    kinds = [
        type(request)
        for request in cluster.brokers[1].requests
        if isinstance(request, OwnRequest | FetchRequest)
    ]
    assert kinds.index(OwnRequest) == 0
    assert (reader.is_owner, reader.generation(LOG), reader.generation(OTHER)) == (True, 1, 1)
    reader.close()


def test_two_readers_never_both_own_a_partition(cluster: FakeCluster) -> None:
    """ "You want to ensure that it is never the case that two readers both think they own a partition at the
    same time" (own API): the second reader takes the partition, and from then on the first gets no
    records."""
    anna = Reader(cluster)
    assert anna.read(4) == [b"a", b"b", b"c", b"d"]
    with pytest.raises(OwnershipRefusedError):
        Reader(cluster).poll(WAIT_MS)
    ben = Reader(cluster, generation=1)
    assert ben.read(4) == [b"a", b"b", b"c", b"d"]
    write(cluster, "e")

    with pytest.raises(OwnershipFencedError):
        anna.poll(WAIT_MS)

    assert not anna.is_owner
    lost = anna.told[-1]
    assert (lost.state, lost.reason, lost.generation) == (ClaimState.LOST, LossReason.STOLEN, 2)
    assert ben.read(1) == [b"e"] and ben.is_owner
    with pytest.raises(OwnershipFencedError):
        anna.poll(0)
    assert len(asked(cluster, OwnRequest)) == 3, "what is lost is not claimed again"
    anna.close()
    ben.close()


def test_a_reader_that_was_cut_off_while_its_group_read_on_is_fenced_and_told(cluster: FakeCluster) -> None:
    anna = Reader(cluster)
    assert anna.read(2) == [b"a", b"b"]
    cut_all(cluster)
    owners = cluster.ownership
    owners.tick()
    key = resource_key("app", *LOG)
    assert isinstance(key, PartitionKey)
    owners.answer(owners.submit(BeginInterlude(Stranger(key, "stray", "", "app"))))

    with pytest.raises(OwnershipFencedError, match="another connection of the group has read it"):
        anna.read(4)

    lost = anna.told[-1]
    assert (lost.state, lost.reason, lost.generation) == (ClaimState.LOST, LossReason.FOREIGN_FETCH, 2)
    assert not anna.is_owner
    with pytest.raises(OwnershipFencedError):
        anna.commit()
    anna.close()


def test_a_reader_with_doubtful_ownership_returns_no_records(cluster: FakeCluster) -> None:
    reader = Reader(cluster, session_timeout_ms=9000)
    assert reader.read(1) == [b"a"]
    for _ in range(3):
        cluster.brokers[1].fail_next(ResumeRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    cut_all(cluster)
    write(cluster, "e")
    while ClaimState.DETACHED not in reader.states:
        reader.poll(0, 1)

    resumed_after_ms = cluster.time_ms
    assert reader.poll(50) == [], "b, c and d had been fetched"
    assert reader.read(4) == [b"b", b"c", b"d", b"e"]
    assert cluster.time_ms >= resumed_after_ms + 200
    reader.close()


def test_a_reader_resumes_after_a_break_without_loss_or_duplicates(cluster: FakeCluster) -> None:
    reader = Reader(cluster)
    assert reader.read(1) == [b"a"]
    for value in ("e", "f"):
        cut_all(cluster)
        write(cluster, value)
    assert reader.read(5) == [b"b", b"c", b"d", b"e", b"f"]
    assert reader.states == [ClaimState.HELD, ClaimState.DETACHED, ClaimState.HELD]
    (resume,) = asked(cluster, ResumeRequest)
    assert resume.resources[0].generation == 1
    reader.close()


def test_a_standby_starts_at_the_offset_committed_by_the_previous_reader(cluster: FakeCluster) -> None:
    """ "If the reader fails you want another instance to take over" (own API)."""
    group = {"group.id": "index", "enable.auto.commit": False}
    anna = Reader(cluster, properties=group)
    standby = Reader(cluster, properties=group, wait_ms=FOR_EVER)
    assert anna.read(3) == [b"a", b"b", b"c"]
    assert standby.poll(1000) == []
    assert standby.told[-1].position == 1
    anna.commit()

    # The reader has fetched more, but is now silent beyond its session.

    assert standby.read(1) == [b"d"]
    assert standby.generation(LOG) == 2
    with pytest.raises(OwnershipFencedError):
        anna.poll(WAIT_MS)
    anna.close()
    standby.close()


def test_a_record_that_cannot_be_read_stops_its_partition_and_nothing_is_committed_past_it(
    cluster: FakeCluster,
) -> None:
    write(cluster, "1", "2", "bad", "4", partition=OTHER)
    group = {"group.id": "index", "auto.commit.interval.ms": 0}
    reader = Reader(
        cluster, LOG, OTHER, properties=group,
        value_deserializer=lambda topic, value: int(value) if value < b"a" or value == b"bad" else value,
    )  # fmt: skip
    read: dict[TopicPartition, list[object]] = {LOG: [], OTHER: []}
    errors: list[RecordDeserializationError] = []

    def poll_until(count: int) -> None:
        while sum(map(len, read.values())) < count or not errors:
            try:
                for record in reader.poll(1000):
                    read[TopicPartition(record.topic, record.partition)].append(record.value)
            except RecordDeserializationError as error:
                errors.append(error)

    poll_until(6)
    assert read == {LOG: [b"a", b"b", b"c", b"d"], OTHER: [1, 2]}
    assert {(error.partition, error.offset, error.value) for error in errors} == {(1, 2, b"bad")}
    reader.commit()
    assert cluster.groups.committed("index") == {LOG: 4, OTHER: 2}

    reader.seek(OTHER, 3)
    poll_until(7)
    reader.close()
    assert read[OTHER] == [1, 2, 4]
    assert cluster.groups.committed("index") == {LOG: 4, OTHER: 4}


def test_a_reader_that_breaks_off_at_an_unreadable_record_leaves_it_to_the_next_owner(
    cluster: FakeCluster,
) -> None:
    write(cluster, "1", "bad", "3", partition=OTHER)
    group = {"group.id": "index", "auto.commit.interval.ms": 0}
    anna = Reader(cluster, OTHER, properties=group, value_deserializer=lambda topic, value: int(value))
    assert anna.read(1) == [1]
    with pytest.raises(RecordDeserializationError):
        anna.read(1)
    anna.close()

    ben = Reader(cluster, OTHER, properties=group)
    assert ben.read(2) == [b"bad", b"3"]
    ben.close()


def test_a_reader_that_does_not_poll_stops_considering_itself_the_owner(cluster: FakeCluster) -> None:
    """ "A GC pause or other transient failure could cause a false positive in the failure detection" (own
    API): the reader stops considering itself the owner before it has asked the broker."""
    reader = Reader(cluster, session_timeout_ms=9000)
    reader.read(4)
    owned = []
    for passed_ms in (8000, 2000):
        cluster.time_ms += passed_ms
        owned.append(reader.is_owner)
    assert reader.poll(1000) == []
    owned.append(reader.is_owner)
    assert (owned, reader.generation(LOG)) == ([True, False, True], 1)
    reader.close()


def test_an_expired_wait_raises_a_timeout(cluster: FakeCluster) -> None:
    anna = Reader(cluster, session_timeout_ms=3_600_000)
    anna.read(4)
    ben = Reader(cluster, wait_ms=500)
    with pytest.raises(RequestTimeoutError, match="log-0: not granted within 500 ms"):
        while True:
            assert ben.poll(WAIT_MS) == []
    ben.close()
    anna.close()


def test_closing_a_queued_reader_leaves_the_queue(cluster: FakeCluster) -> None:
    anna = Reader(cluster)
    anna.read(4)
    ben, carl = (Reader(cluster, wait_ms=FOR_EVER) for _ in range(2))
    for standby in (ben, carl):
        while ClaimState.QUEUED not in standby.states:
            standby.poll(1000)

    ben.close(timeout_ms=1000)

    while carl.told[-1].position != 1:
        carl.poll(1000)
    anna.close()
    assert carl.read(4) == [b"a", b"b", b"c", b"d"]
    assert carl.generation(LOG) == 2
    carl.close()


def committed(reader: Reader) -> int | None:
    """The group's committed offset of LOG."""
    found = reader.committed([LOG])[LOG]
    return None if found is None else found.offset


def test_a_consumer_that_does_not_know_of_its_loss_commits_nothing(cluster: FakeCluster) -> None:
    group = {"group.id": "index", "enable.auto.commit": False}
    anna = Reader(cluster, properties=group)
    assert anna.read(2) == [b"a", b"b"]
    anna.commit()
    assert anna.read(1) == [b"c"]

    generation = anna.generation(LOG)
    assert generation is not None
    ben = Reader(cluster, generation=generation, properties=group)
    assert ben.read(1) == [b"c"]

    with pytest.raises(OwnershipFencedError):
        anna.commit()
    assert committed(ben) == 2
    ben.commit()
    assert committed(ben) == 3
    for each in (anna, ben):
        each.close()
