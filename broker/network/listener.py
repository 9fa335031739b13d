"""The broker's listeners, and the connections that they have accepted."""

from __future__ import annotations

import errno
import functools
import logging
import math
import os
from collections.abc import Callable, Container, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

from holdfast_log.broker.network.connection import ConnectionLimits, FrameHandler, ServerConnection
from holdfast_log.broker.network.connection_room import Room
from holdfast_log.broker.network.endpoints import Endpoints
from holdfast_log.broker.network.interfaces import Address, ConnectionPace, Network, Port
from holdfast_log.broker.network.refusals import RefusalPace, Refusals
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.network.turns import SendingTurn
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.coordinator.repeated_log import RepeatedLog

_log = logging.getLogger(__name__)

_SWEEP_MS_MAX = 30_000
_LOOKED_AT = 100
"""So many connections are looked at in one step: each takes 0.2 µs."""
_UNPROVEN_FRAME_BYTES_MAX = 16 * 1024
"""Maximum size of a request to the brokers' own listener before the peer has proved that it is one."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of each connection and of all together. An `idle_ms_max` of -1 means no limit. Without
    `connections_per_ip_max` one address may have half of all connections."""

    connections_max: Annotated[int, "max.connections"]
    connections_per_ip_max: Annotated[int | None, "max.connections.per.ip"]
    idle_ms_max: Annotated[int, "connections.max.idle.ms"]
    connection: ConnectionLimits
    refused_delay_ms_max: Annotated[int, "connection.refused.delay.max.ms"] = 1000


