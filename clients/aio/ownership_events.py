"""The ownership events of an asyncio client, for who awaits them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from functools import partial

from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.ownership.events import OwnershipEvent

OnOwnership = Callable[[OwnershipEvent], object]
_EVENTS_MAX = 1_000


class OwnershipEvents:
    """Keeps the last 1,000 events until they are awaited, and has the application's callback called."""

    def __init__(self, home: HomeLoop) -> None:
        self._home = home
        self._events: deque[OwnershipEvent] = deque(maxlen=_EVENTS_MAX)
        self._has_come = asyncio.Event()

    def note(self, event: OwnershipEvent) -> None:
        """An event has happened. Called in the loop."""
        self._events.append(event)
        self._has_come.set()

    def tell(self, event: OwnershipEvent) -> None:
        """An event has happened. Called in another thread."""
        self._home.tell(self.note, event)

    def tell_also(self, application: OnOwnership) -> OnOwnership:
        """`tell`, which also has the application's callback called."""
        return partial(_tell_both, self, application)

    async def next(self) -> OwnershipEvent:
        """The oldest event that was not awaited yet."""
        self._home.enter()
        while not self._events:
            self._has_come.clear()
            await self._has_come.wait()
        return self._events.popleft()

    async def all(self) -> AsyncIterator[OwnershipEvent]:
        """The events as they happen, without end."""
        while True:
            yield await self.next()


def _tell_both(events: OwnershipEvents, application: OnOwnership, event: OwnershipEvent) -> None:
    events.tell(event)
    events._home.tell(application, event)
