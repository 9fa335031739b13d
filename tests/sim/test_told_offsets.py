"""The judge of the end offsets that brokers report to clients."""

from __future__ import annotations

import pytest

from tests.models.world import World
from tests.sim.history import History, Incarnation
from tests.sim.told_offsets import ToldOffsets

PLACE = Incarnation(("t", 0))


class Told:
    """A history in which clients learn end offsets, one every second."""

    def __init__(self) -> None:
        self.world = World(1)
        self.history = History(self.world, may_lose=frozenset({"loose"}))
        self.offsets = ToldOffsets(self.history)

    def tell(
        self,
        client: str,
        epoch: int,
        offset: int,
        *,
        asked_s: float | None = None,
        place: Incarnation = PLACE,
    ) -> None:
        self.world.run(1.0)
        self.offsets.told(client, place, epoch, offset, asked_s=asked_s)

    def found(self) -> list[str]:
        return [violation.split(": ", 1)[1] for violation in self.history.violations]


@pytest.fixture
def told() -> Told:
    return Told()


def test_ends_may_rise(told: Told) -> None:
    told.tell("a", 0, 5, asked_s=0.5)
    told.tell("b", 0, 5, asked_s=1.5)
    told.tell("a", 2, 9, asked_s=2.5)
    assert told.found() == []


def test_an_end_that_decreases_is_found_even_across_clients_and_leaders(told: Told) -> None:
    told.tell("a", 0, 5, asked_s=0.5)
    told.tell("b", 0, 4, asked_s=1.5)
    told.tell("b", 3, 3, asked_s=2.5)
    assert told.found() == [
        "b was told that t-0 ends at 4 in epoch 0, after a had been told 5 in epoch 0",
        "b was told that t-0 ends at 3 in epoch 3, after a had been told 5 in epoch 0",
    ]


def test_an_end_below_the_records_that_a_consumer_got_is_found(told: Told) -> None:
    told.tell("c", 0, 7)
    told.tell("a", 1, 6, asked_s=1.5)
    assert told.found() == ["a was told that t-0 ends at 6 in epoch 1, after c had been told 7 in epoch 0"]


def test_a_consumer_may_lag_behind_the_known_end(told: Told) -> None:
    told.tell("a", 0, 7, asked_s=0.5)
    told.tell("c", 0, 2)
    assert told.found() == []


def test_answers_to_concurrent_requests_may_come_in_any_order(told: Told) -> None:
    told.tell("a", 0, 5, asked_s=0.5)
    told.tell("b", 0, 4, asked_s=0.7)
    assert told.found() == []


def test_a_leader_of_an_earlier_epoch_may_report_a_lower_end(told: Told) -> None:
    told.tell("a", 2, 5, asked_s=0.5)
    told.tell("b", 1, 4, asked_s=1.5)
    assert told.found() == []
    told.tell("b", 2, 4, asked_s=2.5)
    assert len(told.found()) == 1


def test_the_highest_end_of_each_epoch_is_remembered(told: Told) -> None:
    told.tell("a", 1, 3, asked_s=0.5)
    told.tell("a", 4, 9, asked_s=1.5)
    told.tell("b", 2, 2, asked_s=2.5)
    assert told.found() == ["b was told that t-0 ends at 2 in epoch 2, after a had been told 3 in epoch 1"]


def test_topics_that_may_lose_records_are_not_judged(told: Told) -> None:
    place = Incarnation(("loose", 0))
    told.tell("a", 0, 5, asked_s=0.5, place=place)
    told.tell("a", 1, 1, asked_s=1.5, place=place)
    assert told.found() == []


def test_an_end_beyond_what_any_leader_has_committed_is_found(told: Told) -> None:
    told.history.committed = {PLACE: 4}
    told.tell("a", 0, 4, asked_s=0.5)
    told.tell("a", 0, 5, asked_s=1.5)
    assert told.found() == ["t-0: what a was told implies that 5 is committed, but no leader got beyond 4"]
