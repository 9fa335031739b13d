"""Reads of one fetch request: as many partitions as its byte limits allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.log.batch_order import BatchOrder
from holdfast_log.broker.log.scan import valid_batches
from holdfast_log.broker.replication.admission import NO_CONNECTION
from holdfast_log.broker.replication.partition_values import PartitionRead
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.session_partitions import SessionPartition
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import FileSlice, copy_small
from holdfast_log.protocol.messages.fetch import FetchPartition
from holdfast_log.protocol.topic_partition import TopicPartition

NO_REPLICA = -1
SMALL_BYTES = 8 << 10
"""Records up to this many bytes are copied into the response: the kernel takes longer to send them from the
file."""
_COPIED_BYTES_MAX = 256 << 10
"""Maximum bytes that one response copies."""
_ABORTED_BYTES = 4 << 10
"""Bytes of records that a response has less for each aborted transaction that it names, since to name it
takes time: a response of 50 MiB names some ten thousand."""


class Read:
    """A fetch's request for one partition, and the result of the read.

    `member` is the partition's entry in the fetch session, if there is one; `connection` is the id of the
    reading connection. `isolation` is the reader's level: `READ_COMMITTED`, or 0. `from_follower`: this
    broker may serve the reader as a follower. `preferred` is the follower that it is sent to; -1: none.
    """

    __slots__ = (
        "connection", "error", "from_follower", "isolation", "member", "preferred", "read", "topic",
        "topic_id", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        wanted: FetchPartition,
        topic_id: UUID = ZERO_ID,
        member: SessionPartition | None = None,
        error: BrokerError | None = None,
        connection: int = NO_CONNECTION,
        isolation: int = 0,
    ) -> None:
        self.connection = connection
        self.isolation = isolation
        self.from_follower = False
        self.preferred = NO_REPLICA
        self.topic = topic
        self.topic_id = topic_id
        self.wanted = wanted
        self.member = member
        self.error = error
        self.read: PartitionRead | None = None

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.wanted.partition)

    def fail(self, error: BrokerError) -> None:
        """Record why the partition cannot be read, without the traceback, which would create a reference
        cycle that lives until the next garbage collection."""
        self.error = error.with_traceback(None)
        self.read = None

    @property
    def size(self) -> int:
        """Bytes of records read."""
        read = self.read
        return 0 if read is None or read.records is None else read.records.length

    @property
    def is_final(self) -> bool:
        """Whether the fetch must be answered without waiting: this partition failed, or the reader must
        truncate, or read elsewhere."""
        if self.error is not None or self.preferred != NO_REPLICA:
            return True
        read = self.read
        return read is not None and read.diverging is not None


AnswerReads: TypeAlias = "Callable[[int, Sequence[Read]], None]"
"""Answers a fetch with its session id (`NO_SESSION`: none) and the partitions of the response."""


class ReadLimits(NamedTuple):
    """Minimum and maximum bytes of a fetch, and the maximum time in ms that it waits for the minimum."""

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
    before: int = 0,
) -> int:
    """Read the partitions in order, each within what is left of `max_bytes`, of which the reads of the same
    fetch before these have taken `before` (`taken_bytes`). Returns the bytes read.

    The first batch is read whole, whatever its size (KIP-74). When no bytes are left, further partitions are
    still looked up for their high watermark; with `stops_when_full` they are not, and have no `read`. An
    aborted transaction that the response has to name takes the place of `_ABORTED_BYTES` of records.
    """
    total, named_bytes = 0, before
    # Checked once per fetch: one fetch may exceed the rate slightly.
    holds_back = replica_id >= 0 and replicas.throttle.is_over(replicas.monotonic_ms())
    for read in reads:
        wanted = read.wanted
        if read.error is not None or read.preferred != NO_REPLICA:
            continue
        if stops_when_full and total + named_bytes >= max_bytes > 0:
            read.read = None
            continue
        is_held = holds_back and _is_held_back(replicas, read, replica_id)
        left = 0 if is_held else max_bytes - total - named_bytes
        if wanted.partition_max_bytes < left:
            left = wanted.partition_max_bytes
        try:
            read.read = found = replicas.read(
                read.topic, wanted, left,
                replica_id=replica_id, min_one_batch=total == before == 0 and not is_held,
                connection=read.connection, isolation=read.isolation, from_follower=read.from_follower,
            )  # fmt: skip
        except BrokerError as error:
            read.fail(error)
            continue
        if found.records is not None:
            total += found.records.length
        if found.aborted is not None:
            named_bytes += len(found.aborted) * _ABORTED_BYTES
    return total


def taken_bytes(reads: Iterable[Read]) -> int:
    """What the results of these reads take of a fetch's limit of bytes."""
    found = [read.read for read in reads if read.read is not None]
    records = sum(each.records.length for each in found if each.records is not None)
    return records + _ABORTED_BYTES * sum(len(each.aborted) for each in found if each.aborted is not None)


