"""A client's network that tests can cut."""

from __future__ import annotations

import contextlib
import socket

from holdfast_log.clients.connection.network import SocketChannel, SystemNetwork


class CuttableNetwork(SystemNetwork):
    """A network that can be cut."""

    def __init__(self) -> None:
        super().__init__()
        self._channels: list[SocketChannel] = []

    def connect(self, host: str, port: int) -> SocketChannel:
        self._channels.append(super().connect(host, port))
        return self._channels[-1]

    def cut(self) -> None:
        """End all connections."""
        for channel in self._channels:
            if channel.fileno() >= 0:
                with contextlib.suppress(OSError):  # Another thread may be closing it.
                    channel.socket.shutdown(socket.SHUT_RDWR)