class Listeners:
    """Opens and closes the ports, holds the connections, and closes idle ones.

    Iterating gives the open connections, oldest first. `descriptors` is the number of file descriptors that
    connections may take; None: no limit besides those in `limits`. Without `pace` they may come at any rate.
    Each connection to a listener in `trusted` counts as another broker's. `brokers` is the listener for
    brokers alone, for which connections are kept; None: there is none. `secure` are the networks over TLS, by
    the names of the listeners that use them; the others use `network`. `guard` is called with each new
    connection before its first frame. `sending` is the reactor's.
    """

    def __init__(
        self,
        network: Network,
        clock: Clock,
        handler: FrameHandler,
        limits: ListenerLimits,
        descriptors: int | None = None,
        log: RepeatedLog | None = None,
        pace: ConnectionPace | None = None,
        trusted: Container[str] = (),
        brokers: str | None = None,
        secure: Mapping[str, Network] | None = None,
        guard: Callable[[ServerConnection], None] | None = None,
        sending: SendingTurn | None = None,
        rotation: Rotation | None = None,
    ) -> None:
        self._secure = secure or {}
        self._pace = pace
        self._guard = guard
        self._trusted = trusted
        self._brokers = brokers
        self._room = Room(clock, limits.connections_max, limits.connections_per_ip_max, descriptors, brokers)
        self._log = log or RepeatedLog(clock)
        self._refusals = Refusals(
            clock, self._log, RefusalPace(delay_max_s=limits.refused_delay_ms_max / 1000)
        )
        self._rotation = rotation or Rotation(clock)
        self._sending = sending or SendingTurn()
        self.accepted = 0
        self.refused = 0
        self._network = network
        self._clock = clock
        self._handler = handler
        self._limits = limits
        self.endpoints: Endpoints | None = None
        """The endpoints with their real port numbers; None before `start`."""
        self._ports: dict[str, Port] = {}
        self._connections: dict[int, ServerConnection] = {}
        self._sweep: DelayedCall | None = None

    def __iter__(self) -> Iterator[ServerConnection]:
        return iter(tuple(self._connections.values()))

    def __len__(self) -> int:
        return len(self._connections)

    def start(self, endpoints: Endpoints) -> Endpoints:
        """Listen at every endpoint. Returns the endpoints with the real port numbers.

        Raises OSError, with the listener's name in its text, if one cannot be opened; then none stays open.
        """
        for endpoint in endpoints.listeners:
            accept = functools.partial(self._accept, endpoint.name)
            try:
                network = self._secure.get(endpoint.name, self._network)
                self._ports[endpoint.name] = network.listen(endpoint.host, endpoint.port, accept)
            except OSError as error:
                self.stop_accepting()
                raise OSError(
                    error.errno, f"listener {endpoint} cannot be opened: {_reason(error)}"
                ) from error
        self._schedule_sweep()
        ports = {name: port.address.port for name, port in self._ports.items()}
        self.endpoints = endpoints.with_real_ports(ports)
        return self.endpoints

    def stop_accepting(self) -> None:
        """Close the ports; connections stay open."""
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.close()

    def stop(self, reason: str) -> None:
        """Close the ports and every connection, after what was already answered has been sent."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        for connection in self:
            connection.close_when_sent(reason)
        self._refusals.end_all()

    def _accept(self, listener: str, peer: Address) -> ServerConnection | None:
        if not self._has_room(listener, peer):
            self.refused += 1
            return None
        delay_s = 0.0 if self._pace is None else self._pace.delay_s(listener, peer.host)
        if delay_s is None:
            self.refused += 1
            cause = "connections refused because too many come too fast"
            text = "Refusing a connection from %s on %s: too many wait because of a connection creation rate"
            self._log.warning(_log, cause, text, peer, listener)
            return None
        self.accepted += 1
        connection = ServerConnection(
            self.accepted,
            listener,
            peer,
            self._handler,
            self._limits.connection,
            self._clock,
            self._refusals,
            self._rotation,
            self._sending,
            is_broker=listener in self._trusted,
        )
        self._connections[connection.id] = connection
        self._room.take(connection)
        if listener == self._brokers and not connection.is_broker:
            # Large requests to this listener have memory of their own, which is for brokers.
            connection.frame_bytes_max = min(connection.frame_bytes_max, _UNPROVEN_FRAME_BYTES_MAX)
        connection.add_close_callback(self._forget)
        if self._guard is not None:
            self._guard(connection)
        if delay_s:
            connection.mute(math.ceil(delay_s * 1000))
        return connection

    def _has_room(self, listener: str, peer: Address) -> bool:
        """Whether one more connection may be opened. Closes one of a stranger for it."""
        lack = self._room.lack(listener, peer.host, self._refusals.held)
        if lack is None:
            return True
        stranger = lack.strangers.first_to_go()
        if stranger is not None:
            cause = "connections closed because too many are open"
            text = "Closing %s for a new one from %s: %s are open, and it was idle for the longest time%s"
            self._log.warning(_log, cause, text, stranger, peer, lack.what, lack.advice)
            stranger.close("another connection needed its place")
            lack = self._room.lack(listener, peer.host, self._refusals.held)
        if lack is not None:
            cause = "connections refused because too many are open"
            text = "Refusing a connection from %s on %s: %s are open, and none of them may be closed for it%s"
            self._log.warning(_log, cause, text, peer, listener, lack.what, lack.advice)
        return lack is None

    def _forget(self, connection: ServerConnection) -> None:
        del self._connections[connection.id]
        self._room.leave(connection)

    def _schedule_sweep(self) -> None:
        idle_ms = self._limits.idle_ms_max
        if idle_ms >= 0:
            pause_ms = min(_SWEEP_MS_MAX, max(1, idle_ms // 2))
            self._sweep = self._clock.callLater(pause_ms / 1000, self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._schedule_sweep()
        latest_ms = int(self._clock.seconds() * 1000) - self._limits.idle_ms_max
        self._rotation.take_steps(self._close_idle(latest_ms))

    def _close_idle(self, latest_ms: int) -> Generator[None, None, None]:
        """Close the connections that were last used before, or at, `latest_ms`: one in a step, of which each
        takes 30 µs, because all clients of an idle cluster may be idle for too long at the same time."""
        for number, connection in enumerate(self):
            if connection.last_activity_ms <= latest_ms and connection.is_idle:
                _log.info("Closing %s: idle for %d ms", connection, self._limits.idle_ms_max)
                connection.close("it was idle for too long")
                yield
            elif number % _LOOKED_AT == 0:
                yield


def _reason(error: OSError) -> str:
    """Why a listener could not be opened, in words."""
    if error.errno == errno.EADDRINUSE:
        return "another program uses the port: stop that program, or set another port in listeners"
    return os.strerror(error.errno) if error.errno else str(error)
