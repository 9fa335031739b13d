"""The ZooKeeper interface on a real server: sessions, and cases not in `test_zookeeper_contract`."""

from __future__ import annotations

import subprocess
import sys
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, NoNodeError
from twisted.python.failure import Failure

from holdfast_log.coordinator.zookeeper.interface import (
    Create,
    Delete,
    NoNode,
    SessionExpired,
    WatchEvent,
    WatchKind,
    ZooKeeperConnectionLost,
    ZooKeeperSession,
)
from holdfast_log.coordinator.zookeeper.kazoo_session import CONNECTED, LOST, KazooSession
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper, split_connect
from holdfast_log.coordinator.zookeeper.session_memory import SessionKey
from tests.garbage import collector_off
from tests.reactor import in_thread, on_reactor, reactor, until
from tests.zookeeper import ZooKeeperProcess

SESSION_TIMEOUT_MS = 60_000
"""So long that a session lasts on a machine that stands still for a while."""
SHORT_SESSION_MS = 6000
START_TIMEOUT_S = 120.0


class Events:
    """Records the calls of a listener."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def session_connected(self, session: ZooKeeperSession) -> None:
        self.seen.append(("connected", session.session_id))

    def session_suspended(self, session: ZooKeeperSession) -> None:
        self.seen.append(("suspended", session.session_id))

    def session_expired(self, session: ZooKeeperSession) -> None:
        self.seen.append(("expired", session.session_id))

    def names(self) -> list[str]:
        return [name for name, _ in self.seen]


@asynccontextmanager
async def connected(
    connect: str, timeout_ms: int = SESSION_TIMEOUT_MS, events: Events | None = None
) -> AsyncIterator[KazooZooKeeper]:
    client = KazooZooKeeper(connect, timeout_ms, reactor.callFromThread)
    if events is not None:
        client.add_listener(events)
    client.start()
    try:
        yield client
    finally:
        await client.close()


def end_session(session: KazooSession, connect: str) -> None:
    """Close a session through a second connection with the same session id and password.

    This disconnects the owner, which may resume the session before it is closed. The close is repeated until
    the owner has noticed the expiry.
    """
    hosts, _ = split_connect(connect)
    while session._client.state != KazooState.LOST:
        thief = KazooClient(hosts, client_id=(session.session_id, session.password))
        thief.start(START_TIMEOUT_S)
        thief.stop()
        thief.close()
        time.sleep(0.05)


@on_reactor
async def test_operations_before_the_first_connection_wait_for_it(zookeeper: str) -> None:
    client = KazooZooKeeper(zookeeper + "/deep/er", SESSION_TIMEOUT_MS, reactor.callFromThread)
    asked = client.session.create("/a")
    client.start()
    assert (await asked)[0] == "/a"
    await client.close()


@on_reactor
async def test_a_server_that_runs_alone_says_so(zookeeper: str) -> None:
    async with connected(zookeeper + "/chroot") as client:
        assert await client.session.is_alone()


@on_reactor
async def test_sequence_numbers_and_children_are_in_order(zookeeper: str) -> None:
    async with connected(zookeeper) as client:
        session = client.session
        await session.create("/q")
        made = [(await session.create("/q/n_", sequence=True))[0] for _ in range(3)]
        assert made == ["/q/n_0000000000", "/q/n_0000000001", "/q/n_0000000002"]
        assert await session.children("/q") == [path.removeprefix("/q/") for path in made]


@on_reactor
async def test_an_expired_session_stays_expired_and_another_follows(zookeeper: str) -> None:
    events = Events()
    async with connected(zookeeper, events=events) as client:
        old = client.session
        fired: list[WatchEvent] = []
        await old.create("/mine", ephemeral=True)
        await old.exists("/other", fired.append)
        await in_thread(end_session, old, zookeeper)
        await until(lambda: events.names()[-1:] == ["connected"] and len(events.seen) > 1)
        assert events.names().count("expired") == 1
        assert events.names()[-2:] == ["expired", "connected"]
        assert client.session is not old
        assert client.session.session_id != old.session_id
        for attempt in (old.create("/late"), old.get("/other"), old.multi([Create("/late")])):
            with pytest.raises(SessionExpired):
                await attempt
        assert await client.session.children("/") == []
        await client.session.create("/other")
        assert all(event.kind is WatchKind.LOST for event in fired)


@on_reactor
async def test_a_request_that_races_the_expiry_never_reaches_the_next_session(zookeeper: str) -> None:
    """Write after kazoo's thread has noticed the expiry and before the reactor has."""
    delayed: list[tuple[Callable[..., None], tuple[object, ...]]] = []
    delaying = False

    def call_from_thread(function: Callable[..., None], *arguments: object) -> None:
        if delaying:
            delayed.append((function, arguments))
        else:
            reactor.callFromThread(function, *arguments)

    client = KazooZooKeeper(zookeeper, SESSION_TIMEOUT_MS, call_from_thread)
    client.start()
    old = client.session
    await old.exists("/")
    delaying = True
    await in_thread(end_session, old, zookeeper)
    # The reactor has not yet run the queued calls for suspension and expiry.
    await until(lambda: old._client.state == "LOST" and bool(delayed))
    assert not old.expired
    late = old.create("/late")
    delaying = False
    for function, arguments in delayed:
        function(*arguments)
    # The error depends on whether the write was queued or already sent.
    with pytest.raises((SessionExpired, ZooKeeperConnectionLost)):
        await late
    assert await client.session.exists("/late") is None
    await client.close()


