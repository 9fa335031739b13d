"""Where a cell's brokers run, and how one of them is cut off from all others.

A cut drops everything in both directions without resetting anything: connections stay open and silent. In
network namespaces of Linux it is a cable that is pulled; where those may not be made, relays stand before
every listener and stop relaying.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from coordinator.tools.zookeeper_process import HOST, free_port


@dataclass(frozen=True, slots=True)
class Place:
    """What a broker needs to be somewhere.

    It listens on `host` and `port`, clients find it at `address`, and it finds ZooKeeper at
    `zookeeper_connect`. `launcher` starts a command there; `properties` are further ones for the broker.
    """

    host: str
    port: int
    address: str
    zookeeper_connect: str
    launcher: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


class Network(Protocol):
    """A network of brokers numbered from 1, with ZooKeeper and the clients in its middle."""

    host: str
    """The address of the middle."""

    def place(self, number: int, zookeeper_connect: str) -> Place:
        """Where broker `number` is to be. To be asked once for each."""
        ...

    def cut(self, number: int, pid: int) -> None:
        """Let nothing through to that broker or from it; `pid` is its process."""
        ...

    def heal(self, number: int) -> None:
        """Let everything through again."""
        ...

    def close(self) -> None: ...


class Loopback:
    """All processes on this machine's loopback. No cut is possible."""

    host = HOST

    def place(self, number: int, zookeeper_connect: str) -> Place:
        port = free_port()
        return Place(HOST, port, f"{HOST}:{port}", zookeeper_connect)

    def cut(self, number: int, pid: int) -> None:
        raise NotImplementedError("on loopback there is no cable to pull")

    def heal(self, number: int) -> None:
        raise NotImplementedError("on loopback there is no cable to pull")

    def close(self) -> None:
        pass