def _is_held_back(replicas: Replicas, read: Read, replica_id: int) -> bool:
    """Whether the throttle withholds records of a partition from a follower."""
    partition = replicas.find(read.topic, read.wanted.partition)
    return (
        partition is not None and replicas.throttle.covers(partition) and not partition.is_in_sync(replica_id)
    )


def record_given(replicas: Replicas, reads: Iterable[Read]) -> None:
    """Count the records in the response to a follower's fetch against the throttle."""
    if not replicas.throttle.is_set:
        return
    now_ms = replicas.monotonic_ms()
    for read in reads:
        partition = replicas.find(read.topic, read.wanted.partition)
        if partition is not None:
            replicas.throttle.record(partition, read.size, now_ms)


def copy_small_records(reads: Sequence[Read]) -> None:
    """Read slices of few bytes into memory, within a limit for the whole response: they are sent together."""
    left = _COPIED_BYTES_MAX
    for read in reads:
        records = None if read.read is None else read.read.records
        if records is not None and records.length <= SMALL_BYTES and left > 0:
            copy_small(records, SMALL_BYTES)
            left -= records.length


def cold_slices(reads: Sequence[Read]) -> list[tuple[FileSlice, BatchOrder]]:
    """The slices that are not in the page cache: sending them would wait for the device. Each with what its
    batches must be like."""
    return [
        (read.read.records, read.read.unchecked)
        for read in reads
        if read.read is not None and read.read.unchecked is not None and read.read.records is not None
    ]


def warm(slices: Sequence[tuple[FileSlice, BatchOrder]]) -> list[FileSlice]:
    """Read the slices into the page cache before they are sent, and check their batches, checksums included.
    Returns the slices with damaged batches. Call it in a worker thread."""
    return [piece for piece, order in slices if not _is_sound(piece, order)]


def _is_sound(piece: FileSlice, order: BatchOrder) -> bool:
    end = piece.offset
    for header, _ in valid_batches(piece.file, piece.offset, piece.offset + piece.length):
        if end == piece.offset and header.base_offset < order.next_offset <= header.last_offset:
            order.next_offset = header.base_offset
        if order.implausible(header) is not None:
            return False
        order.passed(header)
        end = header.end
    return end == piece.offset + piece.length


def admit_again(replicas: Replicas, reads: Sequence[Read]) -> None:
    """Refuse the reads of a consumer that may not read any more. Call it when the device has answered."""
    for read in reads:
        partition = replicas.find(read.topic, read.wanted.partition)
        if partition is None or read.connection == NO_CONNECTION:
            continue
        try:
            partition.admit_reader(read.wanted, read.connection)
        except BrokerError as error:
            read.fail(error)


def refuse_damaged(replicas: Replicas, reads: Sequence[Read], damaged: Sequence[FileSlice]) -> None:
    """Refuse the reads that returned damaged slices, and have the segments examined."""
    for read in reads:
        if read.read is None or not any(read.read.records is piece for piece in damaged):
            continue
        partition = replicas.find(read.topic, read.wanted.partition)
        why = "a batch that was read from the disk is damaged"
        error = BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, why)
        if partition is not None:
            error = partition.log.suspect_at(read.wanted.fetch_offset, why)
            replicas.sessions.stir(partition.key, followers=True, consumers=True)
        read.fail(error)
