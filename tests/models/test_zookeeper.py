"""The model of ZooKeeper keeps the guarantees that its users rely on."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from coordinator.zookeeper.interface import (
    SessionExpired,
    WatchEvent,
    WatchKind,
    ZooKeeperConnectionLost,
)
from tests.coordinator.zookeeper.test_zookeeper import Events
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel


class Ensemble:
    def __init__(self) -> None:
        self.world = World(7)
        self.model = ZooKeeperModel(self.world)

    def client(self, name: str) -> tuple[SimZooKeeper, Events]:
        client = SimZooKeeper(self.model, Process(self.world, name), session_timeout_ms=6000)
        listener = Events()
        client.add_listener(listener)
        client.start()
        self.world.run(1)
        return client, listener

    def result(self, deferred: Deferred[Any]) -> Any:
        outcomes: list[Any] = []
        deferred.addBoth(outcomes.append)
        self.world.run(1)
        assert outcomes, "no answer came"
        return getattr(outcomes[0], "value", outcomes[0])


@pytest.fixture
def ensemble() -> Ensemble:
    return Ensemble()


def test_ephemeral_znodes_go_with_their_session(ensemble: Ensemble) -> None:
    owner, heard = ensemble.client("a")
    other = ensemble.client("b")[0].session
    ensemble.result(owner.session.create("/mine", ephemeral=True))
    gone: list[WatchEvent] = []
    ensemble.result(other.exists("/mine", gone.append))
    old = owner.session
    owner.cut()
    ensemble.world.run(7)
    assert gone == [WatchEvent(WatchKind.DELETED, "/mine")]
    assert heard.names() == ["connected", "suspended"]
    owner.mend()
    ensemble.world.run(1)
    assert heard.names() == ["connected", "suspended", "expired", "connected"]
    assert isinstance(ensemble.result(old.create("/late")), SessionExpired)
    assert ensemble.result(other.exists("/late")) is None


def test_a_short_cut_keeps_the_session_but_loses_its_watches(ensemble: Ensemble) -> None:
    client, heard = ensemble.client("a")
    events: list[WatchEvent] = []
    ensemble.result(client.session.exists("/x", events.append))
    client.cut()
    ensemble.world.run(1)
    client.mend()
    ensemble.world.run(1)
    assert heard.names() == ["connected", "suspended", "connected"]
    assert [event.kind for event in events] == [WatchKind.LOST]


def test_a_write_under_way_when_the_connection_breaks_is_in_doubt() -> None:
    outcomes = set()
    for seed in range(30):
        ensemble = Ensemble()
        ensemble.world.seed = seed
        client, _ = ensemble.client("a")
        answer = client.session.create("/x")
        client.cut()
        ensemble.world.run(1)
        client.mend()
        assert isinstance(ensemble.result(answer), ZooKeeperConnectionLost)
        outcomes.add(ensemble.result(client.session.exists("/x")) is not None)
    assert outcomes == {True, False}


def test_a_paused_process_learns_of_its_expired_session_when_it_resumes(ensemble: Ensemble) -> None:
    client, heard = ensemble.client("a")
    client.process.pause()
    client.fall_silent()
    ensemble.world.run(7)
    assert heard.names() == ["connected"]
    client.process.resume()
    client.speak_again()
    ensemble.world.run(1)
    assert heard.names() == ["connected", "suspended", "expired", "connected"]


def test_no_session_expires_during_an_outage(ensemble: Ensemble) -> None:
    client, heard = ensemble.client("a")
    ensemble.result(client.session.create("/mine", ephemeral=True))
    ensemble.model.stop()
    ensemble.world.run(60)
    ensemble.model.start()
    ensemble.world.run(1)
    assert heard.names() == ["connected", "suspended", "connected"]
    assert ensemble.result(client.session.exists("/mine")) is not None
