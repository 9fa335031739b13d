"""Each rule of a producer under transaction.version 2 (KIP-890), taken away: a test has to notice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.sending.producer_id import NO_PRODUCER
from holdfast_log.clients.sending.queues import PartitionQueue
from holdfast_log.clients.transactions import machine, transaction
from holdfast_log.clients.transactions.machine import TransactionalProducerId, TransactionMachine
from holdfast_log.clients.transactions.requests import TransactionStep
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.end_txn import EndTxnResponse
from holdfast_log.testing import FakeCluster
from tests.clients.transactions import test_transactions as of_transactions
from tests.clients.transactions import test_version_2 as of_version_2
from tests.clients.transactions.conftest import two_accounts
from tests.missed import assert_missed

Check = Callable[[], None]
CAUGHT = (AssertionError, BrokerError, ClientError)
_DONE, _MAY_SEND, _REPEAT = TransactionMachine._done, TransactionMachine.may_send, TransactionMachine._repeat
_CALLS, _END = TransactionMachine.calls, TransactionMachine._end


def within(scenario: Callable[[FakeCluster], None], version: int = 2) -> Check:
    """The scenario with a cluster of its own, whose brokers announce this version."""
    return lambda: scenario(two_accounts(version))


def mixed(scenario: Callable[..., None], *arguments: int) -> Check:
    """The scenario with two brokers that announce different versions."""

    def check() -> None:
        cluster = FakeCluster(brokers=2)
        cluster.create_topic("accounts", partitions=2)
        scenario(of_version_2.TestBrokersThatDiffer(), cluster, *arguments)

    return check


def ends_with(change: Callable[[TransactionMachine, EndTxnResponse], EndTxnResponse]) -> object:
    """A machine that reads the answer to EndTxn in another way."""

    def done(self: TransactionMachine, reply: Any, now_ms: int) -> None:
        if isinstance(reply.response, EndTxnResponse):
            reply = dataclasses.replace(reply, response=change(self, reply.response))
        _DONE(self, reply, now_ms)

    return done


def without_epoch(self: TransactionMachine, response: EndTxnResponse) -> EndTxnResponse:
    return dataclasses.replace(response, producer_id=NO_PRODUCER)


def with_old_id(self: TransactionMachine, response: EndTxnResponse) -> EndTxnResponse:
    is_new = response.producer_id != NO_PRODUCER
    return dataclasses.replace(response, producer_id=self.producer_id.id) if is_new else response


def any_answer(self: TransactionMachine, reply: Any, now_ms: int) -> None:
    if isinstance(reply.response, EndTxnResponse):
        self.producer_id.id = reply.response.producer_id
        self.producer_id.epoch = reply.response.producer_epoch
    _DONE(self, reply, now_ms)


def sent_unnoticed(self: TransactionMachine, topic: str, partition: int) -> bool:
    """Nothing counts as added before a leader has acknowledged it."""
    before = self._is_adding_uncertain
    may = _MAY_SEND(self, topic, partition)
    self._is_adding_uncertain = before
    return may


def sent_without_trace(self: TransactionMachine, topic: str, partition: int) -> bool:
    may = sent_unnoticed(self, topic, partition)
    self._led.clear()
    return may


def raised_at_each_try(self: TransactionMachine, error: Exception, now_ms: int) -> None:
    if self._step is TransactionStep.END:
        self.producer_id.epoch += 1
    _REPEAT(self, error, now_ms)


def group_forgotten(self: TransactionMachine, now_ms: int) -> Any:
    before = self._is_adding_uncertain
    calls = _CALLS(self, now_ms)
    if self._step is TransactionStep.COMMIT_OFFSETS:
        self._is_adding_uncertain = before
    return calls


def goes_on_under_the_old_epoch(self: TransactionalProducerId, queue: PartitionQueue) -> bool:
    sequences = queue.sequences
    if sequences.producer_id == self.id:
        return False
    sequences.begin(self.id, self.epoch)
    sequences.is_known = False
    return True


def left_out_of_commit(self: TransactionMachine, step: TransactionStep) -> Any:
    request: Any = _REQUEST(self, step)
    if step is TransactionStep.END and self._led:
        request.committed = False
    return request


_REQUEST = TransactionMachine._request


def guessed(self: TransactionMachine, topic: str, partition: int) -> bool:
    """What the coordinator announces counts for leaders too."""
    adds = self._adds_itself
    try:
        self._adds_itself = lambda node: adds(self._nodes.get(None, -1))
        return _MAY_SEND(self, topic, partition)
    finally:
        self._adds_itself = adds


def as_one_that_was_fenced(error: Exception) -> bool:
    return False


MUTATIONS: dict[str, tuple[object, str, object, Check]] = {
    "the epoch that an end returns is not taken over": (
        TransactionMachine, "_done", ends_with(without_epoch),
        within(of_version_2.test_nothing_is_added_beforehand_and_each_transaction_has_an_epoch),
    ),
    "the producer id that an end returns is not taken over": (
        TransactionMachine, "_done", ends_with(with_old_id),
        within(of_version_2.test_the_last_epoch_is_followed_by_another_producer_id),
    ),
    "an answer without an epoch ends the one in force": (
        TransactionMachine, "_done", any_answer,
        within(of_transactions.test_markers_that_are_missing_delay_only_the_next_transaction, 1),
    ),
    "an end that is repeated has another epoch": (
        TransactionMachine, "_repeat", raised_at_each_try,
        within(lambda cluster: of_version_2.test_an_end_whose_answer_is_lost_gives_the_same_epoch_again(
            cluster, commits=True
        )),
    ),
    "partitions keep the epoch of the first transaction": (
        TransactionalProducerId, "begin_epoch", goes_on_under_the_old_epoch,
        within(lambda cluster: of_transactions.aborts_everything(
            cluster, "Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        )),
    ),
    "partitions are added beforehand": (
        transaction, "_adds_itself", lambda connection, node: False,
        within(of_version_2.test_nothing_is_added_beforehand_and_each_transaction_has_an_epoch),
    ),
    "nothing is ever added beforehand": (
        transaction, "_adds_itself", lambda connection, node: True,
        mixed(of_version_2.TestBrokersThatDiffer.test_each_broker_is_asked_in_its_way, 1),
    ),
    "leaders are taken for as new as the coordinator": (
        TransactionMachine, "may_send", guessed,
        mixed(of_version_2.TestBrokersThatDiffer.test_each_broker_is_asked_in_its_way, 2),
    ),
    "a transaction that only leaders know is not ended": (
        TransactionMachine, "may_send", sent_without_trace,
        within(of_version_2.test_nothing_is_added_beforehand_and_each_transaction_has_an_epoch),
    ),
    "a transaction whose records have no answers is not aborted": (
        TransactionMachine, "may_send", sent_unnoticed,
        within(of_transactions.test_an_exception_aborts_and_goes_on),
    ),
    "a group that was added for refused offsets stays open": (
        TransactionMachine, "calls", group_forgotten,
        within(of_version_2.test_a_group_that_was_added_for_refused_offsets_is_aborted),
    ),
    "a transaction that timed out ends the producer": (
        machine, "_is_none_open", as_one_that_was_fenced,
        within(of_transactions.test_a_producer_of_version_2_goes_on_after_a_transaction_that_was_open_for_too_long),
    ),
    "a commit whose answer is lost counts as one that nobody got": (
        machine, "_is_uncertain", lambda reply, error: False,
        within(of_transactions.test_a_commit_whose_answer_is_lost_and_that_is_then_fenced_has_an_unknown_outcome),
    ),
    "what leaders have added is aborted when it is to be committed": (
        TransactionMachine, "_request", left_out_of_commit,
        within(of_transactions.test_a_block_commits_all_that_was_sent_in_it),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_of_producers_that_is_taken_away_is_missed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_missed(monkeypatch, CAUGHT, *MUTATIONS[name])
