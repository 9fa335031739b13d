"""An administrator who moves replicas between the log directories of their brokers (KIP-113)."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.sim.client import Client, Surroundings
from tests.sim.cluster import LOG_DIRECTORIES, Cluster
from tests.sim.history import TopicPartition

_BACK_SHARE = 0.3
_BACK_S_MAX = 0.3
"""How often a move is asked back, and how soon: it takes about as long."""
_ANSWERS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""No directory is unknown, and everybody may ask."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Where a broker's process, number `life`, was last asked to have a replica, which it has confirmed."""

    partition: Partition
    life: int
    directory: str


class ReplicaMover(Client):
    """Asks brokers, one request at a time, about every `pause_s` seconds."""

    def __init__(self, around: Surroundings, name: str, cluster: Cluster, pause_s: float) -> None:
        super().__init__(around, name)
        self.wishes: dict[tuple[int, TopicPartition], Wish] = {}
        """By broker and partition. There is none while it is not known whether a request was carried out."""
        self.is_moving = True
        self._cluster = cluster
        self._pause_s = pause_s

    def begin(self) -> None:
        super().begin()
        self._ask_later()

    def _ask_later(self) -> None:
        self.later(self.rng.expovariate(1 / self._pause_s), self._choose)

    def _choose(self) -> None:
        if not self.is_moving:
            return
        known = [(topic, number) for topic in self.present for number in self.topics[topic].leaders]
        brokers = self.brokers()
        if not known or not brokers:
            self._ask_later()
            return
        broker_id, at = self.rng.choice(sorted(brokers)), self.rng.choice(sorted(known))
        self._ask(broker_id, at, self.rng.choice(LOG_DIRECTORIES))

    def _ask(self, broker_id: int, at: TopicPartition, path: str) -> None:
        address = self.address_of(broker_id)
        if address is None:
            self._ask_later()
            return
        topic = AlterReplicaLogDirTopic(name=at[0], partitions=[at[1]])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        life = self.life_of(address)
        self.wishes.pop((broker_id, at), None)
        self.send(address, request).addCallbacks(
            self._answered, self._failed, callbackArgs=(broker_id, address, life, at, path)
        )

    def _failed(self, failure: Failure) -> None:
        self.refresh()
        self._ask_later()

    def _answered(
        self,
        response: AlterReplicaLogDirsResponse,
        broker_id: int,
        address: Address,
        life: int,
        at: TopicPartition,
        path: str,
    ) -> None:
        self.history.operations += 1
        code = ErrorCode(response.results[0].partitions[0].error_code)
        if code not in _ANSWERS:
            self.history.violation(f"{self.name} could not move {at} of broker {broker_id}: {code.name}")
        partition = self._cluster.machine(broker_id).partition(at)
        if code is ErrorCode.NONE and partition is not None and self.life_of(address) == life:
            self.wishes[broker_id, at] = Wish(partition, life, path)
        if code is ErrorCode.NONE and self.rng.random() < _BACK_SHARE:
            (other,) = {*LOG_DIRECTORIES} - {path}
            self.later(self.rng.uniform(0.0, _BACK_S_MAX), self._ask, broker_id, at, other)
        else:
            self._ask_later()
