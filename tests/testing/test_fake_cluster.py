"""The public methods of the fake cluster: what unit tests of applications see of topics, failures, time."""

from __future__ import annotations

import pytest

from holdfast_log import (
    BrokerError,
    CommitFailedError,
    ConnectionFailedError,
    ErrorCode,
    Message,
    NewTopic,
    NotEnoughReplicasError,
    RequestTimeoutError,
    TopicExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    UnsupportedRequestError,
)
from holdfast_log.clients.admin.configs import ConfigResource, ResourceType
from holdfast_log.testing import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(brokers=2)
    cluster.create_topic("flights", partitions=2)
    return cluster


def test_records_are_those_of_all_partitions_or_of_one(cluster: FakeCluster) -> None:
    cluster.write(Message("flights", "k", "one", partition=1, headers=[("h", b"1")], timestamp=77))
    cluster.write(
        Message("flights", value="two", partition=0), Message("flights", value="three", partition=1)
    )

    assert [(row.partition, row.offset, row.value) for row in cluster.records("flights")] == [
        (0, 0, b"two"),
        (1, 0, b"one"),
        (1, 1, b"three"),
    ]
    first, _ = cluster.records("flights", 1)
    assert (first.topic, first.key, first.headers, first.timestamp) == ("flights", b"k", (("h", b"1"),), 77)


def test_the_admin_client_creates_grows_and_deletes_topics(cluster: FakeCluster) -> None:
    cluster.write(Message("flights", value="kept", partition=0))
    with cluster.admin() as admin:
        admin.create_topics([NewTopic("trains", 3), NewTopic("buses")])
        (before,) = admin.describe_topics(["flights"])
        admin.create_partitions({"flights": 5})
        (after,) = admin.describe_topics(["flights"])
        with pytest.raises(TopicExistsError):
            admin.create_topics([NewTopic("trains", 1)])
        admin.delete_topics(["buses"])
        with pytest.raises(UnknownTopicOrPartitionError):
            admin.delete_topics(["buses"])
        assert sorted(admin.list_topics()) == ["flights", "trains"]

    assert (len(before.partitions), len(after.partitions), after.id == before.id) == (2, 5, True)
    assert [record.value for record in cluster.records("flights")] == [b"kept"]


def test_a_topic_that_is_created_again_is_another_one(cluster: FakeCluster) -> None:
    with cluster.admin() as admin:
        (before,) = admin.describe_topics(["flights"])
        cluster.delete_topic("flights")
        cluster.create_topic("flights")
        (after,) = admin.describe_topics(["flights"])

    assert after.id != before.id and cluster.records("flights") == []


def test_what_the_fake_cluster_does_not_support_is_refused_by_the_client(cluster: FakeCluster) -> None:
    with cluster.admin() as admin, pytest.raises(UnsupportedRequestError):
        admin.describe_configs([ConfigResource(ResourceType.TOPIC, "flights")])