@on_reactor
async def test_reads_wait_and_writes_fail_while_the_server_hangs(
    zookeeper_process: Callable[..., ZooKeeperProcess],
) -> None:
    server = zookeeper_process(tick_time_ms=500)
    events = Events()
    # The client disconnects after two thirds of the timeout; the server must resume before it expires.
    async with connected(server.connect, SHORT_SESSION_MS, events) as client:
        session = client.session
        await session.create("/a", b"1")
        fired: list[WatchEvent] = []
        await session.get("/a", fired.append)
        server.pause()
        read, write = session.get("/a"), session.set("/a", b"2")
        with pytest.raises(ZooKeeperConnectionLost):
            await write
        assert events.names()[-1] == "suspended"
        await until(lambda: fired == [WatchEvent(WatchKind.LOST, "")])
        server.resume()
        data, _ = await read
        assert data in (b"1", b"2")
        await until(lambda: events.names()[-1] == "connected")


@on_reactor
async def test_a_session_outlives_a_restart_of_the_server(
    zookeeper_process: Callable[..., ZooKeeperProcess],
) -> None:
    server = zookeeper_process(tick_time_ms=1000)
    events = Events()
    async with connected(server.connect, SESSION_TIMEOUT_MS, events) as client:
        session = client.session
        await session.create("/mine", ephemeral=True)
        await in_thread(server.restart)
        assert await session.children("/") == ["mine", "zookeeper"]
        assert client.session is session
        assert events.names() == ["connected", "suspended", "connected"]


def test_a_connect_string_is_split_into_hosts_and_chroot() -> None:
    assert split_connect("a:1,b:2/kafka/one") == ("a:1,b:2", "/kafka/one")
    assert split_connect("a:1/") == ("a:1", "")
    assert split_connect("a:1") == ("a:1", "")
    with pytest.raises(ValueError, match="host:port"):
        split_connect("/kafka")


class Memory:
    """The stored session key of an ended process."""

    def __init__(self) -> None:
        self.key: SessionKey | None = None

    def recall(self) -> SessionKey | None:
        return self.key

    def remember(self, key: SessionKey) -> None:
        self.key = key

    def forget(self) -> None:
        self.key = None


