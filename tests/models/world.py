"""The base of a simulated cluster: time, randomness, processes and the trace.

Every event is a call on one clock. All randomness comes from generators derived from one seed by name. Every
notable event goes into the trace, so the hash of the trace identifies the whole run.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import random
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.task import Clock

START_S = 1_700_000_000.0
"""Start time of every simulation, in seconds since the epoch."""
_PROBLEMS_MAX = 20
_CALLS_AT_A_TIME_MAX = 100_000


class StandsStill(Exception):
    """Raised if calls follow each other without time passing: the code under test polls in a busy loop."""


class SimCall:
    """A call that is due (Twisted's IDelayedCall)."""

    __slots__ = ("_arguments", "_clock", "_function", "_keywords", "_state", "due_s", "turn")

    def __init__(
        self,
        clock: SimClock,
        due_s: float,
        function: Callable[..., object],
        arguments: tuple[Any, ...],
        keywords: dict[str, Any],
    ) -> None:
        self.due_s = due_s
        self.turn = -1
        """Number of the clock's valid entry for this call; each reset leaves an invalid entry behind."""
        self._clock = clock
        self._function = function
        self._arguments = arguments
        self._keywords = keywords
        self._state = "active"

    def __repr__(self) -> str:
        return f"<call of {getattr(self._function, '__qualname__', self._function)}>"

    def active(self) -> bool:
        return self._state == "active"

    def getTime(self) -> float:
        return self.due_s

    def cancel(self) -> None:
        self._check_active()
        self._state = "cancelled"
        self.turn = -1
        self._arguments, self._keywords = (), {}

    def reset(self, secondsFromNow: float) -> None:
        self._check_active()
        self._clock.schedule(self, self._clock.rightNow + secondsFromNow)

    def delay(self, secondsLater: float) -> None:
        self._check_active()
        self._clock.schedule(self, self.due_s + secondsLater)

    def run(self) -> None:
        """Make the call. The clock calls this when it is due."""
        self._call()

    def _call(self) -> None:
        self._state = "called"
        self._function(*self._arguments, **self._keywords)

    def _check_active(self) -> None:
        if self._state == "called":
            raise AlreadyCalled
        if self._state == "cancelled":
            raise AlreadyCancelled


class ProcessCall(SimCall):
    """A call that is due in a process. While the process is paused the call waits, and can still be
    cancelled, even by an earlier late call after the process resumes."""

    __slots__ = ("process",)
    process: Process

    def getTime(self) -> float:
        return self.due_s - START_S

    def run(self) -> None:
        self.process.run(self._call_unless_changed, self.turn)

    def _call_unless_changed(self, turn: int) -> None:
        if self.turn == turn:
            self._call()


class SimClock(Clock):
    """Twisted's test clock on a heap: a simulation makes a million calls, and cancels most of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rightNow = START_S
        self._heap: list[tuple[float, int, SimCall]] = []
        self._turns = itertools.count()
        self._calls_now = 0

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> Any:
        call = SimCall(self, 0.0, callable, args, kw)
        self.schedule(call, self.rightNow + max(delay, 0.0))
        return call

    def schedule(self, call: SimCall, due_s: float) -> None:
        call.due_s = due_s
        call.turn = next(self._turns)
        heapq.heappush(self._heap, (due_s, call.turn, call))

    def getDelayedCalls(self) -> list[Any]:
        return [call for _, turn, call in sorted(self._heap) if call.turn == turn]

    def advance(self, amount: float) -> None:
        until_s = self.rightNow + amount
        while self.step(until_s):
            pass

    def step(self, until_s: float) -> bool:
        """Make the next call due by `until_s`. If there is none, set the clock to `until_s` and return False.

        Raises `StandsStill`.
        """
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            due_s, turn, call = heapq.heappop(heap)
            if call.turn == turn:
                if due_s > self.rightNow:
                    self.rightNow = due_s
                    self._calls_now = 0
                self._calls_now += 1
                if self._calls_now > _CALLS_AT_A_TIME_MAX:
                    raise StandsStill(f"{_CALLS_AT_A_TIME_MAX} calls at {due_s - START_S:.4f} s, now {call}")
                call.run()
                return True
        self.rightNow = until_s
        return False


class Trace:
    """All events in order: a running hash of them, and the last lines as text."""

    def __init__(self, clock: SimClock, keep: int | None) -> None:
        self._clock = clock
        self._hash = hashlib.blake2b(digest_size=8)
        self.lines: deque[str] = deque(maxlen=keep)
        self.events = 0

    def __call__(self, who: str, what: str) -> None:
        self.events += 1
        line = f"{self._clock.rightNow - START_S:10.4f}  {who:<10} {what}"
        self._hash.update(line.encode())
        self.lines.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()


class World:
    """One simulation's clock, randomness and trace.

    All random values are drawn from `seed` and `luck`: the same seed with another luck draws other values.
    The last `keep_lines` lines of the trace are kept as text (None: all). `problems` lists unexpected
    exceptions: the simulation continues after one, as a reactor would, and fails at the end.
    """

    def __init__(self, seed: int, *, luck: int = 0, keep_lines: int | None = 2000) -> None:
        self.seed = seed
        self._root = f"{seed}.{luck}" if luck else str(seed)
        self.clock = SimClock()
        self.trace = Trace(self.clock, keep_lines)
        self.problems: list[str] = []
        self.running = "world"
        """Name of the process whose code is running, for callbacks that do not carry their sender."""

    def rng(self, name: str) -> random.Random:
        """The generator of that name. Each component draws from its own, independent of the others."""
        return random.Random(f"{self._root}/{name}")

    def now_ms(self) -> int:
        return int(self.clock.rightNow * 1000)

    def seconds(self) -> float:
        """Simulated seconds since the start."""
        return self.clock.rightNow - START_S

    def run(self, seconds: float) -> None:
        """Let `seconds` of simulated time pass."""
        self.clock.advance(seconds)

    def run_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Run until a condition holds, checked after each call. Returns whether it held in `timeout_s`."""
        until_s = self.clock.rightNow + timeout_s
        while not condition():
            if not self.clock.step(until_s):
                return condition()
        return True

    def problem(self, who: str, what: str) -> None:
        self.trace(who, f"PROBLEM {what.strip().splitlines()[-1]}")
        if len(self.problems) < _PROBLEMS_MAX:
            self.problems.append(f"{who} at {self.seconds():.4f} s: {what}")


class Process:
    """One operating-system process: all its code is called through `run`.

    A paused process makes no calls; when it resumes it makes all missed calls in order. A dead process makes
    no more calls. A restart is a new `Process` with another `life`.
    """

    def __init__(self, world: World, name: str, life: int = 0) -> None:
        self.world = world
        self.name = name
        self.life = life
        self.alive = True
        self.paused = False
        self._missed: deque[tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]] = deque()
        self.on_death: list[Callable[[], None]] = []
        self.clock = ProcessClock(self)

    def rng(self, name: str) -> random.Random:
        """The generator of that name for this process and life."""
        return self.world.rng(f"{self.name}.{self.life}/{name}")

    def run(self, function: Callable[..., object], *arguments: Any, **keywords: Any) -> None:
        if not self.alive:
            return
        if self.paused or self._missed:
            self._missed.append((function, arguments, keywords))
        else:
            self._do(function, arguments, keywords)

    def _do(
        self, function: Callable[..., object], arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        world = self.world
        before, world.running = world.running, self.name
        try:
            function(*arguments, **keywords)
        except Exception:
            world.problem(self.name, traceback.format_exc())
        finally:
            world.running = before

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        while self._missed and self.alive and not self.paused:
            # A missed call is removed only after it was made, so that new calls queue behind the others.
            self._do(*self._missed[0])
            if self._missed:
                self._missed.popleft()

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self._missed.clear()
        for told in self.on_death:
            told()


class ProcessClock:
    """The two clocks of one process. Timers are late while the process is paused, and die with it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._clock = process.world.clock
        self.ahead_s = 0.0
        """Seconds that the machine's time of day is ahead of the simulated time."""

    def seconds(self) -> float:
        # Not the time of day, so that code that mixes up the two clocks fails.
        return self._clock.rightNow - START_S

    def date_ms(self) -> int:
        """The machine's time of day."""
        return int((self._clock.rightNow + self.ahead_s) * 1000)

    def callLater(self, delay: float, callable: Callable[..., object], *args: Any, **kw: Any) -> Any:
        call = ProcessCall(self._clock, 0.0, callable, args, kw)
        call.process = self._process
        self._clock.schedule(call, self._clock.rightNow + max(delay, 0.0))
        return call
