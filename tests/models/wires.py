"""Models of the broker's network (`broker.network.interfaces`) that record calls, without bytes in flight.

The test itself plays the peer. Asserts hold the code under test to the interface.
`tests.models.network` has a network that carries bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from holdfast_log.broker.network.interfaces import Accept, Address, FrameReceiver
from holdfast_log.protocol.frames import SIZE, Part, join_parts, parts_size

PEER = Address("192.0.2.1", 50000)


class FakeWire:
    """A connection that records what is asked of it. The test calls the receiver's methods itself."""

    def __init__(self, peer: Address = PEER) -> None:
        self.peer = peer
        self.sent: list[bytes] = []
        self.sends = 0
        self.is_paused = False
        self.is_closed = False
        self.is_aborted = False

    @property
    def data(self) -> bytes:
        return b"".join(self.sent)

    def frames(self) -> Iterator[bytes]:
        """Take the whole frames that were sent, without their sizes."""
        while len(data := self.data) >= SIZE.size:
            end = SIZE.size + SIZE.unpack_from(data)[0]
            self.sent = [data[end:]] if len(data) > end else []
            yield data[SIZE.size : end]

    def send(self, parts: Sequence[Part]) -> None:
        assert not self.is_aborted and not self.is_closed, "sent after the end"
        assert parts_size(parts), "nothing to send"
        self.sends += 1
        self.sent.append(join_parts(parts))

    def pause(self) -> None:
        assert not self.is_paused
        self.is_paused = True

    def resume(self) -> None:
        assert self.is_paused
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class FakePort:
    """A listening port; the test makes connections with `accept`."""

    address: Address
    accept: Accept
    is_closed: bool = False

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Attempt:
    """A requested connection; the test reports the outcome to `receiver`."""

    host: str
    port: int
    receiver: FrameReceiver
    wire: FakeWire = field(default_factory=FakeWire)


@dataclass
class FakeNetwork:
    """Opens the ports 1, 2, … and records connection attempts. From the `broken_after`-th port on, opening
    one fails."""

    ports: list[FakePort] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    broken_after: int = 100

    def listen(self, host: str, port: int, accept: Accept) -> FakePort:
        if len(self.ports) == self.broken_after:
            raise OSError(98, "already in use")
        self.ports.append(FakePort(Address(host, len(self.ports) + 1), accept))
        return self.ports[-1]

    def connect(self, host: str, port: int, receiver: FrameReceiver, timeout_ms: int) -> None:
        self.attempts.append(Attempt(host, port, receiver))
