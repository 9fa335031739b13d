"""Offsets of groups in transactions, and what consumers read of them, on a fake cluster."""

from __future__ import annotations

import pytest

from holdfast_log.clients.errors import CommitFailedError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing import FakeCluster
from tests.clients.transactions.test_transactions import ID, values

GROUP = {"group.id": "tellers", "auto.offset.reset": "earliest", "enable.auto.commit": False}


def copy_all(cluster: FakeCluster, producer: Producer, *, fails: bool = False) -> None:
    with cluster.consumer(GROUP | {"isolation.level": "read_committed"}) as consumer:
        consumer.add_topic("requests")
        records = consumer.poll(10_000)
        with producer.transaction() as t:
            for record in records:
                t.send(Message("accounts", partition=0, value=record.value))
            ends = {TopicPartition(each.topic, each.partition): each.offset + 1 for each in records}
            t.send_offsets(ends, consumer.group_metadata())
            if fails:
                raise ZeroDivisionError


def test_offsets_are_committed_with_the_transaction(cluster: FakeCluster) -> None:
    cluster.create_topic("requests")
    cluster.write(*[Message("requests", value=b"%d" % n) for n in range(3)])
    with cluster.producer(ID) as producer:
        with pytest.raises(ZeroDivisionError):
            copy_all(cluster, producer, fails=True)
        cluster.advance(1)
        assert cluster.committed("tellers") == {}
        copy_all(cluster, producer)
        cluster.advance(1)
    assert cluster.committed("tellers") == {TopicPartition("requests", 0): 3}
    assert values(cluster) == [b"0", b"1", b"2"]


def test_readers_of_committed_records_wait_for_offsets_that_may_change(cluster: FakeCluster) -> None:
    cluster.create_topic("requests")
    cluster.write(*[Message("requests", value=b"%d" % n) for n in range(3)])
    cluster.transactions.holds_markers = True
    with cluster.producer(ID) as producer:
        copy_all(cluster, producer)
        cluster.after(500, lambda: setattr(cluster.transactions, "holds_markers", False))
        with cluster.consumer(GROUP | {"isolation.level": "read_committed"}) as consumer:
            consumer.add_topic("requests")
            assert consumer.poll(2_000) == [], "all three count as read"


def test_a_replaced_member_cannot_commit(cluster: FakeCluster) -> None:
    cluster.create_topic("requests")
    cluster.write(Message("requests", value=b"1"))
    with cluster.producer(ID) as producer, cluster.consumer(GROUP) as consumer:
        consumer.add_topic("requests")
        consumer.poll(10_000)
        stale = consumer.group_metadata()
        cluster.advance(60_000)
        with cluster.consumer(GROUP) as second:
            second.add_topic("requests")
            second.poll(10_000)
            with pytest.raises(CommitFailedError), producer.transaction() as t:
                t.send(Message("accounts", partition=0, value=b"1"))
                t.send_offsets({TopicPartition("requests", 0): 1}, stale)
    assert values(cluster) == [] and cluster.committed("tellers") == {}


@pytest.mark.parametrize("kind", ["AddOffsetsToTxn", "TxnOffsetCommit"])
def test_requests_about_offsets_are_repeated(cluster: FakeCluster, kind: str) -> None:
    cluster.create_topic("requests")
    cluster.write(Message("requests", value=b"1"))
    with cluster.producer(ID) as producer:
        cluster.cut_next(kind)
        cluster.cut_next(kind, is_carried_out=True)
        cluster.fail_next(kind, ErrorCode.NOT_COORDINATOR)
        cluster.fail_next(kind, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        copy_all(cluster, producer)
    cluster.advance(1)
    assert cluster.committed("tellers") == {TopicPartition("requests", 0): 1}


# Readers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_the_isolation_level_of_a_consumer(cluster: FakeCluster, level: str) -> None:
    producer, other = cluster.producer(ID), cluster.producer({"transactional.id": "other"})
    topic = {"partition": 0}
    with pytest.raises(ZeroDivisionError), producer.transaction() as t:
        t.send(Message("accounts", value=b"aborted", **topic))
        producer.flush()
        raise ZeroDivisionError
    with producer.transaction() as t:
        t.send(Message("accounts", value=b"committed", **topic))
    t = other.transaction()
    t.send(Message("accounts", value=b"open", **topic))
    other.flush()
    with producer.transaction() as late:
        late.send(Message("accounts", value=b"behind", **topic))
    with cluster.consumer({"auto.offset.reset": "earliest", "isolation.level": level}) as consumer:
        consumer.add_topic("accounts", 0)
        found = [record.value for _ in range(10) for record in consumer.poll(100)]
        if level == "read_uncommitted":
            assert found == [b"aborted", b"committed", b"open", b"behind"]
        else:
            assert found == [b"committed"], "those behind an open transaction wait for its end"
            t.commit()
            assert [record.value for _ in range(10) for record in consumer.poll(100)] == [b"open", b"behind"]