def test_a_failure_hits_whichever_broker_gets_the_request_and_only_so_often(cluster: FakeCluster) -> None:
    cluster.fail_next("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    with cluster.producer({"retries": 0, "enable.idempotence": False}) as producer:
        for partition in (0, 1):
            with pytest.raises(NotEnoughReplicasError):
                producer.send(Message("flights", value="x", partition=partition)).result()
        assert producer.send(Message("flights", value="y", partition=0)).result().offset == 0

    assert (cluster.count_requests("Produce", broker=1), cluster.count_requests("Produce")) == (2, 3)


def test_a_failure_of_one_broker_leaves_the_others_alone(cluster: FakeCluster) -> None:
    cluster.fail_next("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, broker=2)
    with cluster.producer({"retries": 0, "enable.idempotence": False}) as producer:
        assert producer.send(Message("flights", value="x", partition=0)).result().offset == 0
        with pytest.raises(NotEnoughReplicasError):
            producer.send(Message("flights", value="x", partition=1)).result()


@pytest.mark.parametrize(("is_carried_out", "written"), [(False, 0), (True, 1)])
def test_a_connection_ends_before_or_after_the_request(
    cluster: FakeCluster, is_carried_out: bool, written: int
) -> None:
    cluster.cut_next("Produce", is_carried_out=is_carried_out)
    with (
        cluster.producer({"retries": 0, "enable.idempotence": False}) as producer,
        pytest.raises((BrokerError, ConnectionFailedError, RequestTimeoutError)),
    ):
        producer.send(Message("flights", value="x", partition=0)).result()

    assert len(cluster.records("flights")) == written


def test_a_stopped_broker_is_back_after_a_while(cluster: FakeCluster) -> None:
    with cluster.producer() as producer:
        producer.send(Message("flights", value="x", partition=0)).result()
        cluster.stop_broker(1)
        cluster.after(20_000, lambda: cluster.start_broker(1))

        assert producer.send(Message("flights", value="y", partition=0)).result().offset == 1

    assert cluster.time_ms >= 20_000


def test_a_producer_follows_the_leader(cluster: FakeCluster) -> None:
    with cluster.producer() as producer:
        producer.send(Message("flights", value="x", partition=0)).result()
        cluster.move_leader("flights", 0, broker=2)
        assert producer.send(Message("flights", value="y", partition=0)).result().offset == 1

    assert cluster.count_requests("Produce", broker=2) == 1


def test_a_member_of_a_group_that_does_not_poll_loses_its_partitions(cluster: FakeCluster) -> None:
    properties = {"group.id": "g", "session.timeout.ms": 10_000}
    late, other = cluster.consumer(properties), cluster.consumer(properties)
    for consumer in (late, other):
        consumer.add_topic("flights")
    for _ in range(20):
        late.poll(100)
    assert len(late.assignment()) == 2

    cluster.advance(60_000)
    for _ in range(20):
        other.poll(100)

    assert len(other.assignment()) == 2
    with pytest.raises(CommitFailedError):
        late.commit()


def test_one_exclusive_producer_at_a_time(cluster: FakeCluster) -> None:
    with cluster.exclusive_producer("flights") as owner:
        owner.send(Message("flights", value="mine", partition=0)).result()
        with pytest.raises(BrokerError), cluster.producer() as stranger:
            stranger.send(Message("flights", value="theirs", partition=0)).result()

    assert [record.value for record in cluster.records("flights")] == [b"mine"]


def test_an_exclusive_consumer_reads_what_it_owns(cluster: FakeCluster) -> None:
    cluster.write(Message("flights", value="x", partition=1))
    mine = [TopicPartition("flights", 1)]
    with cluster.exclusive_consumer("readers", mine, {"auto.offset.reset": "earliest"}) as consumer:
        records = [record for _ in range(10) for record in consumer.poll(100)]

    assert [record.value for record in records] == [b"x"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda cluster: cluster.fail_next("Product", ErrorCode.NONE), "no request 'Product'"),
        (lambda cluster: cluster.stop_broker(3), r"no broker 3: the brokers are \[1, 2\]"),
        (lambda cluster: cluster.records("trains"), "no topic 'trains'"),
        (lambda cluster: cluster.write(Message("trains", value="x")), "no topic 'trains'"),
        (lambda cluster: cluster.move_leader("flights", 2, 1), "has 2 partitions, and no partition 2"),
        (lambda cluster: cluster.grow_topic("flights", 1), "it cannot have 1"),
    ],
)
def test_a_name_or_number_that_does_not_exist_is_an_error(cluster: FakeCluster, call, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=said):
        call(cluster)


def test_two_runs_are_equal() -> None:
    def run() -> tuple[list[object], int]:
        cluster = FakeCluster(brokers=3)
        cluster.create_topic("flights", partitions=7)
        with cluster.producer({"linger.ms": 5}) as producer:
            for number in range(100):
                producer.send(Message("flights", value=str(number)))
        return list(cluster.records("flights")), cluster.time_ms

    assert run() == run()
