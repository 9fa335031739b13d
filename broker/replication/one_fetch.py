"""The usual fetch: a consumer's, without a session, of one partition.

Consumers that wait at the end of a partition all ask like this. What is the same for all that an append wakes
is found once (`Partition.begin_sharing`), and what is left for each of them takes few calls.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

from holdfast_log.broker.replication.admission import NO_TOKEN
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import ReadWish
from holdfast_log.broker.replication.plain_fetch import counted_bytes
from holdfast_log.broker.replication.reads import Read
from holdfast_log.broker.replication.replica_choice import may_follow
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.usual_fetch import KeptFetch
from holdfast_log.broker.replication.waiting import Parked
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.fetch import FetchPartition

AnswerRead: TypeAlias = "Callable[[Read], None]"
"""Answers a fetch of one partition."""


def read_one(replicas: Replicas, read: Read, max_bytes: int) -> Partition | None:
    """Read the only partition of a consumer's fetch, as `read_all` does; at most `max_bytes`, where the first
    batch may be larger. Returns the partition, None if it could not be read."""
    wanted = read.wanted
    try:
        partition = replicas.partition(read.topic, wanted.partition)
        if partition.read_admission is not None or wanted.owner_token != NO_TOKEN:
            partition.admit_reader(wanted, read.connection)
        read.read = partition.read(
            wanted.fetch_offset,
            max_bytes,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            isolation=read.isolation,
            from_follower=read.from_follower and may_follow(partition, wanted),
        )
    except BrokerError as error:
        read.fail(error)
        return None
    return partition


def read_kept(replicas: Replicas, kept: KeptFetch) -> Read:
    """Read for a usual fetch that is not usual any more (`UsualFetches`)."""
    wanted = FetchPartition(
        partition=kept.index,
        current_leader_epoch=kept.leader_epoch,
        fetch_offset=kept.offset,
        partition_max_bytes=kept.max_bytes,
    )
    read = Read(kept.topic, wanted, kept.topic_id, connection=kept.owner, isolation=kept.isolation)
    read_one(replicas, read, kept.max_bytes)
    return read


def is_complete(read: Read, min_bytes: int) -> bool:
    """Whether a fetch is answered now: it has as many bytes as it needs, or a wait could not change it."""
    found = read.read
    if found is None or found.diverging is not None:
        return True
    return min_bytes <= (0 if found.records is None else found.records.length)


class OneFetch(Parked):
    """A waiting fetch of one partition. `answer` is called once there are `min_bytes` or an error, or the
    fetch's time has passed."""

    __slots__ = ("_answer", "_counted", "_min_bytes", "_partition", "_read", "_replicas", "_wish")

    def __init__(
        self,
        replicas: Replicas,
        partition: Partition,
        read: Read,
        max_bytes: int,
        min_bytes: int,
        answer: AnswerRead,
    ) -> None:
        wanted = read.wanted
        self._replicas = replicas
        self._partition = partition
        self._read = read
        self._wish: ReadWish = (
            wanted.fetch_offset, max_bytes, wanted.current_leader_epoch, wanted.last_fetched_epoch
        )  # fmt: skip
        if read.isolation:
            self._wish = (*self._wish, read.isolation)
        self._min_bytes = min_bytes
        self._answer = answer
        needed = None
        if min_bytes > 1:
            needed = self._needed_bytes
            self._counted = self._count()
        super().__init__(
            replicas.readers, (partition.key,), self._look, self._end, read.connection, needed, self._from
        )

    def _from(self, key: Hashable) -> int:
        return self._read.wanted.fetch_offset

    def _needed_bytes(self, key: Hashable) -> int | None:
        """How many bytes this broker must have appended to the partition before the fetch is worth a look;
        None if that is unknown."""
        return self._counted

    def _count(self) -> int | None:
        counted = counted_bytes(self._replicas, self._read)
        return None if counted is None else counted + self._min_bytes - self._read.size

    def _look(self, key: Hashable) -> bool:
        read, partition, wish = self._read, self._partition, self._wish
        found = None
        if partition.read_admission is None and read.wanted.owner_token == NO_TOKEN:
            found = partition.shared(wish)
        if found is not None:
            read.read = found
        else:
            read_one(self._replicas, read, wish[1])
        if not is_complete(read, self._min_bytes):
            if self._min_bytes > 1:
                self._counted = self._count()
            return False
        self._answer(read)
        return True

    def _end(self) -> None:
        read_one(self._replicas, self._read, self._wish[1])
        self._answer(self._read)
