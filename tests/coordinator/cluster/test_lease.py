"""A broker's lease, on the model of ZooKeeper."""

from __future__ import annotations

import pytest
from twisted.internet.defer import ensureDeferred

from holdfast_log.coordinator.cluster.identity import prepare_layout
from holdfast_log.coordinator.cluster.lease import LEASE_SHARE, MembershipLease
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel

TIMEOUT_MS = 6000
LEASE_S = TIMEOUT_MS / 1000 * LEASE_SHARE


class Holder:
    """A registered broker's lease. `heard` lists whether it was held at each call of its listener."""

    def __init__(self) -> None:
        self.world = World(1)
        self.zookeeper = ZooKeeperModel(self.world)
        self.process = Process(self.world, "broker")
        self.client = SimZooKeeper(self.zookeeper, self.process, TIMEOUT_MS)
        self.lease = MembershipLease(self.process.clock, 1)
        self.lease.add_listener(lambda: self.heard.append("held" if self.lease.is_held() else "lapsed"))
        self.heard: list[str] = []
        self.client.add_listener(self)
        self.client.start()
        self.world.run(1)
        ensureDeferred(prepare_layout(self.client.session))
        self.world.run(1)
        self.lease.registered(self.client.session, 1)
        self.world.run(0.1)

    def session_connected(self, session: object) -> None:
        self.lease.resumed()

    def session_suspended(self, session: object) -> None:
        self.lease.suspended()

    def session_expired(self, session: object) -> None:
        self.lease.expired()


@pytest.fixture
def holder() -> Holder:
    return Holder()


def test_a_registered_broker_holds_its_lease_for_as_long_as_zookeeper_answers(holder: Holder) -> None:
    for _ in range(100):
        assert holder.lease.is_held()
        holder.world.run(0.5)
    assert holder.heard == ["held"]


@pytest.mark.parametrize("silently", [True, False])
def test_a_broker_without_zookeeper_loses_its_lease_before_its_session_can_expire(
    holder: Holder, silently: bool
) -> None:
    session_id = holder.client.session.session_id
    if silently:
        holder.client.cut_silently()
    else:
        holder.client.cut()
    while holder.lease.is_held():
        assert holder.zookeeper.has_session(session_id)
        holder.world.run(0.01)
    holder.world.run(0.01)
    assert holder.heard == ["held", "lapsed"]


def test_a_broker_that_hears_from_zookeeper_again_in_its_session_holds_its_lease_again(
    holder: Holder,
) -> None:
    holder.zookeeper.stop()  # A stopped ZooKeeper ends no session.
    holder.world.run(LEASE_S + 1)
    assert not holder.lease.is_held()
    holder.zookeeper.start()
    holder.world.run(1)
    assert holder.lease.is_held()
    assert holder.heard == ["held", "lapsed", "held"]


def test_a_process_that_stood_still_does_not_hold_its_lease_when_it_goes_on(holder: Holder) -> None:
    held: list[bool] = []
    holder.process.clock.callLater(0.001, lambda: held.append(holder.lease.is_held()))
    holder.process.pause()
    holder.world.run(LEASE_S + 0.1)
    holder.process.resume()
    holder.world.run(0)
    assert held == [False]


def test_a_broker_whose_session_has_expired_does_not_hold_its_lease(holder: Holder) -> None:
    holder.zookeeper.end_session(holder.client.session.session_id, "a test ends it")
    holder.client.break_connection()
    holder.world.run(1)
    assert not holder.lease.is_held()
    assert holder.heard == ["held", "lapsed"]


def writes_in(holder: Holder, seconds: float) -> int:
    """Number of ZooKeeper's writes in the next seconds, in which the lease must be held."""
    before = holder.zookeeper.leader.tree.zxid
    for _ in range(int(seconds * 10)):
        assert holder.lease.is_held()
        holder.world.run(0.1)
    return holder.zookeeper.leader.tree.zxid - before


def test_an_ensemble_is_asked_by_writes(holder: Holder) -> None:
    assert 55 <= writes_in(holder, 60) <= 61


def test_a_server_that_runs_alone_is_asked_by_reads(holder: Holder) -> None:
    holder.zookeeper.is_ensemble = False
    holder.client.break_connection()  # It was restarted with another configuration.
    holder.world.run(3)
    assert writes_in(holder, 60) == 0
    holder.client.cut_silently()
    while holder.lease.is_held():
        assert holder.zookeeper.has_session(holder.client.session.session_id)
        holder.world.run(0.01)


def test_a_server_that_runs_alone_no_longer_is_asked_by_writes(holder: Holder) -> None:
    """It says so in the answer to the read, which therefore proves nothing."""
    holder.zookeeper.is_ensemble = False
    holder.client.break_connection()
    holder.world.run(3)
    holder.zookeeper.is_ensemble = True
    assert 9 <= writes_in(holder, 10) <= 11
