"""Pauses and recovery times are computed from acknowledgements; the topics of a load wait for brokers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from benchmarks import steady_load
from benchmarks.steady_load import (
    Acknowledged,
    PartitionAccount,
    create_once_possible,
    number_of,
    value_of,
)

ACCOUNT = PartitionAccount(
    sent_at=[1.0, 2.0, 3.0, 4.0],
    acknowledged={
        0: Acknowledged(0, 1.5),
        1: Acknowledged(1, 6.0),  # sent before the fault, acknowledged after it
        3: Acknowledged(3, 6.5),
        2: Acknowledged(2, 7.5),
    },
)


def test_a_pause_is_the_time_between_two_successive_acknowledgements() -> None:
    assert ACCOUNT.longest_pause_s() == 4.5
    assert ACCOUNT.longest_pause_s(since=6.2) == 1.0
    assert ACCOUNT.longest_pause_s(until=6.0) == 0.0
    assert PartitionAccount().longest_pause_s() == 0.0


def test_a_record_sent_before_a_fault_does_not_count_as_recovery() -> None:
    assert ACCOUNT.first_acknowledged_of_those_sent_since(2.5) == 6.5
    assert ACCOUNT.first_acknowledged_of_those_sent_since(1.0) == 1.5
    assert ACCOUNT.first_acknowledged_of_those_sent_since(math.inf) is None


@pytest.mark.parametrize("number", [0, 7, 999_999_999_999])
def test_a_value_contains_its_number(number: int) -> None:
    assert number_of(value_of(number, b"padding")) == number


@pytest.mark.parametrize("value", [b"", b"no number at all"])
def test_a_value_without_a_number_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError):
        number_of(value)


class StubAdmin:
    """Refuses the first attempts to create a topic with these errors."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.attempts = 0

    def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, Future[None]]:
        self.attempts += 1
        created: Future[None] = Future()
        if self.codes:
            created.set_exception(KafkaException(KafkaError(self.codes.pop(0))))
        else:
            created.set_result(None)
        return {topics[0].topic: created}


def test_a_topic_is_created_once_its_brokers_have_registered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady_load, "_CREATE_AGAIN_S", 0.0)
    admin = StubAdmin(KafkaError.INVALID_REPLICA_ASSIGNMENT, KafkaError.INVALID_REPLICATION_FACTOR)
    create_once_possible(admin, NewTopic("t", 1, 3))
    assert admin.attempts == 3


def test_a_topic_whose_creation_was_not_answered_is_there_or_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steady_load, "_CREATE_AGAIN_S", 0.0)
    for codes in ((KafkaError._TIMED_OUT, KafkaError.TOPIC_ALREADY_EXISTS), (KafkaError.REQUEST_TIMED_OUT,)):
        admin = StubAdmin(*codes)
        create_once_possible(admin, NewTopic("t", 1, 3))
        assert admin.attempts == 2


def test_a_topic_that_cannot_be_created_is_not_tried_again() -> None:
    admin = StubAdmin(KafkaError.TOPIC_ALREADY_EXISTS)
    with pytest.raises(KafkaException):
        create_once_possible(admin, NewTopic("t", 1, 3))
    assert admin.attempts == 1
