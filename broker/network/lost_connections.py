"""Connections whose peers have gone: what they leave behind is cleared up in turns.

A program with thousands of connections closes them all at the same moment when it ends. Each takes some 35 µs
(its requests, its sessions, its place among the open connections), so that all of them together would hold
everybody else for 0.1 s. They wait for their slices of the rotation, as everything that can wait does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from holdfast_log.broker.network.rotation import Rotation


class LostConnections:
    """The connections that are to be ended, in the order in which their peers were found to have gone."""

    def __init__(self, rotation: Rotation, clock_s: Callable[[], float]) -> None:
        self._rotation = rotation
        self._clock_s = clock_s
        self._line: deque[Callable[[], None]] = deque()

    def add(self, end: Callable[[], None]) -> None:
        """Have `end`, which must not raise, called soon: it ends one connection."""
        self._line.append(end)
        if len(self._line) == 1:
            self._rotation.enqueue_next(self)

    def take_slice(self, ends_s: float) -> bool:
        """End connections until `ends_s`, one at least. Called by the rotation."""
        line = self._line
        while True:
            end = line[0]
            end()
            line.popleft()
            if not line:
                return False
            if self._clock_s() >= ends_s:
                return True
