"""Where a broker runs in a network that can cut it off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port


@dataclass(frozen=True, slots=True)
class Place:
    """A broker's place in a network.

    The broker listens on `host`, for clients at `port` and for brokers at `brokers_port`, and connects to
    ZooKeeper at `zookeeper_connect`. Clients connect to `address`. `launcher` prefixes the broker's command;
    `properties` are additional broker settings.
    """

    host: str
    port: int
    address: str
    zookeeper_connect: str
    launcher: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    brokers_port: int = field(default_factory=free_port)


def on_loopback(zookeeper_connect: str, port: int | None = None) -> Place:
    """A place on this machine's loopback interface, by default on a free port. It cannot be cut off."""
    port = port or free_port()
    return Place(HOST, port, f"{HOST}:{port}", zookeeper_connect)
