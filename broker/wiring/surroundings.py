"""The environment of a broker: a real process or a simulation provides it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from broker.log.disk import Disk
from broker.network.interfaces import Network
from broker.workers import Workers
from coordinator.clock import Clock
from coordinator.zookeeper.interface import ZooKeeper


@dataclass(frozen=True, slots=True)
class Descriptors:
    """How many file descriptors a broker may use: `log_files` for logs between two operations, `connections`
    for connections that clients and other brokers open. `limit` is the process's, named in log lines."""

    limit: int = 1 << 30
    log_files: int = 1024
    connections: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A broker's environment: time, disk, network, ZooKeeper, worker threads and randomness.

    `clock` is the time of day, which an administrator may set; `monotonic_s` returns seconds since an
    arbitrary moment, and nobody can set it. `boot` identifies this boot of the machine; None if the system
    has no such id.
    """

    clock: Clock
    disk: Disk
    zookeeper: ZooKeeper
    network: Network
    workers: Workers
    random: random.Random
    monotonic_s: Callable[[], float]
    descriptors: Descriptors = Descriptors()
    boot: str | None = None

    def now_ms(self) -> int:
        return int(self.clock.seconds() * 1000)
