"""The usual fetch: a consumer's, without a session, of one partition.

Consumers that wait at the end of a partition all ask like this. What is the same for all that an append wakes
is found once (`Partition.begin_sharing`), and what is left for each of them takes few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from holdfast_log.broker.replication.plain_fetch import counted_bytes
from holdfast_log.broker.replication.reads import Read, ReadLimits
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.waiting import Parked
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition

AnswerRead: TypeAlias = "Callable[[Read], None]"
"""Answers a fetch of one partition."""


def read_one(replicas: Replicas, read: Read, max_bytes: int) -> int:
    """Read the only partition of a consumer's fetch, as `read_all` does. Returns the bytes read."""
    wanted = read.wanted
    if wanted.partition_max_bytes < max_bytes:
        max_bytes = wanted.partition_max_bytes
    try:
        read.read = found = replicas.read(read.topic, wanted, max_bytes, connection=read.connection)
    except BrokerError as error:
        read.fail(error)
        return 0
    return 0 if found.records is None else found.records.length


def is_over(read: Read, size: int, limits: ReadLimits) -> bool:
    """Whether a fetch that has read `size` bytes is answered now: no wait could change it, or none is
    allowed."""
    found = read.read
    return size >= limits.min_bytes or limits.max_wait_ms <= 0 or found is None or found.diverging is not None


class OneFetch(Parked):
    """A waiting fetch of one partition. `answer` is called once there are `min_bytes` or an error, or the
    fetch's time has passed."""

    __slots__ = ("_answer", "_counted", "_limits", "_read", "_replicas")

    def __init__(
        self, replicas: Replicas, read: Read, size: int, limits: ReadLimits, answer: AnswerRead
    ) -> None:
        waiting = replicas.readers
        key = TopicPartition(read.topic, read.wanted.partition)
        needed = None
        if limits.min_bytes > 1:
            needed = self._needed_bytes
            self._counted = _needed(replicas, read, size, limits)
        self._replicas = replicas
        self._read = read
        self._limits = limits
        self._answer = answer
        super().__init__(waiting, (key,), self._look, self._end, read.connection, needed)
        waiting.add(self, limits.max_wait_ms)

    def _needed_bytes(self, key: Hashable) -> int | None:
        """How many bytes this broker must have appended to the partition before the fetch is worth a look;
        None if that is unknown."""
        return self._counted

    def _look(self, key: Hashable) -> bool:
        read, limits = self._read, self._limits
        size = read_one(self._replicas, read, limits.max_bytes)
        if size < limits.min_bytes and not read.is_final:
            if limits.min_bytes > 1:
                self._counted = _needed(self._replicas, read, size, limits)
            return False
        self._answer(read)
        return True

    def _end(self) -> None:
        read_one(self._replicas, self._read, self._limits.max_bytes)
        self._answer(self._read)


def _needed(replicas: Replicas, read: Read, size: int, limits: ReadLimits) -> int | None:
    counted = counted_bytes(replicas, read)
    return None if counted is None else counted + limits.min_bytes - size
