"""The judge of queues reports clients that were overtaken or dropped, and nothing in a correct history."""

from __future__ import annotations

import pytest

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.messages.ownership import Access
from tests.models.world import START_S, World
from tests.sim.history import History, Incarnation
from tests.sim.queue_history import Home, Place, QueueHistory

PLACE = Incarnation(("owned", 0))
HOME = Home(Address("b1", 9092), life=1, leader_epoch=3, connection=1)
OTHER_LIFE = Home(Address("b1", 9092), life=2, leader_epoch=4, connection=2)


@pytest.fixture
def world() -> World:
    return World(1)


@pytest.fixture
def queues(world: World) -> QueueHistory:
    return QueueHistory(History(world))


def at(world: World, seconds: float) -> None:
    world.run(START_S + seconds - world.clock.rightNow)


def waits(
    queues: QueueHistory,
    owner: str,
    since_s: float,
    position: int,
    home: Home = HOME,
    patience_s: float = 60.0,
) -> Place:
    place = Place(owner, PLACE, Access.WRITE, home, since_s, since_s + 0.1, patience_s)
    queues.queued(place, position)
    return place


def found(queues: QueueHistory) -> list[str]:
    return [violation.split(": ", 1)[1] for violation in queues.history.violations]


def test_clients_served_in_order_have_no_violations(world: World, queues: QueueHistory) -> None:
    first, second = waits(queues, "x0", 1.0, 1), waits(queues, "x1", 2.0, 2)
    at(world, 3.0)
    queues.promoted(first)
    queues.waits(second, 1, asked_s=4.0, awake_since_s=0.0)
    at(world, 5.0)
    queues.promoted(second)
    assert found(queues) == []


def test_a_client_overtaken_by_a_later_one_is_found(world: World, queues: QueueHistory) -> None:
    first, second = waits(queues, "x0", 1.0, 1), waits(queues, "x1", 2.0, 2)
    at(world, 3.0)
    queues.promoted(second)
    queues.waits(first, 1, asked_s=4.0, awake_since_s=0.0)
    assert found(queues) == ["x0, waiting for owned-0 since 1.1000 s, was overtaken by x1"]


def test_a_client_that_came_at_the_same_time_or_waits_elsewhere_does_not_overtake(
    world: World, queues: QueueHistory
) -> None:
    first = waits(queues, "x0", 1.0, 1)
    beside, elsewhere = waits(queues, "x1", 1.05, 2), waits(queues, "x2", 2.0, 1, OTHER_LIFE)
    at(world, 3.0)
    queues.promoted(beside)
    queues.promoted(elsewhere)
    queues.waits(first, 1, asked_s=4.0, awake_since_s=0.0)
    assert found(queues) == []


def test_a_waiting_client_that_moves_back_is_found(queues: QueueHistory) -> None:
    place = waits(queues, "x0", 1.0, 2)
    queues.waits(place, 3, asked_s=2.0, awake_since_s=0.0)
    assert found(queues) == ["x0, waiting for owned-0 since 1.1000 s, moved back from 2 to 3"]


def test_a_client_that_waits_beyond_its_timeout_is_found(queues: QueueHistory) -> None:
    place = waits(queues, "x0", 1.0, 1, patience_s=2.0)
    queues.waits(place, 1, asked_s=3.5, awake_since_s=0.0)
    queues.waits(place, 1, asked_s=9.0, awake_since_s=8.5)  # The broker itself was paused until 8.5.
    assert found(queues) == []
    queues.waits(place, 1, asked_s=10.0, awake_since_s=8.5)
    assert len(found(queues)) == 1


def test_a_client_that_loses_its_place_without_reason_is_found(world: World, queues: QueueHistory) -> None:
    place = waits(queues, "x0", 1.0, 1, patience_s=5.0)
    at(world, 2.5)
    queues.ran_out(place, asked_s=2.4)
    assert found(queues) == [
        "x0, waiting for owned-0 since 1.1000 s, lost its place before its timeout ended"
    ]


def test_a_client_may_lose_its_place_after_silence_or_its_timeout(world: World, queues: QueueHistory) -> None:
    silent = waits(queues, "x0", 1.0, 1, patience_s=50.0)
    impatient = waits(queues, "x1", 8.0, 2, patience_s=2.0)
    at(world, 9.5)
    queues.ran_out(silent, asked_s=9.4)
    queues.ran_out(impatient, asked_s=9.4)
    assert found(queues) == []


def test_patience_counts_from_the_claim_not_from_its_answer(world: World, queues: QueueHistory) -> None:
    """The broker answered the claim 3 s after the claim arrived, because ZooKeeper was slow."""
    place = Place("x0", PLACE, Access.WRITE, HOME, asked_s=1.0, told_s=4.0, patience_s=4.0)
    queues.queued(place, 1)
    at(world, 4.5)
    queues.ran_out(place, asked_s=4.4)
    assert found(queues) == []


def test_patience_may_end_as_late_as_if_it_counted_from_the_answer(queues: QueueHistory) -> None:
    place = Place("x0", PLACE, Access.WRITE, HOME, asked_s=1.0, told_s=4.0, patience_s=4.0)
    queues.queued(place, 1)
    queues.waits(place, 1, asked_s=8.9, awake_since_s=0.0)
    assert found(queues) == []
    queues.waits(place, 1, asked_s=9.1, awake_since_s=0.0)
    assert found(queues) == [
        "x0, waiting for owned-0 since 4.0000 s, still waits, though its timeout ended at 8.0000 s"
    ]
