"""The ground a simulated cluster stands on: time, chance, processes and the trace.

Everything that happens is a call on one clock, everything random comes from generators derived from one seed
by name, and every event worth telling goes into the trace, whose hash therefore names the whole run.
"""

from __future__ import annotations

import bisect
import hashlib
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

START_S = 1_700_000_000.0
"""When every simulation begins, in seconds since the epoch."""


class SimClock(Clock):
    """Twisted's test clock, its calls kept in order as they come: it has thousands of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rightNow = START_S

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        call = DelayedCall(
            self.rightNow + max(delay, 0.0), callable, args, kw, self.calls.remove, _ignore, self.seconds
        )
        bisect.insort_right(self.calls, call, key=DelayedCall.getTime)
        return call

    def _sortCalls(self) -> None:
        self.calls.sort(key=DelayedCall.getTime)

    def step(self, until_s: float) -> bool:
        """Make the next call due by `until_s`; False, and the clock stands there, if there is none."""
        self._sortCalls()  # A call that was reset has moved.
        if not self.calls or self.calls[0].getTime() > until_s:
            self.rightNow = until_s
            return False
        call = self.calls.pop(0)
        self.rightNow = max(self.rightNow, call.getTime())
        call.called = 1
        call.func(*call.args, **call.kw)
        return True


def _ignore(_call: DelayedCall) -> None:
    """A call was reset: `step` sorts before it looks."""


class Trace:
    """What happened, in order: a running hash of all of it, and the last lines for people."""

    def __init__(self, clock: SimClock, keep: int) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=8)
        self.lines: deque[str] = deque(maxlen=keep)
        self.events = 0

    def __call__(self, who: str, what: str) -> None:
        self.events += 1
        line = f"{self._clock.rightNow - START_S:10.4f}  {who:<12} {what}"
        self._hash.update(line.encode())
        self.lines.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()


class World:
    """One simulation's clock, chance and trace. `keep_lines` of the trace are kept for people."""

    def __init__(self, seed: int, *, keep_lines: int = 2000) -> None:
        self.seed = seed
        self.clock = SimClock()
        self.trace = Trace(self.clock, keep_lines)

    def rng(self, name: str) -> random.Random:
        """The generator of that name: what one component draws does not disturb another."""
        return random.Random(f"{self.seed}/{name}")

    def now_ms(self) -> int:
        return int(self.clock.rightNow * 1000)

    def run(self, seconds: float) -> None:
        """Let so much simulated time pass."""
        until_s = self.clock.rightNow + seconds
        while self.clock.step(until_s):
            pass


class Process:
    """One operating-system process: everything that happens in it happens through `run`.

    A paused process does nothing until it is resumed, and then everything it missed, in order. A dead one
    never does anything again; a restart is a new `Process`.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.paused = False
        self._missed: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self.on_death: list[Callable[[], None]] = []
        self.clock = ProcessClock(self)

    def run(self, function: Callable[..., object], *arguments: Any) -> None:
        if not self.alive:
            return
        if self.paused or self._missed:
            self._missed.append((function, arguments))
        else:
            function(*arguments)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        while self._missed and self.alive and not self.paused:
            function, arguments = self._missed[0]
            function(*arguments)
            self._missed.popleft()

    def kill(self) -> None:
        self.alive = False
        self._missed.clear()
        for told in self.on_death:
            told()


class ProcessClock:
    """IReactorTime as one process sees it: its timers are late while it is paused, and die with it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._clock = process.world.clock

    def seconds(self) -> float:
        return self._clock.seconds()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        return self._clock.callLater(delay, self._fire, callable, args, kw)

    def _fire(self, function: Callable[..., Any], args: tuple[Any, ...], kw: dict[str, Any]) -> None:
        self._process.run(lambda: function(*args, **kw))


class Workers:
    """A process's worker threads: a job is done at once, and its outcome comes back a little later."""

    def __init__(self, process: Process, delay_ms_max: float = 5.0) -> None:
        self._process = process
        self._rng = process.world.rng(f"{process.name}/workers")
        self._delay_ms_max = delay_ms_max

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        delay_s = self._rng.random() * self._delay_ms_max / 1000
        self._process.clock.callLater(delay_s, self._do, done, function, arguments)
        return done

    def _do(self, done: Deferred[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            result = function(*arguments)
        except Exception:
            done.errback(Failure())
        else:
            done.callback(result)
