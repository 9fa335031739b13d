"""Reads of one fetch request: as many partitions as its bytes allow, and a wait for more where there is too
little."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from broker.metadata import ZERO_ID
from broker.replication.admission import NO_CONNECTION
from broker.replication.fetch_sessions import SessionPartition
from broker.replication.partition import CONSUMER_ID, PartitionRead
from broker.replication.replicas import Replicas
from broker.replication.waiting import Parked
from protocol.errors import BrokerError
from protocol.frames import FileSlice
from protocol.messages.fetch import FetchPartition


class Read:
    """What is wanted of one partition, and what it gives; `member`: its place in a session, if it has one.
    `connection` is the id of the one that reads."""

    __slots__ = ("connection", "error", "member", "read", "topic", "topic_id", "wanted")

    def __init__(
        self,
        topic: str,
        wanted: FetchPartition,
        topic_id: UUID = ZERO_ID,
        member: SessionPartition | None = None,
        error: BrokerError | None = None,
        connection: int = NO_CONNECTION,
    ) -> None:
        self.connection = connection
        self.topic = topic
        self.topic_id = topic_id
        self.wanted = wanted
        self.member = member
        self.error = error
        self.read: PartitionRead | None = None

    @property
    def key(self) -> Hashable:
        return (self.topic, self.wanted.partition)

    @property
    def size(self) -> int:
        """Bytes of records read."""
        return self.read.records.length if self.read is not None and self.read.records is not None else 0

    @property
    def is_final(self) -> bool:
        """Whether the fetch is to be answered at once for what this partition says, be it empty."""
        return self.error is not None or (self.read is not None and self.read.diverging is not None)


class ReadLimits(NamedTuple):
    """How much, and how long to wait for it."""

    min_bytes: int
    max_bytes: int
    max_wait_ms: int


def read_all(
    replicas: Replicas,
    reads: Sequence[Read],
    max_bytes: int,
    replica_id: int,
    *,
    stops_when_full: bool = False,
) -> int:
    """Read each partition within what the others before it left of `max_bytes`. Returns the bytes read.

    The first batch that there is comes whole, however large (KIP-74). Those for whom nothing is left are
    looked at all the same; with `stops_when_full` they are not, and have no `read`.
    """
    total = 0
    # Looked at once: a fetch that has begun to be answered may take the rate somewhat over its limit.
    holds_back = replica_id >= 0 and replicas.throttle.is_over(replicas.monotonic_ms())
    for read in reads:
        wanted = read.wanted
        if read.error is not None:
            continue
        if stops_when_full and total >= max_bytes > 0:
            read.read = None
            continue
        is_held = holds_back and _is_held_back(replicas, read, replica_id)
        try:
            read.read = found = replicas.read(
                read.topic,
                wanted,
                0 if is_held else min(wanted.partition_max_bytes, max_bytes - total),
                replica_id=replica_id,
                min_one_batch=total == 0 and not is_held,
                connection=read.connection,
            )
        except BrokerError as error:
            read.error = error
            read.read = None
            continue
        if found.records is not None:
            total += found.records.length
    return total


def _is_held_back(replicas: Replicas, read: Read, replica_id: int) -> bool:
    """Whether a follower is given no records of a partition for now."""
    partition = replicas.find(read.topic, read.wanted.partition)
    return (
        partition is not None and replicas.throttle.covers(partition) and not partition.is_in_sync(replica_id)
    )


def record_given(replicas: Replicas, reads: Iterable[Read]) -> None:
    """Take note of what a follower's fetch is answered with."""
    if not replicas.throttle.is_set:
        return
    now_ms = replicas.monotonic_ms()
    for read in reads:
        partition = replicas.find(read.topic, read.wanted.partition)
        if partition is not None:
            replicas.throttle.record(partition, read.size, now_ms)


def fetch(
    replicas: Replicas,
    reads: Sequence[Read],
    limits: ReadLimits,
    replica_id: int,
    answer: Callable[[], None],
) -> Parked | None:
    """Read, and call `answer` once there are `min_bytes`, an error, or no time left.

    Returns the request as it waits; None where it did not have to.
    """
    total = read_all(replicas, reads, limits.max_bytes, replica_id)
    wait = limits.max_wait_ms > 0 and total < limits.min_bytes
    if not wait or not reads or any(read.is_final for read in reads):
        answer()
        return None
    by_key = {read.key: read for read in reads}
    sizes = {key: read.size for key, read in by_key.items()}

    def check(key: Hashable) -> bool:
        """Only the partition that was woken is read again: waking costs the same however many are wanted."""
        read = by_key[key]
        read_all(replicas, [read], limits.max_bytes, replica_id)
        sizes[key] = read.size
        if not read.is_final and sum(sizes.values()) < limits.min_bytes:
            return False
        if len(reads) > 1:
            finish()
        else:
            answer()
        return True

    def finish() -> None:
        read_all(replicas, reads, limits.max_bytes, replica_id)
        answer()

    waiting = replicas.readers if replica_id == CONSUMER_ID else replicas.followers
    return waiting.park(list(by_key), limits.max_wait_ms, check, finish)


def cold_slices(reads: Sequence[Read]) -> list[FileSlice]:
    """The slices that the device, and not memory, would have to give."""
    return [
        read.read.records
        for read in reads
        if read.read is not None and read.read.is_cold and read.read.records is not None
    ]


_WARM_BYTES = 1 << 20


def warm(slices: Sequence[FileSlice]) -> None:
    """Read the slices once, so that sending them finds them in memory. To be run in a worker thread."""
    for piece in slices:
        for offset in range(piece.offset, piece.offset + piece.length, _WARM_BYTES):
            piece.file.pread(min(_WARM_BYTES, piece.offset + piece.length - offset), offset)
