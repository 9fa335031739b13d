"""A partition of an internal topic, written and read by the coordinator through the broker's own replicas,
like every other write with acks=all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, DeferredLock, ensureDeferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.append import AppendOrigin
from holdfast_log.broker.replication.appends import ACKS_ALL, Append
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.waiting import MAX_WAIT_MS, Parked
from holdfast_log.broker.shards.replay import LatestRecords
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.shards.effects import ProducerStamp, ShardRecord
from holdfast_log.coordinator.shards.log import NOTHING_COMMITTED, Replay, ReplayOpen
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.records import TYPICAL_OVERHEAD, BatchBuilder

_RETRY_MS = 500
"""Pause before the broker reads a damaged range again, in ms."""


@dataclass(frozen=True, slots=True)
class ShardLogSettings:
    """The codec of the batches that a coordinator writes, and the bytes that it reads at once."""

    codec: Compression
    load_bytes: int


class PartitionLog:
    """A `coordinator.shards.log.ShardLog` on one partition, for its present leader epoch.

    All logs of a broker share `reading`, so that workers read one log at a time: decoding holds Python's
    global interpreter lock, which delays the reactor.
    """

    def __init__(
        self,
        partition: Partition,
        replicas: Replicas,
        metadata: MetadataCache,
        workers: Workers,
        reading: DeferredLock,
        settings: ShardLogSettings,
    ) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._replicas = replicas
        self._metadata = metadata
        self._workers = workers
        self._reading = reading
        self._settings = settings
        self._committed_offset = 0

    # Reading

    def read_all(self, replay: Replay, replay_open: ReplayOpen) -> Deferred[None]:
        return ensureDeferred(self._read_all(replay, replay_open))

    async def _read_all(self, replay: Replay, replay_open: ReplayOpen) -> None:
        """Replay the log. No record is appended during that time: clients may not append, and the coordinator
        is loading. A marker of a transaction may be: the shard takes note of it."""
        # A broker that has just started receives its roles before the metadata of all topics.
        while not self._metadata.is_live(self._partition.local_id):
            await self._metadata.next_update()
        log = self._partition.log
        latest = LatestRecords(replay, replay_open)
        offset, end_offset = log.log_start_offset, log.log_end_offset
        while offset < end_offset:
            self._leadership()
            try:
                read = log.read(offset, self._settings.load_bytes, upper_offset=end_offset)
                if read.slice is None:
                    break
                await self._reading.run(self._workers.run, latest.take, read.slice, offset)
            except BrokerError as error:
                if log.failure is not None or log.damages:
                    raise
                if error.code is ErrorCode.CORRUPT_MESSAGE:
                    log.suspect_at(offset, str(error))
                # The scrubber examines the segment: it rebuilds a wrong index or marks the log as damaged.
                await self._pause()
                continue
            offset = read.next_offset
        await self._reading.run(self._workers.run, latest.finish)
        self._leadership()

    def _pause(self) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        waiting = self._replicas.writers
        waiting.park([self._partition.key], _RETRY_MS, lambda _: False, lambda: done.callback(None))
        return done

    # Writing

    def append(self, records: Sequence[ShardRecord], timestamp_ms: int, stamp: ProducerStamp | None) -> None:
        self._leadership()
        batches = self._batches(records, timestamp_ms, stamp)
        append = Append(
            self._partition.topic, self._partition.index, memoryview(batches), AppendOrigin.COORDINATOR
        )
        self._replicas.append([append], ACKS_ALL, None)
        if append.error is not None:
            raise append.error

    def _batches(
        self, records: Sequence[ShardRecord], timestamp_ms: int, stamp: ProducerStamp | None
    ) -> bytearray:
        """The records in one batch, or in as many as `max.message.bytes` requires."""
        bytes_max = self._partition.log.settings.max_message_bytes
        batches = bytearray()
        builder = BatchBuilder(self._settings.codec)
        for key, value in records:
            size = TYPICAL_OVERHEAD + len(key) + len(value or b"")
            if len(builder) and builder.size + size > bytes_max:
                batches += _built(builder, stamp)
                builder = BatchBuilder(self._settings.codec)
            builder.append(timestamp_ms, key, value)
        return batches + _built(builder, stamp) if batches else _built(builder, stamp)

    @property
    def leader_epoch(self) -> int:
        return self._leader_epoch

    @property
    def end_offset(self) -> int:
        return self._partition.log.log_end_offset

    @property
    def committed_offset(self) -> int:
        partition = self._partition
        role = partition.role
        if (
            not isinstance(role, Leadership)
            or role.leader_epoch != self._leader_epoch
            or not self._replicas.right_to_acknowledge.acknowledges(partition)
        ):
            return NOTHING_COMMITTED
        # Below min.insync.replicas later records do not count as committed; earlier ones still do.
        if len(role.isr) >= partition.log.settings.min_insync_replicas:
            self._committed_offset = partition.high_watermark
        return self._committed_offset

    def is_current_since(self, since_s: float) -> bool:
        partition, right = self._partition, self._replicas.right_to_acknowledge
        if not right.needs_followers:
            return True
        return right.led_at_ms(partition, self._replicas.monotonic_ms()) >= since_s * 1000

    def watch(self, check: Callable[[], bool]) -> Parked:
        # The caller has its own timeout; this one has no effect.
        return self._replicas.writers.park(
            [self._partition.key], MAX_WAIT_MS, lambda _: check(), lambda: None
        )

    def _leadership(self) -> Leadership:
        role = self._partition.leadership()
        if role.leader_epoch != self._leader_epoch:
            raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
        return role


def _built(builder: BatchBuilder, stamp: ProducerStamp | None) -> bytearray:
    """The batch; in a producer's transaction it has no sequence, since a coordinator repeats nothing."""
    if stamp is None:
        return builder.build()
    return builder.build(
        producer_id=stamp.producer_id, producer_epoch=stamp.producer_epoch, is_transactional=True
    )
