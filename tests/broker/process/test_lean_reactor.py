"""The reactor's short way to the broker's sockets keeps what Twisted's does: losses, errors, log context."""

from __future__ import annotations

import collections
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from twisted.internet import selectreactor
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python import log

from holdfast_log.broker.metrics.turn_times import TurnTimes
from holdfast_log.broker.network.connection import ReplySlot, ServerConnection
from holdfast_log.broker.network.lost_connections import LostConnections
from holdfast_log.broker.network.rotation import TURN_S, Rotation
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.network.transport import FrameServer
from holdfast_log.broker.network.turns import SendingTurn
from holdfast_log.broker.process.lean_reactor import make_lean
from holdfast_log.coordinator.tools.zookeeper_process import free_port
from holdfast_log.protocol.frames import SIZE
from tests.broker.network.served import echo, framed
from tests.broker.network.test_transport import Client, serving
from tests.reactor import on_reactor, reactor, until


@pytest.fixture(autouse=True)
def lean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the reactor lean for one test."""
    for name in ("doPoll", "doIteration"):
        monkeypatch.setattr(reactor, name, getattr(reactor, name))
    make_lean(reactor, TurnTimes(reactor.seconds), SendingTurn(), Rotation(reactor))


@pytest.fixture
def in_context(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The selectables that the reactor has called in a logging context of their own."""
    called: list[object] = []
    twisted_way = log.callWithLogger

    def call(logger: object, *args: Any, **more: Any) -> Any:
        called.append(logger)
        return twisted_way(logger, *args, **more)

    monkeypatch.setattr(log, "callWithLogger", call)
    return called


@pytest.fixture
def events() -> Iterator[list[LogEvent]]:
    found: list[LogEvent] = []
    globalLogPublisher.addObserver(found.append)
    yield found
    globalLogPublisher.removeObserver(found.append)


@on_reactor
async def answer_requests(in_context: list[object]) -> None:
    with serving(echo) as server, Client(server) as client:
        for number in range(10):
            await client.send(framed(b"%d" % number))
            assert await client.receive_frame() == b"%d" % number
        assert not [each for each in in_context if isinstance(each, FrameServer)]


def test_requests_are_answered_without_a_logging_context(in_context: list[object]) -> None:
    answer_requests(in_context)


