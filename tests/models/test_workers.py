"""The models of worker threads keep the contract of the real ones."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType

import pytest

from holdfast_log.broker.workers import ThreadWorkers, Workers
from tests.garbage import collector_off
from tests.models.workers import ImmediateWorkers, SimWorkers
from tests.models.world import Process, World
from tests.reactor import reactor, turn


class Job:
    """Work that fails if the text is no number."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self) -> int:
        return int(self.text)


Until = Callable[[Callable[[], bool]], object]
Ground = tuple[Workers, Until]


@pytest.fixture(params=["immediate", "held", "simulated", "simulated, late", "threads"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    """Workers, and a function that lets them work until a condition holds."""
    match request.param:
        case "immediate":
            yield ImmediateWorkers(), lambda condition: None
        case "held":
            held = ImmediateWorkers(is_held=True)
            yield held, lambda condition: held.release()
        case "simulated":
            world = World(1)
            yield SimWorkers(Process(world, "p")), lambda condition: world.run_until(condition, 1)
        case "simulated, late":
            world = World(1)
            late = SimWorkers(Process(world, "p"), result_ms_max=50.0)
            yield late, lambda condition: world.run_until(condition, 1)
        case _:
            threads = ThreadWorkers(reactor, 2)
            yield threads, turn
            threads.stop()


def test_a_job_returns_its_result_or_its_error(ground: Ground) -> None:
    workers, until = ground
    came: list[object] = []
    workers.run(int, "11", base=2).addCallback(came.append)
    workers.run(int, "x").addErrback(lambda failure: came.append(failure.type))
    until(lambda: len(came) == 2)
    assert sorted(map(str, came)) == ["3", "<class 'ValueError'>"]


def test_a_callback_of_a_job_may_start_another_job(ground: Ground) -> None:
    workers, until = ground
    came: list[str] = []
    workers.run(str, 1).addCallback(
        lambda first: workers.run(str, 2).addCallback(lambda second: came.append(first + second))
    )
    until(lambda: bool(came))
    assert came == ["12"]


def test_a_job_is_freed_without_the_garbage_collector() -> None:
    """A broker runs many a second: cycles would take megabytes until the next collection."""
    workers = ThreadWorkers(reactor, 2)
    came: list[object] = []
    with collector_off():
        for job in (Job("7"), Job("x")):
            workers.run(job).addCallbacks(came.append, lambda failure: came.append(failure.type))
        freed = weakref.ref(job)
        del job
        turn(lambda: len(came) == 2)
        workers.stop()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            left = [each for each in gc.garbage if isinstance(each, FunctionType | Job)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert (freed(), left) == (None, [])


def test_simulated_work_is_done_only_as_simulated_time_passes() -> None:
    world = World(1)
    came: list[int] = []
    SimWorkers(Process(world, "p")).run(int, "7").addCallback(came.append)
    assert came == []
    world.run(1)
    assert came == [7]


def test_the_result_of_simulated_work_may_arrive_after_the_work_is_done() -> None:
    world = World(1)
    done: list[str] = []
    came: list[None] = []
    workers = SimWorkers(Process(world, "p"), delay_ms_max=1.0, result_ms_max=1000.0)
    workers.run(done.append, "work").addCallback(came.append)
    world.run(0.001)
    assert (done, came) == (["work"], [])
    world.run(1)
    assert came == [None]
