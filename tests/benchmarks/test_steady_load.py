"""Pauses and recovery times are computed from a steady load's acknowledgements."""

from __future__ import annotations

import math

import pytest

from benchmarks.steady_load import Acknowledged, PartitionAccount, number_of, value_of

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
