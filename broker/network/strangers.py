"""Which connection is closed for a new one when there are too many.

A *stranger* is a connection that does not count as a broker's. First goes the oldest that has never sent a
valid request; then the one that has been idle for the longest time, but none that was used within the last
second. Connections with an unanswered request stay: a consumer that waits for records is not idle. (KIP-402
closes the least recently used connection for one of a broker.)
"""

from __future__ import annotations

from typing import TypeAlias

from sortedcontainers import SortedList

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.coordinator.clock import Clock

IDLE_S_MIN = 1.0
_LOOKS_MAX = 64
"""How many connections that have been used meanwhile are looked at for one new connection."""

_Entry: TypeAlias = "tuple[bool, float, int, ServerConnection]"
"""Whether the connection has sent a valid request, since when it is idle, its number."""


class Strangers:
    """Connections, those first that are to be closed first.

    Requests are not reported here: an entry has what was known when it was last looked at, and gets another
    place if that has changed since. So a request costs nothing. To add or remove a connection takes some
    microseconds, however many there are: nothing is ever done for all of them together.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order: SortedList = SortedList()
        self._entries: dict[int, _Entry] = {}  # by the connection's number
        self._open = 0

    def __len__(self) -> int:
        return self._open

    def add(self, connection: ServerConnection) -> None:
        self._open += 1
        self._enter(connection)

    def remove(self, connection: ServerConnection) -> None:
        """Forget a connection that has closed."""
        self._open -= 1
        self._leave(connection)

    def first_to_go(self) -> ServerConnection | None:
        """The connection to close for another one; None if there is none that may be closed."""
        for _ in range(_LOOKS_MAX):
            if not self._order:
                return None
            first: _Entry = self._order[0]
            has_asked, since_s, _, connection = first
            if connection.is_closed or connection.is_broker:
                self._leave(connection)
                continue
            if self._entry(connection) != first:
                self._leave(connection)
                self._enter(connection)
                continue
            is_old = self._clock.seconds() - since_s >= IDLE_S_MIN
            return connection if is_old or not has_asked else None
        return None

    def _enter(self, connection: ServerConnection) -> None:
        entry = self._entries[connection.id] = self._entry(connection)
        self._order.add(entry)

    def _leave(self, connection: ServerConnection) -> None:
        entry = self._entries.pop(connection.id, None)
        if entry is not None:
            self._order.remove(entry)

    def _entry(self, connection: ServerConnection) -> _Entry:
        # A request that is not valid closes its connection.
        has_asked = connection.received_requests > 0
        since_s = connection.last_activity_s if connection.is_idle else self._clock.seconds()
        return has_asked, since_s, connection.id, connection
