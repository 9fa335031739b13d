"""Scenarios on Twisted's reactor inside pytest.

A reactor can run only once per process. So it is started once, and each scenario turns it by hand in pytest's
own thread. There is no second thread, and between two scenarios no callback runs.

    @on_reactor
    async def test_something(tmp_path: Path) -> None:
        port = await listening(...)

or, inside an ordinary test, `run(scenario())`.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from twisted.internet import epollreactor

if "twisted.internet.reactor" not in sys.modules:
    cast(Any, epollreactor).install()

from twisted.internet import defer, threads
from twisted.internet import reactor as _installed
from twisted.logger import LogEvent, globalLogPublisher
from twisted.python.failure import Failure

reactor = cast(Any, _installed)
"""The epoll reactor: pass it to production code that takes a clock, a reactor or `callFromThread`."""

T = TypeVar("T")
P = ParamSpec("P")
Scenario: TypeAlias = Coroutine[Any, Any, T] | Generator[Any, Any, T] | defer.Deferred[T]

_TIMEOUT_S = 240.0
_errors: list[Failure] = []


def _collect(event: LogEvent) -> None:
    if event.get("log_failure") is not None:
        _errors.append(event["log_failure"])


def _start() -> None:
    pool = reactor.getThreadPool()
    # A worker that a failed scenario left waiting must not keep the process from ending.
    pool.threadFactory = functools.partial(threading.Thread, daemon=True)
    globalLogPublisher.addObserver(cast(Any, _collect))
    reactor.startRunning(installSignalHandlers=False)


def turn(until: Callable[[], bool], timeout: float = _TIMEOUT_S) -> None:
    """Turn the reactor until `until()` is true. Raises TimeoutError after `timeout` seconds."""
    if not reactor.running:
        _start()
    deadline = reactor.seconds() + timeout
    while not until():
        left = deadline - reactor.seconds()
        if left <= 0:
            raise TimeoutError(f"not done after {timeout} s")
        reactor.runUntilCurrent()
        if until():
            return
        pause = reactor.timeout()
        reactor.doIteration(left if pause is None else min(pause, left))


def run(scenario: Scenario[T], timeout: float = _TIMEOUT_S) -> T:
    """Turn the reactor until `scenario` is done. Returns its result, or raises its exception.

    An error in Twisted's log (an exception in a callback, in doRead, in a Deferred without an errback) also
    fails the scenario, unless the scenario took the error with `take_errors`. After `timeout` seconds the
    scenario is cancelled and TimeoutError raised.
    """
    del _errors[:]
    deferred = scenario if isinstance(scenario, defer.Deferred) else defer.ensureDeferred(scenario)
    results: list[Any] = []
    deferred.addBoth(results.append)
    try:
        turn(lambda: bool(results), timeout)
    except TimeoutError:
        deferred.cancel()
        raise
    result = results[0]
    if isinstance(result, Failure):
        result.raiseException()
    if _errors:
        error = _errors.pop(0)
        raise AssertionError(f"logged during the scenario: {error.getTraceback()}")
    return cast(T, result)


def take_errors(kind: type[BaseException]) -> list[BaseException]:
    """Take the errors of a kind that this scenario has logged so far, so that they do not fail it."""
    taken = [failure.value for failure in _errors if isinstance(failure.value, kind)]
    _errors[:] = [failure for failure in _errors if not isinstance(failure.value, kind)]
    return taken


def on_reactor(function: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Turn an `async def` test into a function that pytest can call."""

    @functools.wraps(function)
    def test(*args: P.args, **kwargs: P.kwargs) -> None:
        run(cast(Scenario[None], function(*args, **kwargs)))

    return test


def sleep(seconds: float) -> defer.Deferred[None]:
    """Pause on the reactor's clock. Await an event instead wherever there is one."""
    done: defer.Deferred[None] = defer.Deferred()
    reactor.callLater(seconds, done.callback, None)
    return done


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the reactor until a condition holds. The scenario's timeout limits the wait."""
    while not condition():
        await sleep(0.001)


def in_thread(function: Callable[..., T], *args: Any) -> defer.Deferred[T]:
    """Run a blocking call on one of the reactor's worker threads. Fires with its result."""
    return threads.deferToThreadPool(reactor, reactor.getThreadPool(), function, *args)
