"""Refused connections are closed, in the log once, and later if their address connects again and again."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.refusals import RefusalPace, Refusals
from holdfast_log.coordinator.repeated_log import RepeatedLog
from tests.models.wires import FakeWire

PACE = RefusalPace(burst=3, per_second=1.0, delay_max_s=2.0, held_max=2, addresses_max=2)
LIMITS = ConnectionLimits(1000, 1000, 10)


class World:
    def __init__(self, pace: RefusalPace = PACE) -> None:
        self.clock = Clock()
        self.refusals = Refusals(self.clock, RepeatedLog(self.clock), pace)
        self.opened = 0

    def refused(self, host: str = "192.0.2.1") -> FakeWire:
        """A connection that was refused; its wire."""
        connection, wire = self.open(host)
        connection.refuse("bad requests", "it sent a bad request")
        assert connection.is_closed
        return wire

    def open(self, host: str = "192.0.2.1") -> tuple[ServerConnection, FakeWire]:
        self.opened += 1
        wire = FakeWire(Address(host, 5000 + self.opened))
        connection = ServerConnection(
            self.opened, "L", wire.peer, lambda *_: None, LIMITS, self.clock, self.refusals
        )
        connection.connected(wire)
        return connection, wire


def test_the_first_refused_connections_of_an_address_close_at_once() -> None:
    world = World()
    assert [world.refused().is_aborted for _ in range(PACE.burst)] == [True] * PACE.burst


def test_a_client_that_connects_again_and_again_waits_for_each_close() -> None:
    """Before this delay a client of a second could be refused some 2000 times a second."""
    world = World()
    times = 0
    while world.clock.seconds() < 60:
        wire = world.refused()
        times += 1
        while not wire.is_aborted:
            world.clock.advance(0.01)
    assert times <= PACE.burst + 60 * PACE.per_second + 1


def test_the_delay_is_bounded_and_ends_when_the_loop_ends() -> None:
    world = World()
    for _ in range(1000):
        assert world.refusals.delay_s("192.0.2.1") <= PACE.delay_max_s
    world.clock.advance(PACE.delay_max_s + PACE.burst)
    assert world.refused().is_aborted


def test_without_a_longest_delay_every_refused_connection_closes_at_once() -> None:
    world = World(replace(PACE, delay_max_s=0.0))
    assert all(world.refused().is_aborted for _ in range(50))


def test_no_other_address_and_no_accepted_connection_waits() -> None:
    world = World()
    good, wire = world.open()
    for _ in range(PACE.burst):
        world.refused()
    assert not world.refused().is_aborted
    assert world.refused("192.0.2.2").is_aborted
    assert (good.is_closed, good.is_paused, wire.is_paused) == (False, False, False)


def test_a_refused_connection_that_waits_is_not_read_and_holds_no_requests() -> None:
    world = World()
    for _ in range(PACE.burst):
        world.refused()
    connection, wire = world.open()
    connection.frames_received([memoryview(bytearray(100)) for _ in range(5)])
    connection.refuse("bad requests", "it sent a bad request")
    assert (wire.is_paused, wire.is_aborted) == (True, False)
    assert (connection.buffered_bytes, connection.is_holding) == (0, False)


def test_only_some_connections_and_addresses_are_held() -> None:
    world = World()
    for _ in range(PACE.burst):
        world.refused()
    assert [world.refused().is_aborted for _ in range(4)] == [False, False, True, True]
    assert world.refusals.held == PACE.held_max
    for number in range(100):
        world.refused(f"198.51.100.{number}")
    assert world.refusals.addresses <= PACE.addresses_max


def test_a_stopping_broker_closes_the_connections_that_wait() -> None:
    world = World()
    for _ in range(PACE.burst):
        world.refused()
    wire = world.refused()
    world.refusals.end_all()
    assert wire.is_aborted
    assert world.refusals.held == 0


def test_an_oversized_request_in_a_loop_is_delayed_as_well(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    closed = []
    for _ in range(PACE.burst + 1):
        connection, wire = world.open()
        connection.frame_refused(5000)
        closed.append(wire.is_closed)
    assert closed == [True] * PACE.burst + [False]
    assert len(caplog.messages) == 1


def test_refusals_of_one_cause_log_one_line(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(50):
        world.refused()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "it sent a bad request" in caplog.text


def test_a_refused_request_is_logged_once_per_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    connection, _ = world.open()
    for _ in range(50):
        connection.note_refused_request("old requests", "it is too old")
        world.clock.advance(60)
    assert len(caplog.messages) == 1
    assert not connection.is_closed
