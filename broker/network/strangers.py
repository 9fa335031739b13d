"""Which connection is closed for a new one when there are too many.

A *stranger* is a connection that does not count as a broker's. First goes the oldest that has never sent a
valid request; then the one that has been idle for the longest time, but none that was used within the last
second. Connections with an unanswered request stay: a consumer that waits for records is not idle. (KIP-402
closes the least recently used connection for one of a broker.)
"""

from __future__ import annotations

import heapq

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.coordinator.clock import Clock

IDLE_S_MIN = 1.0
_LOOKS_MAX = 64
"""How many connections that have been used meanwhile are looked at for one new connection."""
_SPARE_ENTRIES = 64


class Strangers:
    """Connections, those first that are to be closed first.

    Requests are not reported here: an entry has what was known when it was last looked at, and is put back if
    that has changed since. So a request costs nothing, and a new connection the logarithm of their number.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[bool, float, int, ServerConnection]] = []
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def add(self, connection: ServerConnection) -> None:
        heapq.heappush(self._heap, self._entry(connection))
        self._open += 1

    def remove(self, connection: ServerConnection) -> None:
        """Forget a connection that has closed."""
        self._open -= 1
        if len(self._heap) > 2 * self._open + _SPARE_ENTRIES:
            self._heap = [entry for entry in self._heap if not entry[3].is_closed]
            heapq.heapify(self._heap)

    def first_to_go(self) -> ServerConnection | None:
        """The connection to close for another one; None if there is none that may be closed."""
        heap = self._heap
        for _ in range(_LOOKS_MAX):
            if not heap:
                return None
            connection = heap[0][3]
            if connection.is_closed or connection.is_broker:
                heapq.heappop(heap)
                continue
            entry = self._entry(connection)
            if entry > heap[0]:
                heapq.heapreplace(heap, entry)
                continue
            has_asked, since_s, *_ = entry
            is_old = self._clock.seconds() - since_s >= IDLE_S_MIN
            return connection if is_old or not has_asked else None
        return None

    def _entry(self, connection: ServerConnection) -> tuple[bool, float, int, ServerConnection]:
        # A request that is not valid closes its connection.
        has_asked = connection.received_requests > 0
        since_s = connection.last_activity_s if connection.is_idle else self._clock.seconds()
        return has_asked, since_s, connection.id, connection
