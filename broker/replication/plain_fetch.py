"""A fetch without a session: all its partitions are read and returned together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from holdfast_log.broker.replication.fetch_sessions import NO_SESSION
from holdfast_log.broker.replication.partition import CONSUMER_ID
from holdfast_log.broker.replication.reads import AnswerReads, Read, ReadLimits, read_all
from holdfast_log.broker.replication.replicas import Replicas


def must_wait(reads: Sequence[Read], total: int, limits: ReadLimits) -> bool:
    """Whether a fetch that has read `total` bytes waits for more."""
    wait = limits.max_wait_ms > 0 and total < limits.min_bytes
    return wait and bool(reads) and not any(read.is_final for read in reads)


class PlainFetch:
    """A waiting fetch without a session, which has read `total` bytes.

    `answer` is called once there are `min_bytes` or an error, or the fetch's time has passed.
    """

    __slots__ = ("_answer", "_by_key", "_limits", "_reads", "_replica_id", "_replicas", "_total")

    def __init__(
        self,
        replicas: Replicas,
        reads: Sequence[Read],
        total: int,
        limits: ReadLimits,
        replica_id: int,
        answer: AnswerReads,
    ) -> None:
        self._replicas = replicas
        self._reads = reads
        self._total = total
        self._limits = limits
        self._replica_id = replica_id
        self._answer = answer
        self._by_key: dict[Hashable, Read] = {read.key: read for read in reads}

    def wait(self, connection: int) -> None:
        """Wait, until `connection` closes at the latest."""
        replicas = self._replicas
        waiting = replicas.readers if self._replica_id == CONSUMER_ID else replicas.followers
        waiting.park(list(self._by_key), self._limits.max_wait_ms, self._check, self._finish, connection)

    def _check(self, key: Hashable) -> bool:
        """Read only the woken partition, so that the cost does not grow with the number fetched."""
        read, limits = self._by_key[key], self._limits
        before = read.size
        read_all(self._replicas, [read], limits.max_bytes, self._replica_id)
        self._total += read.size - before
        if not read.is_final and self._total < limits.min_bytes:
            return False
        if len(self._reads) > 1:
            self._finish()
        else:
            self._answer(NO_SESSION, self._reads)
        return True

    def _finish(self) -> None:
        read_all(self._replicas, self._reads, self._limits.max_bytes, self._replica_id)
        self._answer(NO_SESSION, self._reads)
