"""Connections of a network that are served in a test."""

from __future__ import annotations

from typing import Any

from holdfast_log.broker.network.connection import ConnectionLimits, FrameHandler, ReplySlot, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.frames import SIZE
from tests.reactor import reactor

LIMITS = ConnectionLimits(
    frame_bytes_max=8 * 1024 * 1024, buffered_bytes_max=1024 * 1024, in_flight_requests_max=100
)


def framed(*bodies: bytes) -> bytes:
    return b"".join(SIZE.pack(len(body)) + body for body in bodies)


def echo(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
    reply.send([SIZE.pack(len(frame)), bytes(frame)])


class Served:
    """Connections on a free port of a network, each served by one handler, until `stop`."""

    def __init__(self, network: Any, handler: FrameHandler, limits: ConnectionLimits) -> None:
        self.connections: list[ServerConnection] = []
        self.handler = handler
        self.limits = limits
        self._port = network.listen("127.0.0.1", 0, self._accept)
        self.address = self._port.address

    def _accept(self, peer: Address) -> ServerConnection:
        connection = ServerConnection(len(self.connections), "L", peer, self.handler, self.limits, reactor)
        self.connections.append(connection)
        return connection

    def stop(self) -> None:
        self._port.close()
        for connection in self.connections:
            connection.close("the test is over")
