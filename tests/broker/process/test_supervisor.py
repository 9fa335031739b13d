"""The supervisor of several brokers: what it starts anew, when, and the order in which it stops them."""

from __future__ import annotations

import logging
import signal
from typing import Any

import pytest

from holdfast_log.broker.process.supervisor import STOP_TIMEOUT_S, ProcessState, Supervisor


class FakeProcess:
    def __init__(self, number: int, pid: int) -> None:
        self.number = number
        self.pid = pid
        self.status: int | None = None
        self.serves = False
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.status

    def description(self) -> dict[str, Any] | None:
        return {"broker.id": self.number} if self.serves else None

    def send_signal(self, number: int) -> None:
        self.signals.append(number)


class World:
    """A supervisor of `count` fake processes, and its clock."""

    def __init__(self, count: int = 3) -> None:
        self.now_s = 0.0
        self.started: list[FakeProcess] = []
        self.supervisor = Supervisor(count, self._start, lambda: self.now_s)
        self.supervisor.start()

    def _start(self, number: int) -> FakeProcess:
        self.started.append(FakeProcess(number, 100 + len(self.started)))
        return self.started[-1]

    def current(self, number: int) -> FakeProcess:
        return [process for process in self.started if process.number == number][-1]

    def serve(self) -> None:
        for process in self.started:
            process.serves = True
        self.supervisor.look()

    def end(self, number: int, status: int) -> None:
        self.current(number).status = status
        self.supervisor.look()

    def wait(self, seconds: float) -> None:
        self.now_s += seconds
        self.supervisor.look()

    @property
    def states(self) -> list[ProcessState]:
        return [member.state for member in self.supervisor.members]

    def signals(self) -> list[list[int]]:
        return [self.current(member.number).signals for member in self.supervisor.members]


def test_brokers_are_described_once_all_of_them_serve() -> None:
    world = World(2)
    world.started[0].serves = True
    world.supervisor.look()
    assert world.states == [ProcessState.SERVING, ProcessState.STARTING]
    assert world.supervisor.descriptions is None
    world.serve()
    assert world.supervisor.descriptions == [{"broker.id": 0}, {"broker.id": 1}]


def test_a_broker_that_dies_is_started_again_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.serve()
    with caplog.at_level(logging.ERROR):
        world.end(1, -signal.SIGKILL)
    assert "Broker process 1 (process id 101) has ended: killed by SIGKILL" in caplog.text
    assert world.states == [ProcessState.SERVING, ProcessState.WAITING, ProcessState.SERVING]
    world.wait(0.9)
    assert len(world.started) == 3
    world.wait(0.1)
    assert [process.number for process in world.started] == [0, 1, 2, 1]
    world.serve()
    assert world.states == [ProcessState.SERVING] * 3
    assert world.signals() == [[], [], []]


def test_a_broker_that_dies_again_and_again_waits_longer_each_time() -> None:
    world = World(1)
    world.serve()
    delays = []
    for _ in range(8):
        world.end(0, 1)
        began_s = world.now_s
        while world.states == [ProcessState.WAITING]:
            world.wait(0.5)
        delays.append(world.now_s - began_s)
    assert delays == [1, 2, 4, 8, 16, 30, 30, 30]
    world.serve()
    world.wait(60)
    world.end(0, 1)
    world.wait(1)
    assert world.states == [ProcessState.STARTING]  # It had served for long.


def test_a_broker_that_never_served_ends_the_start_of_all() -> None:
    world = World()
    world.started[0].serves = True
    world.end(2, 1)
    assert world.states == [ProcessState.SERVING, ProcessState.STOPPING, ProcessState.STOPPED]
    world.end(1, 0)
    world.end(0, 0)
    assert world.supervisor.is_over
    assert world.supervisor.status == 1


def test_brokers_are_stopped_one_after_the_other_the_first_one_last() -> None:
    world = World()
    world.serve()
    world.supervisor.stop()
    assert world.signals() == [[], [], [signal.SIGTERM]]
    world.wait(30)
    assert world.signals() == [[], [], [signal.SIGTERM]]
    world.end(2, 0)
    assert world.signals() == [[], [signal.SIGTERM], [signal.SIGTERM]]
    world.end(1, 0)
    assert world.signals() == [[signal.SIGTERM]] * 3
    assert not world.supervisor.is_over
    world.end(0, 0)
    assert world.supervisor.is_over
    assert world.supervisor.status == 0


def test_a_broker_that_does_not_stop_is_killed_and_that_is_a_failure() -> None:
    world = World(1)
    world.serve()
    world.supervisor.stop()
    world.wait(STOP_TIMEOUT_S)
    assert world.signals() == [[signal.SIGTERM, signal.SIGKILL]]
    world.end(0, -signal.SIGKILL)
    assert world.supervisor.is_over
    assert world.supervisor.status == 1


def test_a_broker_that_waits_for_its_next_start_is_not_started_during_a_stop() -> None:
    world = World(2)
    world.serve()
    world.end(0, 1)
    world.supervisor.stop()
    world.end(1, 0)
    assert world.supervisor.is_over
    assert len(world.started) == 2


def test_a_second_signal_stops_all_at_once() -> None:
    world = World()
    world.serve()
    world.supervisor.stop()
    world.supervisor.stop()
    assert world.signals() == [[signal.SIGTERM], [signal.SIGTERM], [signal.SIGTERM] * 2]
