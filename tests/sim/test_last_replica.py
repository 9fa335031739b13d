"""The last in-sync replica loses power: the replicas that left the in-sync set before it have every
acknowledged record."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.world import World
from tests.sim.cluster import Machine, logs_in_trace
from tests.sim.test_cluster import AT, Stage

LOST = range(1, 7)
"""Seeds of worlds. The seed decides how much of its unsynced log a machine keeps after a power loss."""


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    world = World(request.param)
    with logs_in_trace(world):
        yield world
    assert world.problems == []


class Trio:
    """Three brokers. Acknowledged records are on at least `min_in_sync` of them."""

    def __init__(self, world: World, min_in_sync: int = 2) -> None:
        self.world = world
        self.stage = Stage(world, 3, {"min.insync.replicas": str(min_in_sync)})
        self.stage.produce(3)
        leader = self.stage.leader()
        self.leader = self.stage.cluster.machine(leader)
        self.others = [each for each in self.stage.cluster.machines if each.broker_id != leader]

    def isr(self) -> tuple[int, ...]:
        return self.stage.cluster.states()[AT].isr

    def pause_followers(self) -> None:
        """Pause the followers, and return once they have left the in-sync set."""
        for other in self.others:
            other.pause()
        self.stage.until(lambda: self.isr() == (self.leader.broker_id,))

    def keeps_everything(self) -> None:
        """Mend the cluster, and check that it recovers and that a consumer gets every acknowledged record."""
        self.stage.cluster.mend()
        self.stage.until(self.stage.cluster.is_whole, 60)
        self.stage.until(lambda: self.stage.producer.is_idle)
        consumer = self.stage.consumer()
        acknowledged = self.stage.acknowledged()
        self.stage.until(lambda: self.stage.has_read(consumer) >= acknowledged)
        assert self.stage.history.violations == []


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_the_last_replica_in_sync_loses_power(world: World) -> None:
    trio = Trio(world)
    trio.pause_followers()
    trio.leader.lose_power()
    world.run(1)
    trio.keeps_everything()


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_the_last_replica_in_sync_loses_power_while_the_others_are_down(world: World) -> None:
    """The other brokers were killed, which loses no record that they have written."""
    trio = Trio(world)
    for other in trio.others:
        other.kill()
    trio.stage.until(lambda: trio.isr() == (trio.leader.broker_id,))
    trio.leader.lose_power()
    world.run(8)
    trio.leader.start()
    world.run(8)
    trio.keeps_everything()


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_two_of_three_in_sync_replicas_lose_power_at_the_same_moment(world: World) -> None:
    trio = Trio(world)
    for machine in (trio.leader, trio.others[0]):
        machine.lose_power()
    world.run(4)
    trio.keeps_everything()


def fall(trio: Trio, machine: Machine) -> None:
    machine.lose_power()
    trio.stage.until(lambda: trio.stage.leader() not in (machine.broker_id, -1))


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_one_broker_after_the_other_loses_power(world: World) -> None:
    """The first broker is back and in sync before the second one loses power."""
    trio = Trio(world)
    fall(trio, trio.leader)
    trio.leader.start()
    trio.stage.until(trio.stage.cluster.is_whole)
    second = trio.stage.cluster.machine(trio.stage.leader())
    fall(trio, second)
    trio.keeps_everything()
