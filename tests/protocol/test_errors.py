"""The error table is Kafka's, and codes become the exceptions that people catch."""

from __future__ import annotations

import pickle

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from holdfast_log.protocol.errors import (
    MESSAGE_LENGTH_MAX,
    BrokerError,
    ErrorCode,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    UnknownTopicOrPartitionError,
    error_for,
)

FIRST_OWN_CODE = 10_000


def test_codes_names_and_retriability_are_kafkas() -> None:
    kafkas = {code.value: (code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {code.value: (code.name, code.retriable) for code in ErrorCode if code < FIRST_OWN_CODE}
    assert ours == kafkas
    assert sorted(ours) == list(range(-1, 134))


def test_every_row_says_what_it_means() -> None:
    texts = [code.message for code in ErrorCode]
    assert all(text.endswith(".") for text in texts)
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        (3, UnknownTopicOrPartitionError),
        (100, UnknownTopicOrPartitionError),
        (6, NotLeaderOrFollowerError),
        (90, ProducerFencedError),
        (57, BrokerError),
    ],
)
def test_a_code_becomes_the_exception_that_is_caught_for_it(code: int, exception: type) -> None:
    error = error_for(code)
    assert type(error) is exception
    assert error.code == code
    assert error.retriable is ErrorCode(code).retriable


def test_the_brokers_own_text_goes_before_the_tables() -> None:
    assert str(error_for(36)) == "TOPIC_ALREADY_EXISTS: A topic with this name already exists."
    assert str(error_for(36, "Topic 'a' exists.")) == "TOPIC_ALREADY_EXISTS: Topic 'a' exists."


def test_a_code_from_the_future_is_not_retriable_and_keeps_its_number() -> None:
    error = error_for(9999, "new")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not error.retriable
    assert "9999: new" in str(error)


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(error_for(90, "gone")))
    assert type(error) is ProducerFencedError
    assert (error.code, error.message) == (ErrorCode.PRODUCER_FENCED, "gone")


def test_a_text_fits_a_string_of_the_protocol_whatever_it_quotes() -> None:
    error = error_for(40, "ü" * 40_000 + " is not allowed")
    assert len(error.message) == MESSAGE_LENGTH_MAX
    assert error.message.endswith("ü…")
    assert len(str(error).encode()) < 0x7FFF
