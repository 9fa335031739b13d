"""Listeners: limits on connections, in total and for each address, and on idle time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import ConnectionLimits, ReplySlot, ServerConnection
from holdfast_log.broker.network.endpoints import Endpoint, Endpoints
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.listener import ListenerLimits, Listeners
from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.clients.settings import Settings
from tests.models.wires import FakeNetwork, FakeWire
from tests.reactor import on_reactor, reactor

A = Endpoint("A", "PLAINTEXT", "127.0.0.1", 0)
B = Endpoint("B", "PLAINTEXT", "127.0.0.1", 0)
ENDPOINTS = Endpoints((A, B), (replace(A, host="a.example"), replace(B, host="b.example")), "A")
LIMITS = ListenerLimits(100, 100, 60_000, ConnectionLimits(1000, 1000, 10))
LIMITS_BY_DEFAULT = replace(LIMITS, connections_per_ip_max=None)


class FixedPace:
    """Delays every connection by the same time."""

    def __init__(self, delay_s: float | None) -> None:
        self.delay = delay_s
        self.asked: list[tuple[str, str]] = []

    def delay_s(self, listener: str, host: str) -> float | None:
        self.asked.append((listener, host))
        return self.delay


class World:
    def __init__(
        self,
        limits: ListenerLimits = LIMITS,
        descriptors: int | None = None,
        pace: FixedPace | None = None,
        brokers: str | None = None,
        *,
        has_secret: bool = False,
    ) -> None:
        self.clock = Clock()
        self.network = FakeNetwork()
        self.replies: list[ReplySlot] = []
        self.listeners = Listeners(
            self.network,
            self.clock,
            lambda connection, frame, reply: self.replies.append(reply),
            limits,
            descriptors=descriptors,
            pace=pace,
            trusted=() if brokers is None or has_secret else (brokers,),
            brokers=brokers,
        )

    def arrive(self, host: str = "192.0.2.1", listener: int = 0) -> tuple[ServerConnection, FakeWire]:
        arrived = self.try_to_arrive(host, listener)
        assert arrived is not None
        return arrived

    def try_to_arrive(
        self, host: str = "192.0.2.1", listener: int = 0
    ) -> tuple[ServerConnection, FakeWire] | None:
        """Connect; None if the listener refuses."""
        receiver = self.network.ports[listener].accept(Address(host, 5000))
        if receiver is None:
            return None
        assert isinstance(receiver, ServerConnection)
        wire = FakeWire(Address(host, 5000))
        receiver.connected(wire)
        return receiver, wire


def test_each_connection_has_a_number_and_its_listeners_name() -> None:
    world = World()
    assert world.listeners.start(ENDPOINTS).advertised[1] == Endpoint("B", "PLAINTEXT", "b.example", 2)
    first, _ = world.arrive()
    second, _ = world.arrive("192.0.2.2", listener=1)
    assert (first.id, first.listener, second.id, second.listener) == (1, "A", 2, "B")
    assert list(world.listeners) == [first, second]
    first.connection_lost("the peer left")
    assert list(world.listeners) == [second]


def test_a_port_that_cannot_be_opened_closes_all_ports() -> None:
    world = World()
    world.network.broken_after = 1
    with pytest.raises(OSError, match=r"listener B://127\.0\.0\.1:0 cannot be opened"):
        world.listeners.start(ENDPOINTS)
    assert [port.is_closed for port in world.network.ports] == [True]


def ask(connection: ServerConnection) -> None:
    """Send a request, which waits for its answer."""
    connection.frames_received([memoryview(bytearray(b"request"))])


def test_the_connection_limit_applies_to_each_address(caplog: pytest.LogCaptureFixture) -> None:
    world = World(replace(LIMITS, connections_per_ip_max=2))
    world.listeners.start(ENDPOINTS)
    first, _ = world.arrive()
    second, _ = world.arrive(listener=1)
    ask(first), ask(second)
    assert world.try_to_arrive() is None
    other, _ = world.arrive("192.0.2.2")
    assert "max.connections.per.ip=2" in caplog.records[0].getMessage()
    assert len(caplog.records) == 1
    first.connection_lost("the peer left")
    third, _ = world.arrive()
    assert (world.listeners.accepted, world.listeners.refused) == (4, 1)
    world.arrive()
    assert third.is_closed, "it has sent nothing"
    assert not second.is_closed and not other.is_closed


def test_one_host_with_many_ipv6_addresses_is_one_address() -> None:
    world = World(replace(LIMITS, connections_per_ip_max=2))
    world.listeners.start(ENDPOINTS)
    for host in ("2001:db8::1", "2001:db8::2"):
        ask(world.arrive(host)[0])
    assert world.try_to_arrive("2001:db8::3") is None
    assert world.try_to_arrive("2001:db8:0:1::1") is not None


@pytest.mark.parametrize(("limit", "most"), [(None, 50), (100, 100), (1000, 100)])
def test_without_a_limit_an_address_may_have_half_of_all_connections(limit: int | None, most: int) -> None:
    world = World(replace(LIMITS, connections_per_ip_max=limit))
    world.listeners.start(ENDPOINTS)
    while (arrived := world.try_to_arrive()) is not None:
        ask(arrived[0])
    assert len(world.listeners) == most


def test_a_connection_that_comes_too_fast_is_accepted_and_read_later() -> None:
    pace = FixedPace(1.5)
    world = World(pace=pace)
    world.listeners.start(ENDPOINTS)
    connection, wire = world.arrive("192.0.2.7")
    assert pace.asked == [("A", "192.0.2.7")]
    assert wire.is_paused
    world.clock.advance(1.4)
    assert wire.is_paused
    assert not connection.is_closed
    world.clock.advance(0.2)
    assert not wire.is_paused


def test_a_connection_that_would_wait_for_too_long_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = World(pace=FixedPace(None))
    world.listeners.start(ENDPOINTS)
    assert world.try_to_arrive() is None
    assert (world.listeners.accepted, world.listeners.refused) == (0, 1)
    assert "connection creation rate" in caplog.text


def test_the_connection_limit_applies_to_all_addresses_together() -> None:
    world = World(replace(LIMITS, connections_max=2))
    world.listeners.start(ENDPOINTS)
    first, _ = world.arrive("192.0.2.1")
    second, _ = world.arrive("192.0.2.2")
    ask(first), ask(second)
    assert world.try_to_arrive("192.0.2.3") is None
    first.close("fenced")
    assert world.try_to_arrive("192.0.2.3") is not None


def test_the_oldest_connection_that_is_silent_goes_first() -> None:
    world = World(replace(LIMITS, connections_max=3))
    world.listeners.start(ENDPOINTS)
    used, silent, later = (world.arrive(f"192.0.2.{number}")[0] for number in (1, 2, 3))
    ask(used)
    world.replies[0].nothing()
    world.clock.advance(10)
    newest, _ = world.arrive("192.0.2.4")
    assert [each.is_closed for each in (used, silent, later, newest)] == [False, True, False, False]
    world.arrive("192.0.2.5")
    assert [each.is_closed for each in (used, later, newest)] == [False, True, False]


def test_what_is_closed_for_new_connections_is_logged_once_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(replace(LIMITS, connections_max=3))
    world.listeners.start(ENDPOINTS)
    for number in range(100):
        world.arrive(f"192.0.2.{number}")
    (line,) = caplog.messages
    assert "max.connections=3" in line and "connection 1 from 192.0.2.0" in line


def test_one_address_leaves_half_of_all_to_others() -> None:
    world = World(LIMITS_BY_DEFAULT)
    world.listeners.start(ENDPOINTS)
    for _ in range(50):
        ask(world.arrive()[0])
    assert world.try_to_arrive() is None
    assert world.try_to_arrive("192.0.2.2") is not None


def test_the_connection_that_is_idle_for_the_longest_time_goes_next() -> None:
    world = World(replace(LIMITS, connections_max=3))
    world.listeners.start(ENDPOINTS)
    early, waiting, late = (world.arrive(f"192.0.2.{number}")[0] for number in (1, 2, 3))
    for connection in (late, waiting, early, late):
        ask(connection)
        if connection is not waiting:
            world.replies[-1].nothing()
        world.clock.advance(10)
    assert world.try_to_arrive("192.0.2.4") is not None
    assert [each.is_closed for each in (early, waiting, late)] == [True, False, False]


def test_a_connection_in_use_does_not_go() -> None:
    world = World(replace(LIMITS, connections_max=2, idle_ms_max=-1))
    world.listeners.start(ENDPOINTS)
    waiting, _ = world.arrive("192.0.2.1")
    recent, _ = world.arrive("192.0.2.2")
    ask(waiting)
    world.clock.advance(1000)
    ask(recent)
    world.replies[1].nothing()
    assert world.try_to_arrive("192.0.2.3") is None
    world.clock.advance(1)
    assert world.try_to_arrive("192.0.2.3") is not None
    assert recent.is_closed and not waiting.is_closed


def test_connections_are_kept_for_brokers() -> None:
    world = World(
        replace(LIMITS, connections_max=16, connections_per_ip_max=100, idle_ms_max=-1), brokers="B"
    )
    world.listeners.start(ENDPOINTS)
    clients = []
    while (arrived := world.try_to_arrive()) is not None:
        clients.append(arrived[0])
        ask(arrived[0])
    assert len(clients) == 14, "an eighth is kept"
    brokers = [world.arrive(listener=1)[0] for _ in range(2)]
    assert world.try_to_arrive(listener=1) is None, "all clients are in use"
    world.replies[0].nothing()
    world.clock.advance(1)
    brokers += [world.arrive(listener=1)[0]]
    assert clients[0].is_closed
    assert all(connection.is_broker and not connection.is_closed for connection in brokers)
    world.clock.advance(1000)
    assert world.try_to_arrive(listener=1) is None, "no broker goes for another one"


def test_brokers_count_for_no_address_and_do_not_go() -> None:
    world = World(replace(LIMITS, connections_per_ip_max=1, connections_max=4), brokers="B")
    world.listeners.start(ENDPOINTS)
    brokers = [world.arrive(listener=1)[0] for _ in range(3)]
    client, _ = world.arrive()
    world.arrive()
    assert client.is_closed
    assert not any(connection.is_closed for connection in brokers)


def test_a_broker_that_has_not_proved_itself_sends_small_requests_only() -> None:
    limits = replace(LIMITS, connection=ConnectionLimits(1 << 20, 1 << 20, 10))
    world = World(limits, brokers="B", has_secret=True)
    world.listeners.start(ENDPOINTS)
    client, _ = world.arrive()
    broker, _ = world.arrive(listener=1)
    assert (client.frame_bytes_max, broker.frame_bytes_max) == (1 << 20, 16 << 10)
    broker.count_as_broker()
    assert (broker.is_broker, broker.frame_bytes_max) == (True, 1 << 20)


def test_closed_connections_take_no_memory() -> None:
    world = World()
    world.listeners.start(ENDPOINTS)
    for _ in range(2000):
        world.arrive()[0].connection_lost("the peer left")
    strangers = world.listeners._room._strangers
    assert not (strangers._order or strangers._entries)
    assert not world.listeners._room._by_address


def test_only_idle_connections_are_closed_after_the_idle_limit() -> None:
    world = World()
    world.listeners.start(ENDPOINTS)
    idle, idle_wire = world.arrive()
    waiting, waiting_wire = world.arrive()
    active, active_wire = world.arrive()
    waiting.frames_received([memoryview(bytearray(b"long poll"))])
    world.clock.advance(50)
    active.frames_received([memoryview(bytearray(b"x"))])
    world.replies[1].nothing()
    world.clock.pump([10] * 4)
    assert idle.is_closed and idle_wire.is_aborted
    assert not waiting.is_closed and not active.is_closed
    world.replies[0].send([b"at last"])
    waiting.bytes_sent(3)  # the peer stops reading
    world.clock.pump([10] * 12)
    assert waiting.is_closed and active.is_closed
    assert waiting_wire.is_aborted and active_wire.is_aborted


def test_idle_connections_are_closed_one_in_a_step() -> None:
    """2,000 of them were a turn of 56 ms."""
    world = World(replace(LIMITS, connections_max=400, connections_per_ip_max=400))
    world.listeners.start(ENDPOINTS)
    idle = [world.arrive()[0] for _ in range(150)]
    before_s = world.clock.seconds()
    world.clock.advance(1)
    used = [world.arrive()[0] for _ in range(150)]
    closed = []
    for _ in world.listeners._close_idle(int(before_s * 1000)):
        closed.append(sum(connection.is_closed for connection in idle) - sum(closed))
    assert max(closed) == 1 and sum(closed) == len(idle)
    assert not any(connection.is_closed for connection in used)


def test_without_an_idle_limit_no_connection_is_closed() -> None:
    world = World(replace(LIMITS, idle_ms_max=-1))
    world.listeners.start(ENDPOINTS)
    world.arrive()
    assert not world.clock.getDelayedCalls()


def test_stopping_closes_ports_and_connections_and_leaves_no_timer() -> None:
    world = World()
    world.listeners.start(ENDPOINTS)
    connection, wire = world.arrive()
    world.listeners.stop("the broker is stopping")
    assert all(port.is_closed for port in world.network.ports)
    assert connection.close_reason == "the broker is stopping" and wire.is_closed
    assert not world.clock.getDelayedCalls()


def test_limits_are_read_from_the_settings() -> None:
    limits = read_group(
        ListenerLimits, Settings(SETTINGS, {"max.connections": "7", "socket.request.max.bytes": "12345"})
    )
    assert limits.connections_max == 7
    assert limits.connection.frame_bytes_max == 12345
    assert limits.idle_ms_max == 600_000


@on_reactor
async def test_the_real_port_of_listener_port_0_is_reported() -> None:
    listeners = Listeners(TcpNetwork(reactor), reactor, lambda connection, frame, reply: None, LIMITS)
    endpoints = listeners.start(ENDPOINTS)
    ports = [endpoint.port for endpoint in endpoints.listeners]
    assert len(set(ports)) == 2 and 0 not in ports
    assert [endpoint.port for endpoint in endpoints.advertised] == ports
    listeners.stop("the test is over")


def test_connections_beyond_the_descriptors_are_refused_with_one_line_in_ten_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(descriptors=2)
    world.listeners.start(ENDPOINTS)
    first, _ = world.arrive()
    ask(first)
    ask(world.arrive("192.0.2.2")[0])
    for _ in range(5):
        assert world.try_to_arrive("192.0.2.3") is None
    (line,) = caplog.messages
    assert "ulimit -n" in line and "2 connections" in line
    assert world.listeners.refused == 5
    world.clock.advance(11)
    assert world.try_to_arrive() is None
    assert len(caplog.messages) == 2
    first.connection_lost("the peer left")
    world.arrive()
