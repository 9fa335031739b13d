"""The helper that runs scenarios on the reactor returns results, and fails on errors and timeouts."""

from __future__ import annotations

import threading

import pytest
from twisted.internet import defer

from tests.reactor import in_thread, on_reactor, reactor, run, sleep, take_errors


@on_reactor
async def test_a_scenario_can_wait_for_the_clock_and_for_a_thread() -> None:
    await sleep(0.001)
    assert await in_thread(threading.get_ident) != threading.get_ident()


def test_run_returns_the_result_of_a_scenario_or_raises_its_exception() -> None:
    async def result() -> int:
        await sleep(0)
        return 3

    async def failure() -> None:
        await sleep(0)
        raise KeyError("x")

    assert run(result()) == 3
    with pytest.raises(KeyError):
        run(failure())


def test_a_scenario_that_never_ends_is_cancelled() -> None:
    cancelled: list[object] = []
    with pytest.raises(TimeoutError):
        run(defer.Deferred(cancelled.append), timeout=0.01)
    assert cancelled


def test_an_error_in_a_callback_fails_the_scenario() -> None:
    async def scenario() -> None:
        reactor.callLater(0, lambda: 1 / 0)
        await sleep(0.001)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run(scenario())


@on_reactor
async def test_an_error_taken_by_the_scenario_does_not_fail_it() -> None:
    reactor.callLater(0, lambda: 1 / 0)
    await sleep(0.001)
    assert len(take_errors(ZeroDivisionError)) == 1
