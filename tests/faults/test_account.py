"""The comparison of acknowledged with stored records finds each kind of fault."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks.steady_load import Acknowledged, PartitionAccount
from tests.faults.account import Findings, compare


def account(acknowledged: Mapping[int, int | None], sent: int = 5) -> PartitionAccount:
    return PartitionAccount(
        sent_at=[0.0] * sent,
        acknowledged={number: Acknowledged(offset, 0.0) for number, offset in acknowledged.items()},
    )


ALL = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}


def test_no_findings_if_each_record_is_once_at_its_acknowledged_offset() -> None:
    assert compare(account(ALL), list(enumerate(range(5)))) == Findings(acknowledged=5, consumed=5)


def test_an_unacknowledged_record_may_be_present_or_absent() -> None:
    found = compare(account({0: 0, 3: 2}), [(0, 0), (1, 1), (2, 3)])

    assert found.faults == {}


def test_a_record_that_is_acknowledged_without_an_offset_has_to_be_stored_somewhere() -> None:
    assert compare(account({0: 0, 1: None}), [(0, 0), (1, 1)]).faults == {}
    assert compare(account({0: 0, 1: None}), [(0, 0)]).faults == {"lost": 1}


@pytest.mark.parametrize(
    ("stored", "faults"),
    [
        pytest.param([(0, 0), (1, 1), (2, 2), (3, 3)], {"lost": 1}, id="the last record is missing"),
        pytest.param([], {"lost": 5}, id="all records are missing"),
        pytest.param(
            [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 4)], {"duplicated": 1}, id="a retry is stored twice"
        ),
        pytest.param(
            [(0, 0), (1, 1), (2, 2), (4, 3), (5, 4)],
            {"misplaced": 2, "gaps": 1},
            id="an offset has no record",
        ),
        pytest.param(
            [(0, 0), (1, 2), (2, 1), (3, 3), (4, 4)],
            {"misplaced": 2, "disordered": 1},
            id="records are out of order",
        ),
        pytest.param(
            [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 9)], {"invented": 1}, id="a record was never sent"
        ),
    ],
)
def test_each_kind_of_fault_is_counted(stored: list[tuple[int, int]], faults: dict[str, int]) -> None:
    assert compare(account(ALL), stored).faults == faults


def test_findings_of_partitions_add_up() -> None:
    assert Findings(1, 2, 3) + Findings(10, 20, 30, gaps=1) == Findings(11, 22, 33, gaps=1)
