"""What a network gives to the broker, and what it asks of those who use it.

The real one is `broker.network.transport.TcpNetwork`; a simulated one has these few methods and nothing else.
Everything is called on the thread that owns the reactor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from protocol.frames import Part


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a connection."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Wire(Protocol):
    """One connection as seen from one of its ends."""

    peer: Address

    def send(self, parts: Sequence[Part]) -> None:
        """Queue `parts` for sending, in order, after all that was queued before. Never blocks, never raises;
        after the connection is gone it does nothing."""
        ...

    def pause(self) -> None:
        """Receive no more until `resume`. Frames that were already read may still be handed over once."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """Receive no more, send what is queued, then close. Bounded: a peer that does not read is cut off."""
        ...

    def abort(self) -> None:
        """Close at once; what is queued is lost."""
        ...


class FrameReceiver(Protocol):
    """What sits behind a wire. `connection_lost` is called exactly once, and nothing after it."""

    frame_bytes_max: int
    """The largest frame the peer may send; read anew for every frame."""

    @property
    def is_holding(self) -> bool:
        """Whether frames that were handed over still wait to be looked at. They will have been when it calls
        `Wire.resume`."""
        ...

    def connected(self, wire: Wire) -> None: ...

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        """One or more whole frames, their sizes taken off. Each is writable, and the receiver's own for as
        long as it, or anything cut from it, is referred to."""
        ...

    def frame_refused(self, size: int) -> None:
        """The peer announced a frame of `size` bytes, which is negative or over `frame_bytes_max`. The wire
        hands over nothing more; the receiver is expected to close or abort it."""
        ...

    def bytes_sent(self, count: int) -> None:
        """`count` more of the bytes given to `Wire.send` have been sent."""
        ...

    def connection_lost(self, reason: str) -> None:
        """The connection has closed, or could not be opened."""
        ...


Accept: TypeAlias = Callable[[Address], FrameReceiver | None]
"""Who takes a connection from this peer; None refuses it."""


class Port(Protocol):
    """A place where a network listens."""

    address: Address
    """With the real port number, where a free one was asked for."""

    def close(self) -> None:
        """Accept no more. Connections already accepted live on."""
        ...


class Network(Protocol):
    def listen(self, host: str, port: int, accept: Accept) -> Port:
        """Accept connections at `host` (empty: every interface) and `port` (0: a free one).

        Raises OSError.
        """
        ...

    def connect(self, host: str, port: int, receiver: FrameReceiver, timeout_ms: int) -> None:
        """Connect; calls `receiver.connected`, or `connection_lost` where that fails or takes too long."""
        ...
