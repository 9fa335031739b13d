"""A wire without a network, and a clock to go with it."""

from __future__ import annotations

from collections.abc import Sequence

from broker.network.interfaces import Address
from protocol.frames import Part, join_parts, parts_size

PEER = Address("192.0.2.1", 50000)


class FakeWire:
    """Remembers what it was asked to do. What is sent stays queued until `deliver` says that it has left."""

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
