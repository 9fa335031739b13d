"""From another thread to the reactor's."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

CallFromThread = Callable[..., Any]
"""`call_from_thread(function, *arguments)`: run it on the reactor's thread, in the order of the calls."""

_log = logging.getLogger(__name__)


class ReactorCallQueue:
    """Hands calls from kazoo's thread to the reactor's, in order and in bunches.

    Waking the reactor for every one of ten thousand answers would cost more than the answers.
    """

    def __init__(self, call_from_thread: CallFromThread) -> None:
        self._call_from_thread = call_from_thread
        self._calls: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._announced = False

    def __call__(self, function: Callable[..., None], *arguments: Any) -> None:
        """On kazoo's thread. What is appended before the look at `_announced` is not missed by `_run`."""
        self._calls.append((function, arguments))
        if not self._announced:
            self._announced = True
            self._call_from_thread(self._run)

    def _run(self) -> None:
        self._announced = False
        while self._calls:
            function, arguments = self._calls.popleft()
            try:
                function(*arguments)
            except Exception:  # One listener's or watch's mistake must not cost the others their news.
                _log.exception("a callback of ZooKeeper's has failed")
