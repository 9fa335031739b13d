"""A fetch without a session: all its partitions are read and returned together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter

from holdfast_log.broker.replication.fetch_sessions import NO_SESSION
from holdfast_log.broker.replication.partition import CONSUMER_ID
from holdfast_log.broker.replication.reads import AnswerReads, Read, ReadLimits, read_all
from holdfast_log.broker.replication.replicas import Replicas

_is_final = attrgetter("is_final")


SHARED_KEYS_MAX = 64
"""Most partitions of which a fetch counts what it needs of each; one of more is checked at each change."""


def must_wait(reads: Sequence[Read], total: int, limits: ReadLimits) -> bool:
    """Whether a fetch that has read `total` bytes waits for more."""
    if total >= limits.min_bytes or limits.max_wait_ms <= 0 or not reads:
        return False
    return not any(map(_is_final, reads))


def counted_bytes(replicas: Replicas, read: Read) -> int | None:
    """How many bytes this broker had appended to a partition when it was read; None if that is unknown, or if
    some of them were not visible yet."""
    partition = replicas.find(read.topic, read.wanted.partition)
    if partition is None or read.read is None or read.read.end_offset != partition.log.log_end_offset:
        return None
    return partition.log.written_bytes


def share(missing: int, partitions: int) -> int:
    """What one of the partitions must have grown by, if all together have grown by `missing` bytes."""
    return -(-missing // partitions)


class PlainFetch:
    """A waiting fetch without a session, which has read `total` bytes.

    `answer` is called once there are `min_bytes` or an error, or the fetch's time has passed.
    """

    __slots__ = ("_answer", "_by_key", "_counted", "_limits", "_reads", "_replica_id", "_replicas", "_total")

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
        self._counted: dict[Hashable, int | None] = {}
        self._by_key: dict[Hashable, Read] = {reads[0].key: reads[0]}
        if len(reads) > 1:
            self._by_key = {read.key: read for read in reads}

    def wait(self, connection: int) -> None:
        """Wait, until `connection` closes at the latest."""
        replicas = self._replicas
        waiting = replicas.readers if self._replica_id == CONSUMER_ID else replicas.followers
        keys, max_wait_ms = list(self._by_key), self._limits.max_wait_ms
        if len(keys) > SHARED_KEYS_MAX or self._limits.min_bytes <= 1 or self._replica_id != CONSUMER_ID:
            waiting.park(keys, max_wait_ms, self.look, self.finish, connection, reads_from=self._reads_from)
        else:
            for key, read in self._by_key.items():
                self._counted[key] = counted_bytes(self._replicas, read)
            waiting.park(
                keys, max_wait_ms, self.look, self.finish, connection, self._needed_bytes, self._reads_from
            )

    def _reads_from(self, key: Hashable) -> int:
        return self._by_key[key].wanted.fetch_offset

    def _needed_bytes(self, key: Hashable) -> int | None:
        """How many bytes this broker must have appended to a partition before the fetch is worth a look.

        If no partition has its share of the missing bytes, all together lack some. None if that is unknown.
        """
        counted = self._counted.get(key)
        if counted is None:
            return None
        return counted + share(self._limits.min_bytes - self._total, len(self._by_key))

    def look(self, key: Hashable) -> bool:
        """Answer if the partition that was woken completes the fetch, and return whether it does. Reads only
        that one, so that the cost does not grow with the number fetched."""
        read, limits = self._by_key[key], self._limits
        before = read.size
        read_all(self._replicas, [read], limits.max_bytes, self._replica_id)
        self._total += read.size - before
        self._counted[key] = counted_bytes(self._replicas, read)
        if not read.is_final and self._total < limits.min_bytes:
            return False
        if len(self._reads) > 1:
            self.finish()
        else:
            self._answer(NO_SESSION, self._reads)
        return True

    def finish(self) -> None:
        """Answer with what there is."""
        read_all(self._replicas, self._reads, self._limits.max_bytes, self._replica_id)
        self._answer(NO_SESSION, self._reads)
