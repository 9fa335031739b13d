"""Memory that was freed is returned to the system, by a worker, and only where the process has grown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.process.freed_memory import (
    GROWTH_BYTES,
    PERIOD_MS,
    FreedMemory,
    MemoryUse,
    system_allocator,
)

USED_BYTES = 100 << 20


class FakeAllocator:
    """A process with bytes that are in use, and free ones: those that it keeps, and those whose pages it has
    returned. The latter are used first."""

    def __init__(self) -> None:
        self.used = USED_BYTES
        self.kept = 0
        self.returned = 0
        self.trims = 0

    def take(self, count: int) -> None:
        self.returned = max(0, self.returned - count)
        self.used += count

    def free(self, count: int) -> None:
        self.used -= count
        self.kept += count

    @property
    def resident_bytes(self) -> int:
        return self.used + self.kept

    def use(self) -> MemoryUse:
        return MemoryUse(self.resident_bytes, self.kept + self.returned)

    def trim(self) -> None:
        self.trims += 1
        self.returned += self.kept
        self.kept = 0


class LaterWorkers:
    """Workers that do nothing until they are told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.jobs.append((done, lambda: function(*arguments, **named)))
        return done

    def work(self) -> None:
        while self.jobs:
            done, job = self.jobs.pop(0)
            done.callback(job())


class Process:
    """A process whose memory the test changes."""

    def __init__(self) -> None:
        self.clock, self.workers, self.allocator = Clock(), LaterWorkers(), FakeAllocator()
        FreedMemory(self.clock, self.workers, self.allocator).begin()
        self.look()

    def look(self) -> None:
        self.clock.advance(PERIOD_MS / 1000)
        self.workers.work()


def test_what_clients_have_made_the_process_take_is_returned_once_it_is_free() -> None:
    process = Process()
    for _ in range(3):
        process.allocator.take(67 << 20)
        process.allocator.free(67 << 20)
        process.look()
        assert process.allocator.resident_bytes == USED_BYTES


def test_what_was_used_at_the_last_look_is_returned_once_it_is_free() -> None:
    process = Process()
    for _ in range(3):
        process.allocator.take(67 << 20)
        process.look()
        process.allocator.free(67 << 20)
        process.look()
        assert process.allocator.resident_bytes == USED_BYTES


def test_a_process_that_has_not_grown_is_left_alone() -> None:
    process = Process()
    process.allocator.take(GROWTH_BYTES - 1)
    process.allocator.free(GROWTH_BYTES - 1)
    for _ in range(10):
        process.look()
    assert process.allocator.trims == 0


def test_memory_that_is_used_or_was_returned_is_not_looked_for_again() -> None:
    process = Process()
    process.allocator.take(5 * GROWTH_BYTES)
    for _ in range(10):
        process.look()
    assert process.allocator.trims == 1
    process.allocator.free(4 * GROWTH_BYTES)
    for _ in range(10):
        process.look()
    assert process.allocator.trims == 2


def test_growth_counts_from_the_least_that_the_process_had() -> None:
    process = Process()
    process.allocator.used -= 2 * GROWTH_BYTES
    process.look()
    process.allocator.take(GROWTH_BYTES)
    process.look()
    assert process.allocator.trims == 1


def test_workers_return_it_and_look_once_at_a_time() -> None:
    process = Process()
    process.allocator.take(GROWTH_BYTES)
    process.allocator.free(GROWTH_BYTES)
    for _ in range(3):
        process.clock.advance(PERIOD_MS / 1000)
    assert process.allocator.trims == 0, "the reactor has done it"
    assert len(process.workers.jobs) == 1
    process.workers.work()
    assert process.allocator.resident_bytes == USED_BYTES


_FREED = """
from holdfast_log.broker.process.freed_memory import system_allocator
allocator = system_allocator()
strings = ["x" * (30_000 + number % 7) for number in range(4_000)]
kept = strings[::20]
del strings
before = allocator.use()
allocator.trim()
print(before.free_bytes, before.resident_bytes - allocator.use().resident_bytes)
"""


@pytest.mark.skipif(system_allocator() is None, reason="this C library has no malloc_trim")
def test_the_system_gets_what_is_free_between_pieces_that_are_used() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", _FREED], capture_output=True, text=True, check=True
    ).stdout
    free, returned = map(int, printed.split())
    assert free > 90 << 20 or not free, "only what mallinfo2 counts is known to be free"
    assert returned > 90 << 20
