"""How tasks wait for room in a producer's buffer, in the order in which they came, without holding up the
loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from holdfast_log.clients.aio.call_threads import is_call_thread
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.sending.accumulator import NeedsRoom
from holdfast_log.clients.sending.engine import SendingEngine

T = TypeVar("T")


class _Place:
    """A task's place in the queue."""

    __slots__ = ("_future", "_loop", "is_late")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_late = False
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    def time_is_out(self) -> None:
        self.is_late = True
        self.wake()

    async def wait(self) -> None:
        """Wait to be woken. Nothing else runs in the loop between a task's attempt and this."""
        if self._future.done():
            self._future = self._loop.create_future()
        await self._future


class RoomQueue:
    """The tasks that wait for room in the buffer of one producer. All but `_notified` belongs to the loop."""

    def __init__(self, home: HomeLoop, engine: SendingEngine, max_block_ms: int) -> None:
        self.places: deque[_Place] = deque()
        """Those of the tasks that wait, oldest first."""
        self._home = home
        self._engine = engine
        self._max_block_ms = max_block_ms
        self._is_told = False
        engine.accumulator.may_wait = is_call_thread
        engine.lock.on_notify = self._notified

    def _notified(self) -> None:
        """The producer's queues have changed, maybe by giving room back. Called with the lock."""
        if self.places and not self._is_told:
            self._is_told = self._home.post(self._look)

    def _look(self) -> None:
        self._is_told = False
        self._wake_first()

    def _wake_first(self) -> None:
        if self.places:
            self.places[0].wake()

    async def send(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns, once it does not raise NeedsRoom, after the tasks before this one. After
        `max.block.ms` it is made once more, and gets the error of a full buffer. A task that is cancelled has
        sent nothing."""
        loop = self._home.enter()
        engine, place = self._engine, _Place(loop)
        since_s = loop.time()
        timer = loop.call_at(since_s + self._max_block_ms / 1000, place.time_is_out)
        self.places.append(place)
        with engine.lock:
            engine.queues.waiting_for_room += 1
        engine.network.wake()
        try:
            while True:
                if self.places[0] is place:
                    try:
                        return attempt()
                    except NeedsRoom:
                        pass
                if place.is_late:
                    return self._last(attempt)
                await place.wait()
        finally:
            timer.cancel()
            self.places.remove(place)
            with engine.lock:
                engine.queues.waiting_for_room -= 1
                engine.accumulator.waited_ms += int((loop.time() - since_s) * 1000)
            self._wake_first()

    def _last(self, attempt: Callable[[], T]) -> T:
        accumulator = self._engine.accumulator
        with self._engine.lock:
            accumulator.gives_up = True
            try:
                return attempt()
            finally:
                accumulator.gives_up = False
