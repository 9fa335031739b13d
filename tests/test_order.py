"""The order of tests for several processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.order import SECONDS, ordered

HOME = Path(__file__).parents[1]
QUICK = [f"tests/protocol/test_a.py::{number}" for number in range(40)]
SLOW = [
    "tests/integration/test_acls.py::1",
    "tests/integration/test_acls.py::2",
    "tests/pipeline/jobs/test_jobs.py::1",
    "tests/pipeline/test_source.py::1",
    "tests/soak/test_soak.py::1",
]


def path_of(test: str) -> str:
    return test.partition("::")[0]


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_each_part_begins_with_slow_tests_and_those_that_share_servers_are_in_one(processes: int) -> None:
    tests = [*SLOW[:2], *QUICK, *SLOW[2:]]

    found = ordered(tests, path_of, processes)

    assert sorted(found) == sorted(tests)
    size = len(tests) // processes
    parts = [found[number * size :][:size] for number in range(processes)]
    for together in (SLOW[:2], SLOW[2:4], SLOW[4:]):
        (part,) = [part for part in parts if together[0] in part]
        begin = part.index(together[0])
        assert part[begin : begin + len(together)] == together
        assert begin + len(together) <= len(SLOW)
    assert min(sum(test in SLOW for test in part) for part in parts) >= (1 if processes <= 3 else 0)


def test_one_order_is_found_by_all_processes() -> None:
    tests = [*SLOW, *QUICK]

    assert ordered(tests, path_of, 3) == ordered(tests, path_of, 3)


def test_more_slow_tests_than_quick_ones_are_not_lost() -> None:
    tests = [f"tests/soak/test_soak.py::{number}" for number in range(10)]

    assert sorted(ordered([*tests, QUICK[0]], path_of, 3)) == sorted([*tests, QUICK[0]])


@pytest.mark.parametrize("name", SECONDS)
def test_each_name_is_that_of_a_file_or_folder(name: str) -> None:
    assert (HOME / name).exists()
