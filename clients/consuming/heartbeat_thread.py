"""The thread that keeps a consumer in its group while the application handles records (KIP-62).

It takes turns of the consumer's loop between the calls of the application. These turns send heartbeats, find
the coordinator, and leave the group when `max.poll.interval.ms` has passed since the last `poll`. They change
no position and begin no rebalance: `poll` does that.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from holdfast_log.clients.errors import ClientError

_AFTER_ERROR_MS = 1_000


class HasTurnsBeside(Protocol):
    """A consumer's loop, as the thread sees it."""

    def turn_beside(self) -> int | None:
        """Take one turn, as soon as the application is away. Returns after how many ms the next one is due;
        None if there will be none."""
        ...


class HeartbeatThread:
    """Runs `turn_beside` of a loop until the loop is closed, or nobody refers to it any more."""

    def __init__(self, loop: HasTurnsBeside, name: str) -> None:
        self._has_ended = threading.Event()
        # A daemon: an application that forgets to close its consumer can still end. It refers to the loop
        # weakly, so that a forgotten consumer leaves its group when its session expires.
        self._thread = threading.Thread(
            target=_run, args=(weakref.ref(loop), self._has_ended), name=name, daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Take no more turns."""
        self._has_ended.set()


def _run(loop: weakref.ref[HasTurnsBeside], has_ended: threading.Event) -> None:
    wait_ms: int | None = 0
    while wait_ms is not None and not has_ended.wait(wait_ms / 1000):
        wait_ms = _turn(loop)


def _turn(loop: weakref.ref[HasTurnsBeside]) -> int | None:
    alive = loop()
    if alive is None:
        return None
    try:
        return alive.turn_beside()
    except ClientError:
        return _AFTER_ERROR_MS  # The next `poll` meets the same error and raises it.
