"""A broker that never answers, a loop whose ticks are counted, and how tests wait."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

WAIT_S = 120
LONG_MS = 600_000
"""Longer than any test may take: what holds up the loop for so long fails by the bound of `run`."""
TICKS = 100


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await coroutine

    asyncio.run(bounded())


@contextmanager
def silent_broker() -> Iterator[dict[str, Any]]:
    """Properties of clients of an address that accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield {
            "bootstrap.servers": f"127.0.0.1:{server.getsockname()[1]}",
            "bootstrap.timeout.ms": LONG_MS,
            "request.timeout.ms": LONG_MS,
            "socket.connection.setup.timeout.ms": LONG_MS,
        }


class Ticking:
    """Counts turns of the loop while something waits."""

    def __init__(self) -> None:
        self.count = 0

    async def beside(self, waiting: asyncio.Future[Any]) -> None:
        """Let the loop turn while `waiting` waits. Ends only if the loop is free."""
        until = self.count + TICKS
        while self.count < until:
            await asyncio.sleep(0.0001)
            assert not waiting.done(), waiting
            self.count += 1


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)
