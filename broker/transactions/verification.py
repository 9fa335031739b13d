"""Asks the coordinators of transactions whether partitions belong to them, or adds the partitions (KIP-890).

A leader asks before it writes the first records of a transaction to a partition: so a producer that is late
opens no transaction that nobody ends. One question at a time goes to each coordinator; the next one has the
transactions of all producers that have written in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.groups.forwarding import SendToBroker
from holdfast_log.broker.network.outbound import ChannelError
from holdfast_log.coordinator.transactions.records import by_topic
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_ANSWER_MS = 10_000
"""Maximum time in ms for a coordinator's response: the records wait that long."""

Errors = Mapping[TopicPartition, ErrorCode]


@dataclass(slots=True, eq=False)
class _Question:
    """What is asked of one transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    verify_only: bool
    done: Deferred[Errors]


@dataclass(slots=True, eq=False)
class _Coordinator:
    """What is to be asked of a broker."""

    waiting: list[_Question] = field(default_factory=list)
    is_busy: bool = False


class CoordinatorVerifier:
    """`leader_of` returns the broker that coordinates a transactional id; it raises BrokerError if there is
    none."""

    def __init__(self, leader_of: Callable[[str], int], send: SendToBroker) -> None:
        self._leader_of = leader_of
        self._send = send
        self._coordinators: dict[int, _Coordinator] = {}

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool = False,
    ) -> Deferred[Errors]:
        """Fires with an error for each partition: NONE if the producer's open transaction has it,
        TRANSACTION_ABORTABLE if not. PRODUCER_FENCED and INVALID_PRODUCER_ID_MAPPING: this is not the
        producer any more. CONCURRENT_TRANSACTIONS, COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS
        and NOT_COORDINATOR: ask again later. `adds`: the partitions are added to the transaction, which
        begins if none is open. Never fails."""
        try:
            broker_id = self._leader_of(transactional_id)
        except BrokerError as error:
            return succeed(dict.fromkeys(partitions, error.code))
        question = _Question(transactional_id, producer_id, producer_epoch, partitions, not adds, Deferred())
        self._coordinators.setdefault(broker_id, _Coordinator()).waiting.append(question)
        self._flush(broker_id)
        return question.done

    def _flush(self, broker_id: int) -> None:
        coordinator = self._coordinators.get(broker_id)
        if coordinator is None or coordinator.is_busy:
            return
        asked = _first_of_each(coordinator)
        if not asked:
            del self._coordinators[broker_id]
            return
        coordinator.is_busy = True
        answer: Deferred[Any] = self._send(broker_id, _request(asked), _ANSWER_MS)
        answer.addCallbacks(_errors, _unreachable)
        answer.addCallback(self._answered, broker_id, asked)

    def _answered(
        self, errors: Mapping[str, Errors] | ErrorCode, broker_id: int, asked: Iterable[_Question]
    ) -> None:
        self._coordinators[broker_id].is_busy = False
        for question in asked:
            if isinstance(errors, ErrorCode):
                found: Errors = dict.fromkeys(question.partitions, errors)
            else:
                known = errors.get(question.transactional_id, {})
                found = {
                    each: known.get(each, ErrorCode.COORDINATOR_NOT_AVAILABLE) for each in question.partitions
                }
            question.done.callback(found)
        self._flush(broker_id)


def _first_of_each(coordinator: _Coordinator) -> list[_Question]:
    """The questions of the next request: one for each transactional id, in order. The others wait."""
    asked: dict[str, _Question] = {}
    left: list[_Question] = []
    for question in coordinator.waiting:
        if question.transactional_id in asked:
            left.append(question)
        else:
            asked[question.transactional_id] = question
    coordinator.waiting = left
    return list(asked.values())


def _request(asked: Iterable[_Question]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=each.verify_only,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic(frozenset(each.partitions)).items()
                ],
            )
            for each in asked
        ],
        v3_and_below_transactional_id="",
        v3_and_below_producer_id=0,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=[],
    )


def _errors(response: AddPartitionsToTxnResponse) -> Mapping[str, Errors] | ErrorCode:
    if response.error_code != ErrorCode.NONE:
        return ErrorCode(response.error_code)
    return {
        result.transactional_id: {
            TopicPartition(topic.name, row.partition_index): ErrorCode(row.partition_error_code)
            for topic in result.topic_results
            for row in topic.results_by_partition
        }
        for result in response.results_by_transaction
    }


def _unreachable(failure: Failure) -> ErrorCode:
    failure.trap(ChannelError, BrokerError)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE
