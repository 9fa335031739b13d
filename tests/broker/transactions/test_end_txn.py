"""The end of a transaction that has written for an owner (own API): its commit is refused once the owner's
grant has ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.handlers.end_txn import CHECKED_TOGETHER, EndTxnHandler
from holdfast_log.broker.metrics.row import read_single
from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.transactions.metrics import TRANSACTION_METRICS, TransactionSight
from holdfast_log.coordinator.transactions.effects import TransactionAnswer
from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.partitions import TRANSACTIONS_TOPIC
from holdfast_log.coordinator.transactions.states import TransactionState
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.end_txn import EndTxnRequest, PartitionOwnedInTransaction
from holdfast_log.protocol.messages.ownership import LossReason
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.groups.group_broker import GroupBroker
from tests.broker.groups.test_owner_commits import coordinator, grant

ID = "payments"
VERSION = 4
"""The last without the next epoch in the answer."""


class Coordinator:
    """The coordinator of a transaction that has written to t-0. No leader answers its markers, so a decided
    transaction stays as it is decided."""

    def __init__(self, path: Path) -> None:
        self.broker: GroupBroker = coordinator(path, send=lambda *request: Deferred())
        parts = self.broker.transactions
        self.broker.replicas.add_role_listener(parts.transaction_leadership.role_changed)
        self.broker.assign(TRANSACTIONS_TOPIC)
        self.broker.dispatcher.add(
            [
                EndTxnHandler(
                    parts.transactions, self.broker.metadata, CommitterCheck(self.broker.ownership_store)
                )
            ]
        )
        made = self._ask(
            lambda shard, waiting, now_ms: shard.init_producer_id(
                waiting, ID, 60_000, now_ms=now_ms, new_producer_id=7
            )
        )
        self.producer = ProducerName(made.producer_id, made.producer_epoch)
        self._ask(
            lambda shard, waiting, now_ms: shard.add_partitions(
                waiting, ID, self.producer, [TopicPartition("t", 0)], now_ms=now_ms
            )
        )

    def _ask(self, event: Any) -> Any:
        found: list[Any] = []
        self.broker.transactions.transactions.ask(ID, event).addCallback(found.append)
        (answer,) = found
        return answer

    def grant(self, incarnation: int, reason: LossReason = LossReason.NONE) -> None:
        grant(self.broker, incarnation, reason)

    def end(self, *tokens: int, commits: bool = True) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=commits,
            owned=[
                PartitionOwnedInTransaction(topic="t", partition=0, owner_token=token) for token in tokens
            ],
        )
        return ErrorCode(self.broker.client().call(request, VERSION).error_code)

    def metrics(self) -> dict[str, float]:
        """What the broker says of its transactions, by the metric's name."""
        parts = self.broker.transactions
        return read_single(TRANSACTION_METRICS, TransactionSight(parts.transactions, parts.markers))

    @property
    def state(self) -> TransactionState:
        answer: TransactionAnswer = self._ask(lambda shard, waiting, _: shard.describe(waiting, ID))
        assert answer.transaction is not None
        return answer.transaction.state


@pytest.fixture
def txn(tmp_path: Path) -> Coordinator:
    return Coordinator(tmp_path)


def test_an_owner_that_may_resume_commits(txn: Coordinator) -> None:
    txn.grant(7, LossReason.DISCONNECTED)
    assert txn.end(7) is ErrorCode.NONE
    assert txn.state is TransactionState.PREPARE_COMMIT


@pytest.mark.parametrize("reason", [LossReason.RELEASED, LossReason.FORCED])
def test_an_owner_whose_grant_has_ended_commits_nothing(txn: Coordinator, reason: LossReason) -> None:
    txn.grant(7, reason)
    assert txn.end(7) is ErrorCode.OWNERSHIP_FENCED
    assert txn.state is TransactionState.ONGOING


def test_an_owner_that_has_a_successor_commits_nothing_and_aborts(txn: Coordinator) -> None:
    txn.grant(8)
    assert txn.end(7) is ErrorCode.OWNERSHIP_FENCED
    assert txn.state is TransactionState.ONGOING
    assert txn.end(7, commits=False) is ErrorCode.NONE
    assert txn.state is TransactionState.PREPARE_ABORT


def test_one_grant_that_has_ended_is_enough(txn: Coordinator) -> None:
    txn.grant(8)
    assert txn.end(8, 7) is ErrorCode.OWNERSHIP_FENCED
    assert txn.state is TransactionState.ONGOING


def test_a_commit_that_is_decided_stays_when_the_grant_ends(txn: Coordinator) -> None:
    txn.grant(7)
    assert txn.end(7) is ErrorCode.NONE
    txn.grant(8)
    assert txn.end(7) is not ErrorCode.OWNERSHIP_FENCED
    assert txn.state is TransactionState.PREPARE_COMMIT


def test_a_producer_without_an_owner_commits(txn: Coordinator) -> None:
    txn.grant(8)
    assert txn.end() is ErrorCode.NONE


def test_the_metrics_say_for_how_long_a_transaction_is_open_or_lacks_its_markers(txn: Coordinator) -> None:
    txn.broker.clock.advance(12)
    found = txn.metrics()
    assert found["holdfast_transactions_longest_open_seconds"] == 12
    assert found["holdfast_transactions_ongoing"] == 1
    assert txn.end() is ErrorCode.NONE
    txn.broker.clock.advance(8)
    assert txn.metrics()["holdfast_transactions_longest_open_seconds"] == 20, "no leader has the marker"

    parts = txn.broker.transactions
    limit = txn.broker.settings["transaction.state.max.bytes"]
    taken = found["holdfast_transaction_state_bytes"]
    assert taken > 0 and found["holdfast_transaction_state_bytes_available"] == limit - taken

    for partition in range(txn.broker.settings["transaction.state.log.num.partitions"]):
        parts.transactions.resign(partition)
    assert txn.metrics()["holdfast_transactions_longest_open_seconds"] == 0, "another broker coordinates it"


def test_the_owners_of_many_partitions_are_read_a_few_at_a_time(
    txn: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, store = [], txn.broker.ownership_store
    read_partitions = store.read_partitions

    def noted(keys: Any) -> Any:
        read.append(len(keys))
        return read_partitions(keys)

    monkeypatch.setattr(store, "read_partitions", noted)
    txn.grant(7)
    partitions = 2 * CHECKED_TOGETHER + 1
    owned = [PartitionOwnedInTransaction(topic="t", partition=0, owner_token=7)] * 2
    owned += [
        PartitionOwnedInTransaction(topic="t", partition=number + 1, owner_token=7)
        for number in range(partitions - 1)
    ]
    request = EndTxnRequest(
        transactional_id=ID,
        producer_id=txn.producer.producer_id,
        producer_epoch=txn.producer.epoch,
        committed=True,
        owned=owned,
    )
    for each in range(partitions):
        grant(txn.broker, 7, index=each)
    assert txn.broker.client().call(request, VERSION).error_code == ErrorCode.NONE
    assert read == [CHECKED_TOGETHER, CHECKED_TOGETHER, 1]
