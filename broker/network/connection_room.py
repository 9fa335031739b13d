"""How many connections a broker may have: together, from one address, and for brokers alone."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.network.interfaces import source_address
from holdfast_log.broker.network.strangers import Strangers
from holdfast_log.coordinator.clock import Clock

_KEPT_SHARE = 8
_KEPT_MAX = 64
"""More than a broker needs for its connections with 10 others."""


@dataclass(frozen=True, slots=True)
class Lack:
    """A limit that is reached: `what` there is, in words, what an administrator can do, and the connections
    of which one can go."""

    what: str
    advice: str
    strangers: Strangers


class Room:
    """Counts the connections of a broker, and says which limit leaves no room for one more.

    `connections_max` and `descriptors` (None: no limit) limit all of them, `per_address_max` those of one
    address, by default half of all. `brokers` is the listener for brokers alone: an eighth of the
    connections, up to 64, is kept for it, and those to it do not count for an address.
    """

    def __init__(
        self,
        clock: Clock,
        connections_max: int,
        per_address_max: int | None,
        descriptors: int | None,
        brokers: str | None,
    ) -> None:
        self._clock = clock
        self._brokers = brokers
        self._is_for_files = descriptors is not None and descriptors <= connections_max
        self._max = connections_max if descriptors is None else min(connections_max, descriptors)
        self._kept = 0 if brokers is None else min(_KEPT_MAX, self._max // _KEPT_SHARE)
        self._per_address_max = max(1, self._max // 2) if per_address_max is None else per_address_max
        self._open = 0
        self._of_clients = 0
        self._strangers = Strangers(clock)
        self._by_address: dict[str, Strangers] = {}

    def take(self, connection: ServerConnection) -> None:
        """Count an open connection."""
        self._open += 1
        self._strangers.add(connection)
        if connection.listener == self._brokers:
            return
        self._of_clients += 1
        address = source_address(connection.peer.host)
        at_address = self._by_address.get(address)
        if at_address is None:
            at_address = self._by_address[address] = Strangers(self._clock)
        at_address.add(connection)

    def leave(self, connection: ServerConnection) -> None:
        """Count a connection no longer, which has closed."""
        self._open -= 1
        self._strangers.remove(connection)
        if connection.listener == self._brokers:
            return
        self._of_clients -= 1
        address = source_address(connection.peer.host)
        at_address = self._by_address[address]
        at_address.remove(connection)
        if not at_address:
            del self._by_address[address]

    def lack(self, listener: str, host: str, held: int = 0) -> Lack | None:
        """The limit that leaves no room for a connection from this host to this listener; None if there is
        room. `held` connections are closed already, but their sockets are still open."""
        held = held if self._is_for_files else 0
        if self._open + held >= self._max:
            return self._lack_of_all(self._max)
        if listener == self._brokers:
            return None
        if self._of_clients + held >= self._max - self._kept:
            return self._lack_of_all(self._max - self._kept)
        at_address = self._by_address.get(source_address(host)) or Strangers(self._clock)
        if len(at_address) < self._per_address_max:
            return None
        what = f"max.connections.per.ip={self._per_address_max} connections from that address"
        return Lack(what, "", at_address)

    def _lack_of_all(self, most: int) -> Lack:
        if self._is_for_files:
            what = f"{most} connections, as many as the limit of open files leaves descriptors for,"
            return Lack(what, "; raise the limit (ulimit -n, LimitNOFILE) and restart", self._strangers)
        return Lack(f"{most} of max.connections={self._max} connections", "", self._strangers)
