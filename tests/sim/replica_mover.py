"""An administrator who moves replicas between the log directories of their brokers (KIP-113)."""

from __future__ import annotations

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from tests.sim.client import Client, Surroundings
from tests.sim.cluster import LOG_DIRECTORIES
from tests.sim.history import TopicPartition

_BACK_SHARE = 0.3
_BACK_S_MAX = 0.3
"""How often a move is asked back, and how soon: it takes about as long."""
_OPPOSITE_SHARE = 0.5
_RETRY_S = 0.02
_TRIES = 300
"""How often the opposite is asked for of a broker that does not answer, and how many times."""
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


class ReplicaMover(Client):
    """Asks brokers, one request at a time, about every `pause_s` seconds.

    Of a broker that does not answer it often asks the opposite of the last request, again and again until
    there is an answer. One that has started again goes on with a move once it has a role for the replica: the
    answer may come before.
    """

    def __init__(self, around: Surroundings, name: str, pause_s: float) -> None:
        super().__init__(around, name)
        self.is_moving = True
        self._pause_s = pause_s
        self._last: dict[Address, tuple[TopicPartition, str]] = {}
        """What brokers have agreed to do last: they may be about to."""

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
        address = self.address_of(self.rng.choice(sorted(brokers)))
        assert address is not None
        self._ask(address, self.rng.choice(sorted(known)), self.rng.choice(LOG_DIRECTORIES))

    def _ask(self, address: Address, at: TopicPartition, path: str, tries: int = 0) -> None:
        topic = AlterReplicaLogDirTopic(name=at[0], partitions=[at[1]])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        self.send(address, request).addCallbacks(
            self._answered,
            self._failed,
            callbackArgs=(address, at, path),
            errbackArgs=(address, at, path, tries),
        )

    def _failed(self, failure: Failure, address: Address, at: TopicPartition, path: str, tries: int) -> None:
        self.refresh()
        last = self._last.pop(address, None)
        if last is not None and self.rng.random() < _OPPOSITE_SHARE:
            self._ask(address, last[0], _other(last[1]), _TRIES)
        elif tries > 1 and self.is_moving:
            self.later(_RETRY_S, self._ask, address, at, path, tries - 1)
        else:
            self._ask_later()

    def _answered(
        self, response: AlterReplicaLogDirsResponse, address: Address, at: TopicPartition, path: str
    ) -> None:
        self.history.operations += 1
        code = ErrorCode(response.results[0].partitions[0].error_code)
        if code not in _ANSWERS:
            self.history.violation(f"{self.name} could not move {at} of {address.host}: {code.name}")
        if code is ErrorCode.NONE:
            self._last[address] = (at, path)
        if code is ErrorCode.NONE and self.rng.random() < _BACK_SHARE:
            self.later(self.rng.uniform(0.0, _BACK_S_MAX), self._ask, address, at, _other(path))
        else:
            self._ask_later()


def _other(path: str) -> str:
    (other,) = {*LOG_DIRECTORIES} - {path}
    return other
