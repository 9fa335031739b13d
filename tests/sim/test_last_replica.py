"""The last in-sync replica loses power. Either replicas that left the in-sync set before it have every
acknowledged record, or all members have lost the ends of their logs: then the longest log is the best."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.znodes.topics import NO_LEADER
from holdfast_log.protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest
from tests.models.world import World
from tests.sim.cluster import Machine
from tests.sim.test_cluster import AT, Stage

LOST = range(1, 7)
"""Seeds of worlds. The seed decides how much of its unsynced log a machine keeps after a power loss."""


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


class Outage:
    """All three machines lose power in the same instant. The system had written everything of one of them to
    its disk; the others lose the ends of their logs."""

    def __init__(self, world: World) -> None:
        self.trio = Trio(world)
        self.longest = self.trio.others[world.rng("longest").randrange(2)]
        self.longest.disk.write_back()
        for machine in self.machines:
            machine.lose_power()
        world.run(8)

    @property
    def machines(self) -> list[Machine]:
        return self.trio.stage.cluster.machines

    def others(self) -> list[Machine]:
        """The machines with shorter logs, the last leader's first."""
        return [each for each in (self.trio.leader, *self.trio.others) if each is not self.longest]


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_the_longest_log_leads_after_all_lost_power_and_came_back_at_once(world: World) -> None:
    outage = Outage(world)
    for machine in outage.machines:
        machine.start()
    outage.trio.keeps_everything()


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_no_log_is_cut_after_all_machines_lost_the_ends_of_their_logs(world: World) -> None:
    trio = Trio(world)
    for machine in trio.stage.cluster.machines:
        machine.lose_power()
    world.run(8)
    for machine in trio.stage.cluster.machines:
        machine.start()
    trio.stage.until(trio.stage.cluster.is_whole)
    assert not [line for line in world.trace.lines if "Truncated the log of t-0" in line]


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_the_longest_log_leads_although_the_last_leader_came_back_after_it(world: World) -> None:
    outage = Outage(world)
    for machine in (outage.longest, *reversed(outage.others())):
        machine.start()
        world.run(8)
    outage.trio.keeps_everything()


def controller(outage: Outage) -> Machine:
    """The machine that has the controller."""
    return next(each for each in outage.machines if each.is_controller)


def start_unheard(outage: Outage) -> Machine:
    """Start all machines, and let nothing that the one with the longest log sends arrive at the controller.
    Return the controller's machine once it can have asked for the ends of all logs."""
    for machine in outage.others():
        machine.start()
        outage.trio.stage.world.run(8)
    asking = controller(outage)
    outage.trio.stage.cluster.network.cut(outage.longest.name, asking.name)
    outage.longest.start()
    outage.trio.stage.until(lambda: len(outage.trio.stage.cluster.states()[AT].unclean) == 3)
    outage.trio.stage.world.run(3)
    assert outage.trio.stage.leader() == NO_LEADER
    return asking


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_the_election_waits_for_a_late_answer(world: World) -> None:
    outage = Outage(world)
    start_unheard(outage)
    world.run(5)
    assert outage.trio.stage.leader() == NO_LEADER
    outage.trio.keeps_everything()


@pytest.mark.parametrize("world", LOST, indirect=True)
def test_the_controller_dies_between_the_question_and_the_election(world: World) -> None:
    outage = Outage(world)
    start_unheard(outage).kill()
    outage.trio.stage.cluster.network.heal()
    world.run(8)
    outage.trio.keeps_everything()


@pytest.mark.parametrize("world", [1, 2, 3, 5, 6, 7], indirect=True)  # In 4 no question is drawn.
def test_questions_and_answers_are_lost_delayed_and_repeated(world: World) -> None:
    outage = Outage(world)
    key = GetReplicaLogInfoRequest.api.key
    outage.trio.stage.cluster.network.meddled[key] = 1.0
    for machine in outage.machines:
        machine.start()
    outage.trio.stage.until(lambda: any(f"a request {key} of" in line for line in world.trace.lines))
    outage.trio.keeps_everything()
