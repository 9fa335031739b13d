"""Interfaces between the broker and a network.

`broker.network.transport.TcpNetwork` implements them with TCP; tests implement them without sockets. All
calls are made on the reactor's thread.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from holdfast_log.protocol.frames import Part


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def source_address(host: str) -> str:
    """What stands for a client at this address: the address, or the first 64 bits of an IPv6 address, because
    one host may have all addresses that share them."""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.IPv6Network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


class Wire(Protocol):
    """One connection as seen from one of its ends."""

    peer: Address

    def send(self, parts: Sequence[Part]) -> None:
        """Queue `parts` for sending, in order, after everything queued before. Never blocks or raises; no
        effect once the connection has closed."""
        ...

    def pause(self) -> None:
        """Receive no more until `resume`. Frames that were already read may still be delivered once."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Stop receiving, send the queue, then close. After a timeout, drop what the peer has not read."""
        ...

    def abort(self) -> None:
        """Close at once; queued bytes are lost."""
        ...


class FrameReceiver(Protocol):
    """Receiver of the events of a wire. `connection_lost` is the last call and is made exactly once."""

    frame_bytes_max: int
    """Maximum bytes of a frame from the peer; read again for every frame."""

    @property
    def is_holding(self) -> bool:
        """Whether delivered frames still wait to be handled. The receiver calls `Wire.resume` once it has
        handled them."""
        ...

    def connected(self, wire: Wire) -> None: ...

    def identified(self, principal: str) -> None:
        """The wire knows who the peer is, by its certificate. Called before its first frame, if at all."""
        ...

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        """Take one or more whole frames, without their sizes. Each is writable, and is not reused while the
        receiver refers to it or to a view of it."""
        ...

    def frame_refused(self, size: int) -> None:
        """The peer announced a frame of `size` bytes, which is negative or over `frame_bytes_max`. The wire
        delivers nothing more; the receiver must close or abort it."""
        ...

    def bytes_sent(self, count: int) -> None:
        """`count` more of the bytes given to `Wire.send` have been sent."""
        ...

    def connection_lost(self, reason: str) -> None:
        """The connection has closed, or could not be opened."""
        ...


Accept: TypeAlias = Callable[[Address], FrameReceiver | None]
"""Returns the receiver for a connection from this peer; None refuses the connection."""


class ConnectionPace(Protocol):
    """Limits how fast connections may be opened."""

    def delay_s(self, listener: str, host: str) -> float | None:
        """Count a new connection. Returns the time in seconds for which nothing is read from it; None refuses
        the connection."""
        ...


class Port(Protocol):
    """A listening port."""

    address: Address
    """The bound address, with the real port number if port 0 was requested."""

    def close(self) -> None:
        """Accept no more connections. Those already accepted stay open."""
        ...


class Network(Protocol):
    def listen(self, host: str, port: int, accept: Accept) -> Port:
        """Accept connections at `host` (empty: every interface) and `port` (0: a free one).

        Raises OSError.
        """
        ...

    def connect(self, host: str, port: int, receiver: FrameReceiver, timeout_ms: int) -> None:
        """Connect, and call `receiver.connected`; or `connection_lost` on failure or after `timeout_ms`."""
        ...
