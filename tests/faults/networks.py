"""The networks that a cell's brokers run in, and that can cut one of them off from all others.

A cut drops all traffic in both directions without a reset: connections stay open and silent. In Linux network
namespaces the broker's virtual cable is taken down. Where namespaces are not permitted, a relay in front of
each listener stops relaying.
"""

from __future__ import annotations

from typing import Protocol

from holdfast_log.broker.tools.place import Place, on_loopback
from holdfast_log.coordinator.tools.zookeeper_process import HOST


class Network(Protocol):
    """A network of brokers numbered from 1. ZooKeeper and the clients share one central host."""

    host: str
    """Address of the central host."""

    def place(self, number: int, zookeeper_connect: str) -> Place:
        """The place for broker `number`. Call it once for each broker."""
        ...

    def cut(self, number: int, pid: int) -> None:
        """Drop all traffic to and from broker `number`, whose process id is `pid`."""
        ...

    def heal(self, number: int) -> None:
        """End the cut of broker `number`."""
        ...

    def close(self) -> None: ...


class Loopback:
    """All processes on this machine's loopback interface. Cuts are not possible."""

    host = HOST

    def place(self, number: int, zookeeper_connect: str) -> Place:
        return on_loopback(zookeeper_connect)

    def cut(self, number: int, pid: int) -> None:
        raise NotImplementedError("a broker on loopback cannot be cut off")

    def heal(self, number: int) -> None:
        raise NotImplementedError("a broker on loopback cannot be cut off")

    def close(self) -> None:
        pass
