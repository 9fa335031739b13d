"""Producers where the cluster has finalised transaction.version 2 (KIP-890), and where some brokers say so.
Every other test of this folder runs with both versions."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast_log.clients.errors import CommitFailedError
from holdfast_log.clients.message import Message
from holdfast_log.coordinator.transactions.epochs import EPOCH_MAX
from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing import FakeCluster
from tests.clients.transactions.test_offsets_and_readers import GROUP, copy_all
from tests.clients.transactions.test_transactions import ID, send_two, values

WITH_2 = pytest.mark.parametrize("transaction_version", [2], indirect=True)
ADDING = ("AddPartitionsToTxn", "AddOffsetsToTxn")


def added(cluster: FakeCluster) -> list[int]:
    return [cluster.count_requests(kind) for kind in ADDING]


def sent(cluster: FakeCluster, kind: type[Any]) -> list[Any]:
    return [each for broker in cluster.brokers.values() for each in broker.requests if isinstance(each, kind)]


def epochs(cluster: FakeCluster, partition: int) -> list[tuple[bool, int]]:
    """Of each batch in the log: whether it is a marker, and its epoch."""
    found = [split(batch)[0] for batch in cluster.topics["accounts"][partition].batches]
    return [(header.is_control, header.producer_epoch) for header in found]


@WITH_2
def test_nothing_is_added_beforehand_and_each_transaction_has_an_epoch(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        for _ in range(3):
            send_two(producer)
    assert added(cluster) == [0, 0]
    assert sorted(values(cluster)) == [b"+10"] * 3 + [b"-10"] * 3
    for partition in (0, 1):
        # A marker has the epoch that its transaction has ended with.
        assert epochs(cluster, partition) == [
            (False, 0), (True, 1), (False, 1), (True, 2), (False, 2), (True, 3),
        ]  # fmt: skip
    assert [request.producer_epoch for request in sent(cluster, EndTxnRequest)] == [0, 1, 2]
    assert cluster.count_requests("InitProducerId") == 1


@WITH_2
def test_the_coordinator_of_a_group_adds_it(cluster: FakeCluster) -> None:
    cluster.create_topic("requests")
    cluster.write(*[Message("requests", value=b"%d" % n) for n in range(3)])
    with cluster.producer(ID) as producer:
        with pytest.raises(ZeroDivisionError):
            copy_all(cluster, producer, fails=True)
        copy_all(cluster, producer)
        cluster.advance(1)
    assert added(cluster) == [0, 0]
    assert cluster.committed("tellers") == {TopicPartition("requests", 0): 3}


@WITH_2
def test_offsets_alone_are_a_transaction(cluster: FakeCluster) -> None:
    cluster.create_topic("requests")
    cluster.write(Message("requests", value=b"1"))
    with cluster.producer(ID) as producer, cluster.consumer(GROUP) as consumer:
        consumer.add_topic("requests")
        consumer.poll(10_000)
        with producer.transaction() as t:
            t.send_offsets({TopicPartition("requests", 0): 1}, consumer.group_metadata())
        cluster.advance(1)
    assert cluster.committed("tellers") == {TopicPartition("requests", 0): 1}


@WITH_2
def test_a_group_that_was_added_for_refused_offsets_is_aborted(cluster: FakeCluster) -> None:
    cluster.create_topic("requests")
    cluster.write(Message("requests", value=b"1"))
    with cluster.producer(ID) as producer, cluster.consumer(GROUP) as consumer:
        consumer.add_topic("requests")
        consumer.poll(10_000)
        former = dataclasses.replace(consumer.group_metadata(), generation=0)
        with pytest.raises(CommitFailedError), producer.transaction() as t:
            t.send_offsets({TopicPartition("requests", 0): 1}, former)
        assert [request.committed for request in sent(cluster, EndTxnRequest)] == [False]
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"-10"]


@WITH_2
def test_a_transaction_begins_while_markers_of_the_last_one_are_missing(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        send_two(producer)
        cluster.advance(1)
        cluster.transactions.holds_markers = True
        send_two(producer)
        cluster.after(2_000, lambda: setattr(cluster.transactions, "holds_markers", False))
        with producer.transaction() as t:
            response = t.send(Message("accounts", partition=0, value=b"later"))
        assert response.offset == 4
    assert values(cluster).count(b"later") == 1
    assert cluster.time_ms >= 2_000


@WITH_2
@pytest.mark.parametrize("commits", [True, False])
def test_an_end_whose_answer_is_lost_gives_the_same_epoch_again(cluster: FakeCluster, commits: bool) -> None:
    with cluster.producer(ID) as producer:
        send_two(producer)
        cluster.cut_next("EndTxn", is_carried_out=True, times=2)
        transaction = producer.transaction()
        producer.send(Message("accounts", partition=0, value=b"1"))
        producer.flush()
        transaction.commit() if commits else transaction.abort()
        send_two(producer)
    assert [request.producer_epoch for request in sent(cluster, EndTxnRequest)] == [0, 1, 1, 1, 2]
    assert (b"1" in values(cluster)) is commits


@WITH_2
def test_an_abort_before_anything_was_written_is_no_error(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        send_two(producer)
        cluster.fail_next("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=2)
        with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED"):
            send_two(producer)
        send_two(producer)
    assert sorted(values(cluster)) == [b"+10", b"+10", b"-10", b"-10"]
    assert cluster.count_requests("InitProducerId") == 1


@WITH_2
def test_the_last_epoch_is_followed_by_another_producer_id(cluster: FakeCluster) -> None:
    with cluster.producer(ID) as producer:
        send_two(producer)
        cluster.advance(1)
        (known,) = cluster.transactions.shard.transactions.values()
        last = dataclasses.replace(known, producer_epoch=EPOCH_MAX - 1)
        cluster.transactions.shard._put("transfers", last)
        assert producer._engine.transactions is not None
        producer._engine.transactions.producer_id.epoch = EPOCH_MAX - 1
        for _ in range(2):
            send_two(producer)
    found = [(request.producer_id, request.producer_epoch) for request in sent(cluster, EndTxnRequest)]
    assert found == [
        (known.producer_id, 0),
        (known.producer_id, EPOCH_MAX - 1),
        (known.producer_id + 1, 0),
    ]
    assert sorted(values(cluster)) == [b"+10"] * 3 + [b"-10"] * 3


class TestBrokersThatDiffer:
    """As while the setting is being changed, one broker after the other."""

    @pytest.fixture
    def mixed(self) -> FakeCluster:
        cluster = FakeCluster(brokers=2)
        cluster.create_topic("accounts", partitions=2)
        return cluster

    @pytest.mark.parametrize("coordinator", [1, 2])
    def test_each_broker_is_asked_in_its_way(self, mixed: FakeCluster, coordinator: int) -> None:
        mixed.brokers[2].use_transactions(2)
        mixed.move_coordinator(coordinator)
        with mixed.producer(ID) as producer:
            send_two(producer)  # What a broker announces is known once there is a connection to it.
            forget(mixed)
            for _ in range(2):
                send_two(producer)
            assert mixed.topics["accounts"][0].leader == 1
            named = [
                (topic.name, number)
                for request in sent(mixed, AddPartitionsToTxnRequest)
                for topic in request.v3_and_below_topics
                for number in topic.partitions
            ]
        assert set(named) == {("accounts", 0)}
        assert sorted(values(mixed)) == [b"+10"] * 3 + [b"-10"] * 3
        assert epochs(mixed, 1)[-1] == (True, 3 if coordinator == 2 else 0)

    @pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
    def test_a_producer_follows_when_brokers_are_restarted_with_another_version(
        self, mixed: FakeCluster, before: int, after: int
    ) -> None:
        for broker in mixed.brokers.values():
            broker.use_transactions(before)
        with mixed.producer(ID) as producer:
            send_two(producer)
            for number, broker in mixed.brokers.items():
                mixed.stop_broker(number)
                broker.use_transactions(after)
                mixed.start_broker(number)
                send_two(producer)
            forget(mixed)
            send_two(producer)
        assert (added(mixed) == [0, 0]) is (after == 2)
        assert sorted(values(mixed)) == [b"+10"] * 4 + [b"-10"] * 4


def forget(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        broker.requests.clear()


def test_a_producer_without_transactions_works_as_before(cluster: FakeCluster) -> None:
    with cluster.producer() as producer:
        producer.send(Message("accounts", partition=0, value=b"1")).result()
    assert [record.value for record in cluster.records("accounts")] == [b"1"]
    assert [request.transactional_id for request in sent(cluster, ProduceRequest)] == [None]
