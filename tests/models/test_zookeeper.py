"""The model of ZooKeeper keeps the guarantees that its users rely on."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.coordinator.zookeeper.interface import (
    BadVersion,
    SessionExpired,
    Stat,
    WatchEvent,
    WatchKind,
    ZooKeeperConnectionLost,
)
from tests.coordinator.zookeeper.test_zookeeper import Events
from tests.models.world import Process, World
from tests.models.zookeeper import SimZooKeeper, ZooKeeperModel


class Ensemble:
    def __init__(self, seed: int = 7) -> None:
        self.world = World(seed)
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


def test_a_watch_whose_event_is_lost_with_the_connection_is_lost(ensemble: Ensemble) -> None:
    """As with kazoo, whose client keeps a watch until its event arrives."""
    client, _ = ensemble.client("a")
    other = ensemble.client("b")[0].session
    events: list[WatchEvent] = []
    ensemble.result(client.session.exists("/x", events.append))
    other.create("/x")
    assert ensemble.world.run_until(lambda: "/x" in client.session.server.tree.znodes, 1)
    client.cut()
    ensemble.world.run(1)
    client.mend()
    ensemble.world.run(1)
    assert [event.kind for event in events] == [WatchKind.LOST]


@pytest.mark.parametrize("is_silent", [False, True])
@pytest.mark.parametrize("wait_s", [0.0, 0.0005, 0.001, 0.002, 0.004, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_a_watch_is_called_once_wherever_its_read_is_when_the_connection_breaks(
    seed: int, wait_s: float, *, is_silent: bool
) -> None:
    """The client sends a read without an answer again, and knows of its watch only since the answer."""
    ensemble = Ensemble(seed)
    client, _ = ensemble.client("a")
    other = ensemble.client("b")[0].session
    events: list[WatchEvent] = []
    stat = client.session.exists("/x", events.append)
    ensemble.world.run(wait_s)
    client.cut_silently() if is_silent else client.cut()
    ensemble.world.run(3)
    client.mend()
    ensemble.world.run(3)
    is_lost = events != []
    assert events in ([], [WatchEvent(WatchKind.LOST, "")])
    assert ensemble.result(stat) is None
    ensemble.result(other.create("/x"))
    ensemble.world.run(1)
    assert len(events) == 1 and (is_lost or events == [WatchEvent(WatchKind.CREATED, "/x")])


def test_a_write_under_way_when_the_connection_breaks_is_in_doubt() -> None:
    outcomes = set()
    for seed in range(30):
        ensemble = Ensemble(seed)
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


def on_server(ensemble: Ensemble, number: int, name: str) -> SimZooKeeper:
    """A client that is connected to the server with this number."""
    others = [server for server in ensemble.model.servers if server.number != number]
    for server in others:
        server.is_up = False
    client = ensemble.client(name)[0]
    for server in others:
        server.is_up = True
    assert client.session.server.number == number
    return client


def test_a_server_that_lags_answers_reads_from_an_older_state(ensemble: Ensemble) -> None:
    writer = on_server(ensemble, 1, "writer").session
    reader = on_server(ensemble, 2, "reader").session
    ensemble.result(writer.create("/x", b"old"))
    ensemble.model.servers[1].lag(60_000)
    ensemble.result(writer.set("/x", b"new"))
    seen: list[WatchEvent] = []
    data, stat = ensemble.result(reader.get("/x", seen.append))
    assert (data, stat.version, seen) == (b"old", 0, [])
    ensemble.world.run(60)
    assert seen == [WatchEvent(WatchKind.CHANGED, "/x")]
    assert ensemble.result(reader.get("/x"))[0] == b"new"


def test_a_client_of_a_server_that_lags_reads_its_own_writes(ensemble: Ensemble) -> None:
    client = on_server(ensemble, 2, "a").session
    ensemble.model.servers[1].lag(60_000)
    written, read = client.create("/x", b"mine"), client.get("/x")
    refused, version = client.set("/x", b"", version=7), client.exists("/x")
    early: list[Any] = []
    for answer in (written, read, refused, version):
        answer.addBoth(early.append)
    ensemble.world.run(0.01)
    assert early == []
    assert ensemble.model.read("/x").data == b"mine"
    ensemble.world.run(60)
    (path, _), (data, _), failure, stat = early
    assert (path, data, stat.version) == ("/x", b"mine", 0)
    assert isinstance(failure.value, BadVersion)


def test_a_new_session_sees_every_write_made_before_it(ensemble: Ensemble) -> None:
    writer = on_server(ensemble, 1, "writer").session
    ensemble.model.servers[1].lag(10_000)
    ensemble.result(writer.create("/x"))
    reader = on_server(ensemble, 2, "reader")
    found: list[object] = []
    reader.session.exists("/x").addBoth(found.append)
    ensemble.world.run(20)
    assert len(found) == 1
    assert isinstance(found[0], Stat)


def test_no_server_shows_a_client_an_older_state_than_it_has_seen(ensemble: Ensemble) -> None:
    client = on_server(ensemble, 1, "a")
    behind = ensemble.model.servers[1]
    behind.lag(1e9)
    ensemble.result(client.session.create("/x"))
    for _ in range(20):
        client.break_connection()
        ensemble.world.run(1)
        assert client.session.connected
        assert client.session.server is not behind
        assert ensemble.result(client.session.exists("/x")) is not None


def test_a_broken_connection_keeps_only_the_first_few_pipelined_writes() -> None:
    kept = set()
    for seed in range(40):
        ensemble = Ensemble(seed)
        client, _ = ensemble.client("a")
        answers = [client.session.create(f"/{number}") for number in range(3)]
        client.cut()
        ensemble.world.run(1)
        client.mend()
        for answer in answers:
            assert isinstance(ensemble.result(answer), ZooKeeperConnectionLost)
        kept.add(tuple(ensemble.result(client.session.children("/"))))
    assert kept == {(), ("0",), ("0", "1"), ("0", "1", "2")}


def test_a_write_of_a_broken_connection_is_decided_before_the_session_is_resumed() -> None:
    outcomes = set()
    for seed in range(20):
        ensemble = Ensemble(seed)
        client, _ = ensemble.client("a")
        ensemble.model.slow_share, ensemble.model.slow_ms_max = 1.0, 60_000.0
        lost = client.session.create("/x")
        client.break_connection()
        assert isinstance(ensemble.result(lost), ZooKeeperConnectionLost)
        first = ensemble.result(client.session.exists("/x")) is not None
        ensemble.world.run(100)
        assert (ensemble.result(client.session.exists("/x")) is not None) == first
        outcomes.add(first)
    assert outcomes == {True, False}


def test_a_broken_connection_loses_the_write_or_its_answer() -> None:
    outcomes = set()
    for seed in range(30):
        ensemble = Ensemble(seed)
        client, heard = ensemble.client("a")
        ensemble.model.break_share = 1.0
        assert isinstance(ensemble.result(client.session.create("/x")), ZooKeeperConnectionLost)
        assert heard.names() == ["connected", "suspended", "connected"]
        outcomes.add(ensemble.result(client.session.exists("/x")) is not None)
    assert outcomes == {True, False}


def test_sessions_and_committed_writes_survive_a_change_of_the_leader(ensemble: Ensemble) -> None:
    clients = [ensemble.client(name) for name in ("a", "b")]
    session = clients[0][0].session
    ensemble.model.servers[2].lag(60_000)
    session.create("/mine", ephemeral=True)
    ensemble.world.run(1)
    lost = ensemble.model.leader
    ensemble.model.lose_leader()
    waiting: list[object] = []
    session.exists("/mine").addBoth(waiting.append)
    ensemble.world.run(60)
    assert waiting == []
    assert ensemble.model.leader is not lost
    ensemble.model.start()
    ensemble.world.run(1)
    assert len(waiting) == 1
    assert isinstance(waiting[0], Stat)
    for client, heard in clients:
        assert heard.names() == ["connected", "suspended", "connected"]
        assert client.session.server is not lost


def test_the_clients_of_a_lost_server_connect_to_the_others(ensemble: Ensemble) -> None:
    here, there = on_server(ensemble, 2, "here"), on_server(ensemble, 3, "there")
    session = here.session
    ensemble.model.lose_server(ensemble.model.servers[1])
    assert not here.session.connected
    assert there.session.connected
    ensemble.world.run(1)
    assert here.session is session
    assert session.connected
    assert session.server.number != 2


def test_a_paused_process_does_not_keep_its_session_through_an_outage(ensemble: Ensemble) -> None:
    client, heard = ensemble.client("a")
    client.process.pause()
    client.fall_silent()
    ensemble.model.stop()
    ensemble.model.start()
    ensemble.world.run(7)
    client.speak_again()
    client.process.resume()
    ensemble.world.run(1)
    assert heard.names() == ["connected", "suspended", "expired", "connected"]


def test_a_slow_write_delays_the_later_requests_of_its_session(ensemble: Ensemble) -> None:
    client, _ = ensemble.client("a")
    other, _ = ensemble.client("b")
    ensemble.model.slow_share, ensemble.model.slow_ms_max = 1.0, 60_000.0
    order: list[str] = []
    client.session.exists("/").addBoth(lambda _: order.append("read before"))
    client.session.create("/x").addBoth(lambda _: order.append("written"))
    client.session.exists("/").addBoth(lambda _: order.append("read after"))
    other.session.exists("/").addBoth(lambda _: order.append("read by another"))
    ensemble.world.run(0.1)
    assert sorted(order) == ["read before", "read by another"]
    ensemble.world.run(60)
    assert order[2:] == ["written", "read after"]
