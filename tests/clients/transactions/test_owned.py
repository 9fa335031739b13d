"""Transactions that are written for the owner of partitions."""

from __future__ import annotations

import pytest

from holdfast_log.clients.errors import (
    CommitUnknownError,
    ConfigError,
    RequestTimeoutError,
    UnsupportedRequestError,
)
from holdfast_log.clients.fence import FENCES_FEATURE
from holdfast_log.clients.message import Message
from holdfast_log.clients.transactions.machine import OWNED_FEATURE
from holdfast_log.protocol.errors import ErrorCode, OwnershipFencedError
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing import FakeCluster

ID = {"transactional.id": "ledger"}
LEDGER = [TopicPartition("ledger", number) for number in (0, 1)]


@pytest.fixture
def cluster(transaction_version: int) -> FakeCluster:
    cluster = FakeCluster(transaction_version=transaction_version)
    cluster.brokers[1].features |= {FENCES_FEATURE: 1, OWNED_FEATURE: 1}
    cluster.create_topic("ledger", partitions=2)
    return cluster


def values(cluster: FakeCluster) -> list[bytes]:
    cluster.advance(1)
    return [record.value for record in cluster.records("ledger", only_committed=True)]


def asked(cluster: FakeCluster) -> list[tuple[bool, list[tuple[int, int]]]]:
    """Of each EndTxn: whether it commits, and the partitions and tokens that it names."""
    return [
        (request.committed, [(each.partition, each.owner_token) for each in request.owned])
        for request in cluster.brokers[1].requests
        if isinstance(request, EndTxnRequest)
    ]


def test_a_commit_names_the_grants_of_what_was_written(cluster: FakeCluster) -> None:
    lease = cluster.lease("app", LEDGER, generation=1)
    lease.claim(10_000)
    with cluster.producer(ID, fence=lease.fence()) as producer:
        with producer.transaction() as t:
            t.send(Message("ledger", partition=1, value=b"1"))
        with pytest.raises(ZeroDivisionError), producer.transaction() as t:
            t.send(Message("ledger", partition=0, value=b"2"))
            producer.flush()
            raise ZeroDivisionError
    assert asked(cluster) == [(True, [(1, lease.token(LEDGER[1]))]), (False, [])]
    assert values(cluster) == [b"1"]


def test_an_owner_that_has_lost_its_partition_cannot_commit_what_it_has_open_there(
    cluster: FakeCluster,
) -> None:
    lease = cluster.lease("app", LEDGER, generation=1)
    lease.claim(10_000)
    with cluster.producer(ID, fence=lease.fence()) as producer:
        with pytest.raises(OwnershipFencedError), producer.transaction() as t:
            t.send(Message("ledger", partition=0, value=b"1"))
            producer.flush()
            successor = cluster.lease("app", LEDGER, generation=1)
            successor.claim(10_000)
        assert [is_commit for is_commit, _ in asked(cluster)] == [True, False]
    assert values(cluster) == []


def test_a_commit_that_was_decided_before_the_loss_is_acknowledged(cluster: FakeCluster) -> None:
    lease = cluster.lease("app", LEDGER, generation=1)
    lease.claim(10_000)
    with cluster.producer(ID, fence=lease.fence()) as producer:
        cluster.cut_next("EndTxn", is_carried_out=True)
        t = producer.transaction()
        t.send(Message("ledger", partition=0, value=b"1"))
        producer.flush()
        cluster.transactions.holds_markers = True
        with pytest.raises(RequestTimeoutError):
            t.commit(timeout_ms=20)
        cluster.lease("app", LEDGER, generation=1).claim(10_000)
        cluster.after(1_000, lambda: setattr(cluster.transactions, "holds_markers", False))
        t.commit()
    assert values(cluster) == [b"1"]


def test_a_refusal_after_an_answer_was_lost_leaves_the_outcome_unknown(cluster: FakeCluster) -> None:
    lease = cluster.lease("app", LEDGER, generation=1)
    lease.claim(10_000)
    producer = cluster.producer(ID, fence=lease.fence())
    cluster.cut_next("EndTxn", is_carried_out=True)
    cluster.fail_next("EndTxn", ErrorCode.OWNERSHIP_FENCED)
    with pytest.raises(CommitUnknownError), producer.transaction() as t:
        t.send(Message("ledger", partition=0, value=b"1"))


def test_a_broker_that_cannot_judge_grants_commits_nothing(cluster: FakeCluster) -> None:
    del cluster.brokers[1].features[OWNED_FEATURE]
    lease = cluster.lease("app", LEDGER, generation=1)
    lease.claim(10_000)
    with (
        cluster.producer(ID, fence=lease.fence()) as producer,
        pytest.raises(UnsupportedRequestError, match=OWNED_FEATURE),
        producer.transaction() as t,
    ):
        t.send(Message("ledger", partition=0, value=b"1"))
    assert values(cluster) == []


def test_an_exclusive_producer_says_how_to_write_in_transactions(cluster: FakeCluster) -> None:
    with pytest.raises(ConfigError, match=r"fence\(\)"):
        cluster.exclusive_producer("ledger", ID)
