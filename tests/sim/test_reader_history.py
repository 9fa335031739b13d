"""The judge of group members that are single readers reports reads after a later generation has read."""

from __future__ import annotations

import pytest

from tests.models.world import World
from tests.sim.history import History
from tests.sim.reader_history import ReaderHistory

AT = ("t", 0)


@pytest.fixture
def told() -> ReaderHistory:
    return ReaderHistory(History(World(1)))


def read(told: ReaderHistory, generation: int, epoch: int, sent_s: float, answered_s: float) -> None:
    told.answered(f"m{generation}", "g", AT, generation, epoch, sent_s, answered_s)


def test_members_of_successive_generations_may_read(told: ReaderHistory) -> None:
    read(told, 1, 0, 1.0, 2.0)
    read(told, 2, 0, 3.0, 4.0)
    read(told, 2, 1, 5.0, 6.0)
    assert told.history.violations == []


def test_an_earlier_reader_must_not_read_after_a_later_one(told: ReaderHistory) -> None:
    read(told, 2, 0, 1.0, 2.0)
    read(told, 1, 0, 2.5, 3.0)
    assert len(told.history.violations) == 1
    assert "m1 read t-0 for g in generation 1" in told.history.violations[0]


def test_an_earlier_reader_must_not_read_from_a_later_leader(told: ReaderHistory) -> None:
    read(told, 2, 0, 1.0, 2.0)
    read(told, 1, 1, 2.5, 3.0)
    assert len(told.history.violations) == 1


def test_a_fetch_sent_before_the_next_reader_began_is_allowed(told: ReaderHistory) -> None:
    read(told, 2, 0, 1.0, 2.0)
    read(told, 1, 0, 1.5, 3.0)
    assert told.history.violations == []


def test_an_earlier_reader_must_not_read_from_a_replaced_leader(told: ReaderHistory) -> None:
    read(told, 2, 1, 1.0, 2.0)
    read(told, 1, 0, 2.5, 3.0)
    assert len(told.history.violations) == 1
