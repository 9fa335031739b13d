"""Coordinators are asked about transactions one question at a time, and every question is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.network.outbound import ChannelLost
from holdfast_log.broker.transactions.verification import CoordinatorVerifier
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from holdfast_log.protocol.topic_partition import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Coordinators:
    """Coordinators whose answers the test gives."""

    def __init__(self) -> None:
        self.broker_of = {"x": 1, "y": 1, "far": 2}
        self.asked: list[tuple[int, AddPartitionsToTxnRequest, Deferred[Any]]] = []
        self.verifier = CoordinatorVerifier(self._leader_of, self._send)

    def verify(self, name: str, *partitions: TopicPartition) -> list[Mapping[TopicPartition, ErrorCode]]:
        found: list[Mapping[TopicPartition, ErrorCode]] = []
        self.verifier.verify(name, 7, 0, partitions).addCallback(found.append)
        return found

    def names(self) -> list[list[str]]:
        return [[each.transactional_id for each in request.transactions] for _, request, _ in self.asked]

    def answer(self, errors: Mapping[str, Mapping[TopicPartition, ErrorCode]]) -> None:
        self.asked.pop(0)[2].callback(
            AddPartitionsToTxnResponse(
                throttle_time_ms=0,
                error_code=ErrorCode.NONE,
                results_by_transaction=[
                    AddPartitionsToTxnResult(
                        transactional_id=name,
                        topic_results=[
                            AddPartitionsToTxnTopicResult(
                                name=topic,
                                results_by_partition=[
                                    AddPartitionsToTxnPartitionResult(
                                        partition_index=index, partition_error_code=error
                                    )
                                ],
                            )
                            for (topic, index), error in of_name.items()
                        ],
                    )
                    for name, of_name in errors.items()
                ],
                results_by_topic_v3_and_below=[],
            )
        )

    def _leader_of(self, name: str) -> int:
        try:
            return self.broker_of[name]
        except KeyError:
            raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None

    def _send(self, broker_id: int, request: Any, timeout_ms: int | None = None) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.asked.append((broker_id, request, done))
        return done


def test_a_question_names_the_transaction_and_is_answered_for_each_partition() -> None:
    world = Coordinators()
    found = world.verify("x", A0, A1, B0)
    (asked,) = world.asked[0][1].transactions
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("x", 7, 0)
    assert asked.verify_only
    assert {topic.name: topic.partitions for topic in asked.topics} == {"a": [0, 1], "b": [0]}
    errors = {A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE, B0: ErrorCode.NONE}
    world.answer({"x": errors})
    assert found == [errors]


def test_an_addition_is_no_question() -> None:
    world = Coordinators()
    world.verifier.verify("x", 7, 0, [A0], adds=True)
    assert not world.asked[0][1].transactions[0].verify_only


def test_questions_to_a_coordinator_that_is_asked_wait_and_go_together() -> None:
    world = Coordinators()
    first, same, other = world.verify("x", A0), world.verify("x", A1), world.verify("y", B0)
    assert world.names() == [["x"]]
    far = world.verify("far", A0)
    assert world.names() == [["x"], ["far"]], "another coordinator is asked at once"
    world.answer({"x": {A0: ErrorCode.NONE}})
    assert first == [{A0: ErrorCode.NONE}]
    assert world.names() == [["far"], ["x", "y"]]
    world.answer({"far": {A0: ErrorCode.NONE}})
    world.answer({"x": {A1: ErrorCode.PRODUCER_FENCED}, "y": {B0: ErrorCode.NONE}})
    assert far == [{A0: ErrorCode.NONE}]
    assert same == [{A1: ErrorCode.PRODUCER_FENCED}]
    assert other == [{B0: ErrorCode.NONE}]


def test_one_request_asks_once_about_a_transaction() -> None:
    world = Coordinators()
    for partition in (A0, A1, B0):
        world.verify("x", partition)
    world.answer({})
    assert world.names() == [["x"]]
    world.answer({})
    assert world.names() == [["x"]]
    world.answer({})
    assert not world.asked


@pytest.mark.parametrize("error", [ChannelLost("gone"), BrokerError(ErrorCode.REQUEST_TIMED_OUT)])
def test_a_coordinator_that_does_not_answer_is_not_available(error: Exception) -> None:
    world = Coordinators()
    found, waiting = world.verify("x", A0, B0), world.verify("x", A1)
    world.asked.pop(0)[2].errback(error)
    assert found == [dict.fromkeys((A0, B0), ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert world.names() == [["x"]], "the next question is asked all the same"
    world.answer({"x": {A1: ErrorCode.NONE}})
    assert waiting == [{A1: ErrorCode.NONE}]


def test_an_id_without_a_coordinator_is_answered_at_once() -> None:
    world = Coordinators()
    assert world.verify("unknown", A0) == [{A0: ErrorCode.COORDINATOR_NOT_AVAILABLE}]
    assert not world.asked


def test_what_an_answer_leaves_out_is_asked_again_later() -> None:
    world = Coordinators()
    found = world.verify("x", A0, A1)
    world.answer({"x": {A0: ErrorCode.NONE}, "y": {A1: ErrorCode.NONE}})
    assert found == [{A0: ErrorCode.NONE, A1: ErrorCode.COORDINATOR_NOT_AVAILABLE}]


def test_an_error_for_the_whole_request_is_one_for_each_partition() -> None:
    world = Coordinators()
    found = world.verify("x", A0, A1)
    world.asked.pop(0)[2].callback(
        AddPartitionsToTxnResponse(
            throttle_time_ms=0,
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            results_by_transaction=[],
            results_by_topic_v3_and_below=[],
        )
    )
    assert found == [dict.fromkeys((A0, A1), ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
