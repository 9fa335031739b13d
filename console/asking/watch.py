"""Keeps the newest snapshot for all browsers: asked for while somebody looks, no more often than needed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from holdfast_log.console.asking.snapshot import ClusterSnapshot

SHARE = 0.1
"""The part of the time that may be spent on asking: a cluster that answers slowly is asked less often."""


class Watch:
    """The newest snapshot. `ask` makes the next one from the last. All methods belong to one event loop.

    A snapshot is asked for when somebody wants one and the last is older than `interval_s`: while nobody
    looks, nothing is asked. `steady` is a clock in s that nobody can set.
    """

    def __init__(
        self,
        ask: Callable[[ClusterSnapshot | None], Awaitable[ClusterSnapshot]],
        interval_s: float,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._interval_s = interval_s
        self._steady = steady
        self._newest: ClusterSnapshot | None = None
        self._asked_at_s = 0.0
        self._asking: asyncio.Task[ClusterSnapshot] | None = None

    async def current(self) -> ClusterSnapshot:
        """The newest snapshot. It is at most as old as the interval, unless the cluster answers slowly."""
        if self._newest is None:
            return await asyncio.shield(self._begun())
        if self.wait_s() > 0:
            return self._newest
        return await asyncio.shield(self._begun())

    async def fresh(self) -> ClusterSnapshot:
        """A snapshot that is asked for from now on: for the page after a change."""
        if self._asking is not None:
            await asyncio.shield(self._asking)
        return await asyncio.shield(self._begun())

    async def after(self, version: int) -> ClusterSnapshot:
        """The next snapshot that is newer than `version`."""
        while (found := await self.current()).version <= version:
            await asyncio.sleep(max(0.05, self.wait_s()))
        return found

    def wait_s(self) -> float:
        """How long until the next snapshot may be asked for."""
        if self._newest is None:
            return 0.0
        pause_s = max(self._interval_s, self._newest.took_s / SHARE)
        return max(0.0, self._asked_at_s + pause_s - self._steady())

    def _begun(self) -> asyncio.Task[ClusterSnapshot]:
        """The question in progress, which is begun if there is none."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._renew())
        return self._asking

    async def _renew(self) -> ClusterSnapshot:
        try:
            self._newest = await self._ask(self._newest)
            return self._newest
        finally:
            self._asked_at_s = self._steady()
            self._asking = None