@on_reactor
async def answer_at_length(in_context: list[object]) -> None:
    answer = bytes(range(256)) * (64 << 10)  # far more than a socket takes at once

    def handle(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([SIZE.pack(len(answer)), answer])

    with serving(handle) as server, Client(server) as client:
        for _ in range(3):
            await client.send(framed(b"a"))
            assert await client.receive_frame() == answer
        assert not [each for each in in_context if isinstance(each, FrameServer)]


def test_long_answers_are_sent_without_a_logging_context(in_context: list[object]) -> None:
    answer_at_length(in_context)


@on_reactor
async def break_one(events: list[LogEvent]) -> None:
    class Broken(BaseException):
        """What escapes from a connection, although it guards its handler."""

    def escape(frames: object) -> None:
        raise Broken

    with serving(echo) as server, Client(server) as client, Client(server) as neighbour:
        await until(lambda: len(server.connections) == 2)
        broken = server.connections[0]
        wire: Any = broken._wire
        broken.frames_received = escape  # type: ignore[method-assign]
        await client.send(framed(b"a"))
        assert await client.at_end()
        assert broken.is_closed
        await neighbour.send(framed(b"b"))
        assert await neighbour.receive_frame() == b"b"
    (logged,) = [event for event in events if event.get("isError")]
    assert logged["failure"].check(Broken)
    assert logged["system"] == wire.logPrefix()


def test_an_exception_that_escapes_is_logged_in_context_and_ends_only_its_connection(
    events: list[LogEvent],
) -> None:
    break_one(events)


@on_reactor
async def test_peers_that_leave_are_noticed() -> None:
    for leave in (Client.reset, lambda client: client.socket.close()):
        with serving(echo) as server, Client(server) as client:
            await client.send(framed(b"a"))
            await client.receive_frame()
            leave(client)
            await until(lambda server=server: server.connections[0].is_closed)


@on_reactor
async def test_a_connection_closed_by_another_in_the_same_turn_is_not_read() -> None:
    handled: list[bytes] = []

    def close_all(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        handled.append(bytes(frame))
        for each in server.connections:
            each.close("by the first one")

    with serving(close_all) as server, Client(server) as one, Client(server) as other:
        await until(lambda: len(server.connections) == 2)
        one.socket.sendall(framed(b"x"))
        other.socket.sendall(framed(b"x"))  # Both are there when the reactor looks next.
        assert await one.at_end()
        assert await other.at_end()
    assert handled == [b"x"]


@on_reactor
async def test_timers_run_while_requests_come() -> None:
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        reactor.callLater(0.001, tick) if len(ticks) < 20 else None

    with serving(echo) as server, Client(server) as client:
        tick()
        while len(ticks) < 20:
            await client.send(framed(b"a"))
            await client.receive_frame()


@on_reactor
async def test_calls_from_threads_are_made_while_requests_come() -> None:
    made: list[int] = []

    with serving(echo) as server, Client(server) as client:
        for number in range(20):
            thread = threading.Thread(target=reactor.callFromThread, args=(made.append, number))
            thread.start()
            await client.send(framed(b"a"))
            await client.receive_frame()
            thread.join()
        await until(lambda: len(made) == 20)


@on_reactor
async def test_a_call_that_was_moved_forward_is_made_in_time() -> None:
    made: list[int] = []

    with serving(echo) as server, Client(server) as client:
        await client.send(framed(b"a"))
        await client.receive_frame()
        late = reactor.callLater(3600, made.append, 1)
        await client.send(framed(b"a"))
        await client.receive_frame()
        late.reset(0.001)
        await until(lambda: bool(made))


def test_other_reactors_stay_as_they_are() -> None:
    other: Any = selectreactor.SelectReactor()
    before = other.doIteration
    make_lean(other, TurnTimes(other.seconds), SendingTurn(), Rotation(other))
    assert other.doIteration == before


async def most_ended_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> int:
    """How many connections that are closed together are ended in one turn at most, if each takes long."""
    count, ended_in = 60, collections.Counter[int]()
    turn = 0
    poll, lost = reactor.doPoll, FrameServer.connectionLost

    def counted(timeout: float | None) -> None:
        nonlocal turn
        turn += 1
        poll(timeout)

    def slow(self: FrameServer, reason: Any) -> None:
        ended_in[turn] += 1
        until_s = time.perf_counter() + TURN_S / 3
        while time.perf_counter() < until_s:
            pass
        lost(self, reason)

    monkeypatch.setattr(reactor, "doPoll", counted)
    monkeypatch.setattr(reactor, "doIteration", counted)
    monkeypatch.setattr(FrameServer, "connectionLost", slow)
    with serving(echo) as server, contextlib.ExitStack() as clients:
        sockets: list[socket.socket] = []
        while len(sockets) < count:
            sockets.append(clients.enter_context(Client(server)).socket)
            await until(lambda: len(server.connections) == len(sockets))
        for each in sockets:
            each.close()
        await until(lambda: all(connection.is_closed for connection in server.connections))
    assert sum(ended_in.values()) == count
    return max(ended_in.values())


@on_reactor
async def test_connections_that_are_closed_together_are_ended_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes 35 µs: thousands would be a turn of 0.1 s."""
    assert await most_ended_in_a_turn(monkeypatch) <= 5


@on_reactor
async def test_connections_that_are_ended_at_once_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LostConnections, "add", lambda self, end: end())
    assert await most_ended_in_a_turn(monkeypatch) >= 20


@on_reactor
async def test_a_connection_that_is_reset_is_ended() -> None:
    with serving(echo) as server, Client(server) as client:
        await until(lambda: len(server.connections) == 1)
        client.reset()
        await until(lambda: server.connections[0].is_closed)


@on_reactor
async def test_a_connection_that_cannot_be_opened_fails_at_once() -> None:
    failed: list[str] = []

    class Receiver:
        frame_bytes_max = 100

        def connection_lost(self, reason: str) -> None:
            failed.append(reason)

    TcpNetwork(reactor).connect("127.0.0.1", free_port(), cast(Any, Receiver()), 60_000)
    await until(lambda: bool(failed))
    assert "refused" in failed[0].lower(), failed
