"""Memory for requests, shared by all connections (`queued.max.request.bytes`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

NO_LIMIT = -1


class RequestMemory:
    """Lends a number of bytes out of `bytes_max`; callers queue while too few are left.

    Requests are served in order of arrival: if small ones could overtake a large one, it might never be
    served. A request larger than the limit passes alone. `bytes_max` of -1 means no limit.
    """

    def __init__(self, bytes_max: int = NO_LIMIT) -> None:
        self._bytes_max = bytes_max
        self._lent_bytes = 0
        self._line: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_limited(self) -> bool:
        """Whether a caller may have to wait."""
        return self._bytes_max != NO_LIMIT

    @property
    def lent_bytes(self) -> int:
        return self._lent_bytes

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return len(self._line)

    def borrow(self, size: int, granted: Callable[[], None]) -> bool:
        """Borrow `size` bytes. Returns False if there is no room yet; `granted` is called when there is."""
        if self._line or not self._fits(size):
            self._line.append((size, granted))
            return False
        self._lent_bytes += size
        return True

    def give_back(self, size: int) -> None:
        """Return `size` bytes that were lent."""
        self._lent_bytes -= size
        while self._line and self._fits(self._line[0][0]):
            wanted, granted = self._line.popleft()
            self._lent_bytes += wanted
            granted()

    def leave(self, granted: Callable[[], None]) -> None:
        """Remove the waiter that has this `granted` callback from the queue, if it is there."""
        self._line = deque(entry for entry in self._line if entry[1] != granted)
        self.give_back(0)

    def _fits(self, size: int) -> bool:
        return (
            self._bytes_max == NO_LIMIT or not self._lent_bytes or self._lent_bytes + size <= self._bytes_max
        )
