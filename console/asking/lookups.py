"""Answers to single questions, kept for a moment: many browsers on one page ask the cluster once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Lookups(Generic[K, V]):
    """Asks `ask` for a key, and keeps the answer for `age_s`; at most `count_max` answers, the newest.

    Those who ask while the same question is in progress get its answer. Errors are not kept.
    """

    def __init__(
        self,
        ask: Callable[[K], Awaitable[V]],
        age_s: float,
        count_max: int = 200,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._age_s = age_s
        self._count_max = count_max
        self._steady = steady
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asking: dict[K, asyncio.Task[V]] = {}

    async def find(self, key: K) -> V:
        """The answer. Raises what `ask` raises."""
        kept = self._kept.get(key)
        if kept is not None and self._steady() - kept[0] < self._age_s:
            return kept[1]
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._renew(key))
        return await asyncio.shield(task)

    def forget(self) -> None:
        """Ask anew for everything: something was changed."""
        self._kept.clear()

    async def _renew(self, key: K) -> V:
        try:
            value = await self._ask(key)
            self._kept[key] = (self._steady(), value)
            self._kept.move_to_end(key)
            while len(self._kept) > self._count_max:
                self._kept.popitem(last=False)
            return value
        finally:
            del self._asking[key]
