"""The environment of a broker: a real process or a simulation provides it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_log.broker.log.disk import Disk
from holdfast_log.broker.network.handshake import ClusterSecret
from holdfast_log.broker.network.interfaces import Network
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.broker.network.tls.listeners import TlsListeners
from holdfast_log.broker.network.turns import SendingTurn
from holdfast_log.broker.requests.authorization import Authorizer
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.zookeeper.interface import ZooKeeper


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

    `clock` times intervals, and nobody can set it; `date_ms` is the time of day, which an administrator may
    set. `boot` identifies this boot of the machine; None if the system has no such id. `secret` is what only
    the brokers of the cluster know; None if brokers need not prove who they are. `authorizer` decides what
    clients may do; None: everything. `tls` are the listeners with TLS; None: there are none. `sending` is the
    reactor's, if it reads from several sockets in a turn. In `rotation` all work that can wait takes turns,
    that of `tls` too; None: the broker has one of its own.
    """

    clock: Clock
    disk: Disk
    zookeeper: ZooKeeper
    network: Network
    workers: Workers
    random: random.Random
    date_ms: TimeOfDay
    descriptors: Descriptors = Descriptors()
    boot: str | None = None
    secret: ClusterSecret | None = None
    authorizer: Authorizer | None = None
    tls: TlsListeners | None = None
    sending: SendingTurn | None = None
    rotation: Rotation | None = None

    @property
    def secure(self) -> Mapping[str, Network]:
        """The networks over TLS, by the names of the listeners that use them; the others use `network`."""
        return {} if self.tls is None else self.tls.networks