_DIES = """
import os, signal, sys
from kazoo.client import KazooClient, KazooState
client = KazooClient(sys.argv[1])
client.start(120)
client.create("/mine", ephemeral=True)
session_id, password = client.client_id
print(session_id, password.hex(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def left_by_the_dead(connect: str) -> SessionKey:
    """The session of a killed process. A live process would resume it."""
    died = subprocess.run([sys.executable, "-c", _DIES, connect], stdout=subprocess.PIPE, check=False)
    session_id, password = died.stdout.split()
    return SessionKey(int(session_id), bytes.fromhex(password.decode()))


@on_reactor
async def test_a_process_first_closes_the_session_of_its_predecessor(zookeeper: str) -> None:
    async with connected(zookeeper) as client:
        await client.session.exists("/")  # Wait until the chroot exists.
    memory = Memory()
    left = memory.key = await in_thread(left_by_the_dead, zookeeper)
    next_one = KazooZooKeeper(zookeeper, SESSION_TIMEOUT_MS, reactor.callFromThread, memory)
    next_one.start()
    # Sent before there is a session and performed on the new one, after the old ephemeral znodes are gone.
    _, made = await next_one.session.create("/mine", ephemeral=True)
    assert made.ephemeral_owner == next_one.session.session_id != left.session_id
    assert memory.key == SessionKey(next_one.session.session_id, next_one.session.password)
    await next_one.close()
    assert memory.key is None


@on_reactor
async def test_an_expired_former_session_does_not_prevent_the_start(zookeeper: str) -> None:
    memory = Memory()
    memory.key = SessionKey(0x1234_5678, b"\x02" * 16)
    client = KazooZooKeeper(zookeeper, SESSION_TIMEOUT_MS, reactor.callFromThread, memory)
    client.start()
    await client.session.create("/mine", ephemeral=True)
    assert memory.key.session_id == client.session.session_id
    await client.close()


@on_reactor
async def test_a_client_can_be_closed_before_the_former_session_is_closed() -> None:
    memory = Memory()
    memory.key = SessionKey(0x1234_5678, b"\x02" * 16)
    client = KazooZooKeeper("127.0.0.1:1", SESSION_TIMEOUT_MS, reactor.callFromThread, memory)
    client.start()
    asked = client.session.exists("/mine")
    await client.close()
    with pytest.raises(SessionExpired):
        await asked
    assert memory.key is not None, "the next process still has to close it"


@pytest.mark.parametrize("is_repeated", [False, True])
def test_a_read_is_freed_without_the_garbage_collector(is_repeated: bool) -> None:
    session = KazooSession("nowhere:1", "", 6000, lambda function, *args: function(*args), lambda *_: None)
    session._on_state(CONNECTED, (1, b""), 6000)
    asked: list[Any] = []

    def ask() -> Any:
        asked.append(session._handler.async_result())
        return asked[-1]

    answers: list[object] = []
    with collector_off():
        session._read("/a", ask, str).addBoth(answers.append)
        freed = weakref.ref(ask)
        del ask
        if is_repeated:
            asked[-1].set_exception(ConnectionLoss())
            session._on_state(CONNECTED, (1, b""), 6000)
        asked.pop().set(7)
        asked.clear()
        assert answers == ["7"]
        assert freed() is None


def test_a_failed_request_is_freed_without_the_garbage_collector() -> None:
    """Kazoo keeps the error in its result: raising it would tie the result to the frame that holds it."""
    session = KazooSession("nowhere:1", "", 6000, lambda function, *args: function(*args), lambda *_: None)
    session._on_state(CONNECTED, (1, b""), 6000)
    asked = [session._handler.async_result()]
    outcomes: list[object] = []
    with collector_off():
        written = session._write([Delete("/a")], lambda: asked[0], str)
        written.addErrback(lambda failure: outcomes.append(failure.type))
        del written
        asked[0].set_exception(NoNodeError())
        freed = weakref.ref(asked[0])
        asked.clear()
        assert outcomes == [NoNode]
        assert freed() is None


def test_a_read_whose_session_has_expired_fails_as_expired() -> None:
    """Kazoo may report the lost connection of a read after the session has expired: the read is not repeated,
    and its caller continues on the next session."""
    session = KazooSession("nowhere:1", "", 6000, lambda function, *args: function(*args), lambda *_: None)
    session._on_state(CONNECTED, (1, b""), 6000)
    result = session._handler.async_result()
    outcomes: list[object] = []
    session._read("/a", lambda: result, lambda answer: answer).addBoth(outcomes.append)
    session._on_state(LOST, None)
    result.set_exception(ConnectionLoss())
    (failure,) = outcomes
    assert isinstance(failure, Failure)
    assert failure.type is SessionExpired
