"""Elections of the controller while sessions are lost and expire."""

from __future__ import annotations

from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.coordinator.cluster.membership import ClusterMembership
from holdfast_log.coordinator.cluster.term import Term
from holdfast_log.coordinator.znodes.brokers import BrokerInfo
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel

SESSION_TIMEOUT_MS = 6000


class Candidate:
    """A broker that only registers and stands for election."""

    def __init__(self, world: World, model: ZooKeeperModel, broker_id: int) -> None:
        self.terms: list[int] = []
        self.resignations = 0
        self.process = Process(world, f"b{broker_id}")
        self.client = SimZooKeeper(model, self.process, SESSION_TIMEOUT_MS)
        self.candidacy = Candidacy(broker_id, self.process.clock, self.process.clock.date_ms)
        self.candidacy.add_listener(self)
        membership = ClusterMembership(
            self.client,
            self.process.clock,
            self.process.clock.date_ms,
            lambda: BrokerInfo(broker_id, (), None),
            conflict_timeout_ms=SESSION_TIMEOUT_MS + 1000,
        )
        self.client.add_listener(membership)
        membership.add_listener(self.candidacy)
        self.client.start()
        membership.start()

    def elected(self, term: Term) -> None:
        self.terms.append(term.epoch)

    def resigned(self) -> None:
        self.resignations += 1

    def controller_is(self, broker_id: int | None) -> None:
        pass


def test_a_controller_read_in_flight_when_the_session_expires_is_repeated_on_the_next_session() -> None:
    world = World(3)
    model = ZooKeeperModel(world)
    candidate = Candidate(world, model, 1)
    world.run(2)
    assert candidate.terms == [1]
    candidate.client.cut()  # The watch is lost; the candidate reads again, and the answer never arrives.
    world.run(7)
    candidate.client.mend()
    world.run(2)
    assert candidate.terms == [1, 2]
    assert candidate.resignations == 1
    assert world.problems == []


def test_another_broker_is_elected_when_the_controller_loses_its_connection() -> None:
    world = World(4)
    model = ZooKeeperModel(world)
    one = Candidate(world, model, 1)
    world.run(2)
    other = Candidate(world, model, 2)
    world.run(2)
    assert (one.terms, other.terms) == ([1], [])
    one.client.cut()
    world.run(7)
    assert other.terms == [2]
    assert other.candidacy.controller_id == 2
    one.client.mend()
    world.run(2)
    assert one.candidacy.controller_id == 2
    assert one.resignations == 1
