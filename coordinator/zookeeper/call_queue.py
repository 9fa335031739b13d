"""Calls from another thread to the reactor's thread."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

CallFromThread = Callable[..., Any]
"""`call_from_thread(function, *arguments)` runs the function on the reactor's thread, in order of the
calls."""

_CALLS_AT_ONCE = 50
"""Calls made before the reactor looks at its sockets. What one begins takes a fifth of a millisecond at
most."""

_log = logging.getLogger(__name__)


class ReactorCallQueue:
    """Passes calls from kazoo's thread to the reactor's, in order and in batches.

    Waking the reactor for each of ten thousand answers would cost more than handling them. To handle all of
    them in one turn would keep clients waiting.
    """

    def __init__(self, call_from_thread: CallFromThread) -> None:
        self._call_from_thread = call_from_thread
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._announced = False

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        """Queue a call; runs on kazoo's thread. It appends before it reads `_announced`, so `_run` misses no
        call."""
        self._calls.append((function, arguments))
        if not self._announced:
            self._announced = True
            self._call_from_thread(self._run)

    def _run(self) -> None:
        self._announced = False
        for _ in range(min(len(self._calls), _CALLS_AT_ONCE)):
            function, arguments = self._calls.popleft()
            try:
                function(*arguments)
            except Exception:  # A failing listener or watch must not keep events from others.
                _log.exception("a ZooKeeper callback failed; later callbacks are still called")
        if self._calls and not self._announced:
            self._announced = True
            self._call_from_thread(self._run)
