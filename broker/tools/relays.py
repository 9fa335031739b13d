"""Brokers behind relays: two relays in front of each broker, for clients and for brokers, and one between the
broker and ZooKeeper.

While a broker is cut off, its relays forward nothing in either direction. Connections stay open, and bytes
already sent arrive when the cut is healed. A broker can also be cut off from ZooKeeper alone, or from
everything but ZooKeeper.
"""

from __future__ import annotations

import contextlib
import enum
import os
import socket
import threading
from dataclasses import dataclass
from pathlib import Path

from holdfast_log.broker.network.endpoints import BROKERS
from holdfast_log.broker.tools.place import Place
from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port

_CHUNK = 1 << 16
_NO_PROCESS = 0


class _From(enum.Enum):
    """What a broker is cut off from."""

    ALL = "everything"
    ZOOKEEPER = "ZooKeeper alone"
    PEERS = "brokers and clients, but not ZooKeeper"


@dataclass(frozen=True, slots=True)
class _Cut:
    """A cut of one broker, whose process id is `pid`."""

    pid: int
    cut_from: _From

    def holds(self, *, is_to_zookeeper: bool) -> bool:
        """Whether a connection of the broker is cut, which leads to ZooKeeper or to a broker or client."""
        return self.cut_from is _From.ALL or (self.cut_from is _From.ZOOKEEPER) == is_to_zookeeper


class Relays:
    """A network of relays on loopback. Each connection has two threads."""

    host = HOST

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._cuts: dict[int, _Cut] = {}
        """The present cuts, by broker number."""
        self._connections: list[_Connection] = []
        self._doors: list[socket.socket] = []

    def place(self, number: int, zookeeper_connect: str) -> Place:
        port = free_port()
        brokers_port = free_port()
        outside = self._open_door(number, (HOST, port), is_to_zookeeper=False)
        between = self._open_door(number, (HOST, brokers_port), is_to_zookeeper=False)
        host, _, zookeeper_port = zookeeper_connect.rpartition(":")
        zookeeper = self._open_door(number, (host, int(zookeeper_port)), is_to_zookeeper=True)
        return Place(
            HOST,
            port,
            f"{HOST}:{outside}",
            f"{HOST}:{zookeeper}",
            properties={"advertised.listeners": f"PLAINTEXT://{HOST}:{outside},{BROKERS}://{HOST}:{between}"},
            brokers_port=brokers_port,
        )

    def cut(self, number: int, pid: int) -> None:
        self._begin(number, _Cut(pid, _From.ALL))

    def cut_from_zookeeper(self, number: int) -> None:
        """Drop all traffic between broker `number` and ZooKeeper. Brokers and clients still reach it."""
        self._begin(number, _Cut(_NO_PROCESS, _From.ZOOKEEPER))

    def cut_from_peers(self, number: int, pid: int) -> None:
        """Drop all traffic of broker `number`, whose process id is `pid`, but for that with ZooKeeper."""
        self._begin(number, _Cut(pid, _From.PEERS))

    def heal(self, number: int) -> None:
        with self._changed:
            del self._cuts[number]
            self._changed.notify_all()

    def _begin(self, number: int, cut: _Cut) -> None:
        ports = local_ports(cut.pid)
        with self._changed:
            self._cuts[number] = cut
            for connection in self._connections:
                if connection.client_port in ports:
                    connection.brokers.add(number)

    def close(self) -> None:
        for door in self._doors:
            _end(door)
        with self._changed:
            for connection in self._connections:
                connection.close()
            self._cuts.clear()
            self._changed.notify_all()

    def _open_door(self, number: int, target: tuple[str, int], *, is_to_zookeeper: bool) -> int:
        door = socket.create_server((HOST, 0))
        self._doors.append(door)
        arguments = (door, number, target, is_to_zookeeper)
        threading.Thread(target=self._accept, args=arguments, daemon=True).start()
        port: int = door.getsockname()[1]
        return port

    def _accept(
        self, door: socket.socket, number: int, target: tuple[str, int], is_to_zookeeper: bool
    ) -> None:
        while True:
            try:
                client, (_, client_port) = door.accept()
            except OSError:
                return  # The relay was closed.
            connection = _Connection(client, client_port, {number}, is_to_zookeeper=is_to_zookeeper)
            with self._changed:
                # A cut-off broker still opens connections to other brokers and to ZooKeeper.
                connection.brokers |= {
                    other for other, cut in self._cuts.items() if client_port in local_ports(cut.pid)
                }
                self._connections.append(connection)
            threading.Thread(target=self._connect, args=(connection, target), daemon=True).start()

    def _connect(self, connection: _Connection, target: tuple[str, int]) -> None:
        self._wait_until_whole(connection)
        try:
            server = socket.create_connection(target)
        except OSError:
            connection.close()
            return
        connection.server = server
        threading.Thread(target=self._pump, args=(connection, server, connection.client), daemon=True).start()
        self._pump(connection, connection.client, server)

    def _pump(self, connection: _Connection, source: socket.socket, sink: socket.socket) -> None:
        """Relay one direction until either end closes."""
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                self._wait_until_whole(connection)
                sink.sendall(chunk)
        # A cut also holds back the end of a connection.
        self._wait_until_whole(connection)
        connection.close()
        with self._changed, contextlib.suppress(ValueError):
            self._connections.remove(connection)

    def _wait_until_whole(self, connection: _Connection) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_cut(connection))

    def _is_cut(self, connection: _Connection) -> bool:
        return any(
            self._cuts[number].holds(is_to_zookeeper=connection.is_to_zookeeper)
            for number in connection.brokers
            if number in self._cuts
        )


class _Connection:
    """A relayed connection: the brokers at its ends, the client's port, and whether it leads to ZooKeeper."""

    def __init__(
        self, client: socket.socket, client_port: int, brokers: set[int], *, is_to_zookeeper: bool
    ) -> None:
        self.client = client
        self.client_port = client_port
        self.brokers = brokers
        self.is_to_zookeeper = is_to_zookeeper
        self.server: socket.socket | None = None

    def close(self) -> None:
        for end in (self.client, self.server):
            if end is not None:
                _end(end)


def _end(end: socket.socket) -> None:
    """Close a socket, and wake the thread that waits on it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def local_ports(pid: int) -> set[int]:
    """Local TCP ports of a process's IPv4 connections."""
    inodes = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # The descriptor was closed meanwhile.
                kind, _, inode = os.readlink(descriptor).partition(":")
                if kind == "socket":
                    inodes.add(inode.strip("[]"))
    ports = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports
