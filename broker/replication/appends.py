"""Appends of one request: all are prepared, then all admitted, then all appended, then awaited.

The order matters: all partitions are checked before the first append, so that a failed condition on one
partition can refuse the whole request (KIP-27).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast_log.broker.log.append import AppendOrigin, AppendResult, PreparedAppend
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.broker.log.preparation import prepare_append
from holdfast_log.broker.log.validation import Examined
from holdfast_log.broker.replication.admission import MakeWay, Origin, RequestFence
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.protocol.errors import AppendIdUnknownError, BrokerError, ErrorCode, OffsetMismatchError
from holdfast_log.protocol.messages.produce import KeyVersion
from holdfast_log.protocol.schema import ZERO_UUID
from holdfast_log.protocol.topic_partition import TopicPartition

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
NO_EXPECTATION = -1
"""Expected offset of a client that sets no condition."""
ANY_EPOCH = -1
UNSAID = -1
UNNUMBERED = -1
"""Attempt of a client that does not number its attempts."""


class Condition(NamedTuple):
    """The log end offset that a client expects (`NO_EXPECTATION` for any), the expected leader epoch of the
    last record, the id of the topic that the client means (ZERO_UUID for any of that name), and the versions
    that it expects of records' keys.

    `append_id`: if the log has an append with this id, the batch is a repetition, and the condition is not
    judged. `id_unused_before`: the client knows that the log has none before this offset; `UNSAID` for a
    client that decides by itself what a refusal without the id means.
    """

    expected_offset: int
    expected_leader_epoch: int = ANY_EPOCH
    attempt: int = UNNUMBERED
    topic_id: UUID = ZERO_UUID
    versions: Sequence[KeyVersion] = ()
    append_id: bytes | None = None
    id_unused_before: int = UNSAID


class Append:
    """Batches for one partition, and the outcome of their append; `error` is set if it has failed.

    Batches from the broker itself (`AppendOrigin.COORDINATOR`) need no admission.
    """

    __slots__ = (
        "condition",
        "error",
        "examined",
        "fence",
        "index",
        "is_kept",
        "judged_epoch",
        "make_way",
        "origin",
        "partition",
        "prepared",
        "records",
        "result",
        "settles_at",
        "source",
        "topic",
        "unverified",
        "verified_at",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        records: memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        condition: Condition | None = None,
        fence: RequestFence | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.records = records
        self.origin = origin
        self.partition: Partition | None = None
        self.prepared: PreparedAppend | None = None
        self.result: AppendResult | None = None
        self.error: BrokerError | None = None
        self.condition = condition
        self.fence = fence
        self.make_way: MakeWay | None = None
        """What has to be done before these batches may land; None for nothing."""
        self.source = UNKNOWN_SOURCE
        """Who introduces a producer that the log does not know with these batches."""
        self.judged_epoch = ANY_EPOCH
        """Leader epoch of the partition in which its condition was judged."""
        self.examined: Examined | BrokerError | None = None
        """What was found in the records, or why they are refused; None if they were not examined yet."""
        self.verified_at: int | None = None
        """The last marker of its producer in the log when its coordinator confirmed the transaction that the
        batches would begin; None if nobody has."""
        self.unverified: BrokerError | None = None
        """Why the coordinator did not."""
        self.is_kept = False
        self.settles_at: int | None = None
        """Offset that must be committed before the client is answered, for a condition that failed or that
        held without batches to append; None for any other append."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def is_guard(self) -> bool:
        """Whether this is a condition without batches, on which the request's other appends depend."""
        return self.condition is not None and not self.records

    @property
    def is_duplicate(self) -> bool:
        """Whether the log already has these batches, from an earlier attempt."""
        return self.prepared is not None and self.prepared.duplicate is not None

    @property
    def is_repeat(self) -> bool:
        """Whether the log already has an append with this one's id, from this or another process."""
        return self.prepared is not None and self.prepared.is_repeat

    def prepare(self, partition: Partition, acks: int, date_ms: int) -> None:
        """Check that this broker leads `partition` and may append the batches; sets `error` if not."""
        try:
            role = partition.role
            if not isinstance(role, Leadership):
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            settings = partition.log.settings
            if acks == ACKS_ALL and len(role.isr) < settings.min_insync_replicas:
                raise BrokerError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(role.isr)} in-sync replicas, min.insync.replicas is "
                    f"{settings.min_insync_replicas}",
                )
            self.partition = partition
            if self.condition is not None and self.is_guard:
                self.settles_at = partition.log.log_end_offset
                return
            append_id = None if self.condition is None else self.condition.append_id
            self.prepared = prepare_append(
                partition.log, self.records, date_ms, self.origin, append_id, self.examined, self.verified_at
            )
            if settings.check_expected_offsets and self.condition is None:
                self._expect_base_offset(self.prepared)
        except BrokerError as error:
            if error.code == ErrorCode.INVALID_TXN_STATE and self.unverified is not None:
                error = self.unverified
            self.fail(error)

    def keep(self) -> None:
        """Copy the records: the buffer of the request is used again once its handler has returned."""
        if not self.is_kept:
            self.records = memoryview(bytearray(self.records))
            self.is_kept = True

    def begin_again(self) -> None:
        """Forget what was found when the append was prepared, admitted and judged: it is all done again."""
        self.partition = self.prepared = self.error = self.settles_at = self.make_way = None
        self.judged_epoch = ANY_EPOCH

    def fail(self, error: BrokerError) -> None:
        """Record the reason of failure, without its traceback, which would create a reference cycle that
        lives until the next garbage collection."""
        self.error = error.with_traceback(None)

    def _expect_base_offset(self, prepared: PreparedAppend) -> None:
        """Set the base offset in the client's batch as the expected log end offset, unless it is -1
        (KIP-27)."""
        expected_offset = prepared.headers[0].base_offset
        if self.origin is AppendOrigin.CLIENT and expected_offset != NO_EXPECTATION:
            self.condition = Condition(expected_offset)

    def admit(self, origin: Origin | None, acks: int) -> None:
        """Check the partition's owner: by the fence if there is one, otherwise by the connection. A retry of
        an append that succeeded needs no admission."""
        partition = self.partition
        if partition is None or self.origin is AppendOrigin.COORDINATOR or self.is_duplicate:
            return
        if self.fence is not None:
            self._admit_fenced(partition, self.fence, acks)
            return
        if self.prepared is None or partition.admission is None:
            return
        try:
            self.make_way = partition.admission.admit(origin, acks)
        except BrokerError as error:
            self.fail(error)

    def _admit_fenced(self, partition: Partition, fence: RequestFence, acks: int) -> None:
        """Check the fence, also of a guard, which appends nothing."""
        if self.error is not None:
            return
        try:
            partition.required_fence_admission().admit_append(fence, acks)
        except BrokerError as error:
            self.settles_at = None
            self.fail(error)

    def append(self, date_ms: int) -> None:
        """Write the batches into the log, unless the append has failed or is a guard."""
        if self.error is not None or (self.condition is not None and self.is_guard):
            return
        assert self.partition is not None and self.prepared is not None
        log = self.partition.log
        if self.source:
            log.producers.introduce(self.prepared.headers[0].producer_id, self.source, date_ms)
        try:
            self.result = result = log.append_prepared(self.prepared, self.partition.leader_epoch, date_ms)
        except BrokerError as error:
            self.fail(error)
            return
        first_offset, last_offset, _, _, is_duplicate = result
        traffic = self.partition.traffic
        traffic.appends += 1
        if not is_duplicate:
            traffic.messages_in += last_offset - first_offset + 1
            traffic.bytes_in += len(self.records)

    def is_settled(self, acks: int) -> bool:
        """Whether the append may be answered: it failed, or is as durable as `acks` requires."""
        if self.settles_at is not None:
            return self._is_condition_settled(self.settles_at)
        if self.error is not None or acks == ACKS_NONE:
            return True
        partition, result = self.partition, self.result
        assert partition is not None and result is not None
        role = partition.role
        if not isinstance(role, Leadership):
            self.error = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return True
        settings = partition.log.settings
        if acks == ACKS_LEADER:
            return not settings.flush_before_ack or partition.log.recovery_point > result.last_offset
        if len(role.isr) < settings.min_insync_replicas:
            # The high watermark cannot rise until enough replicas are in sync, so answer before the timeout.
            self.error = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            return True
        return partition.high_watermark > result.last_offset

    def _is_condition_settled(self, offset: int) -> bool:
        """Whether the log is committed up to `offset`, against which the condition was judged, and no other
        log can be committed in its place."""
        partition = self.partition
        assert partition is not None
        if not isinstance(partition.role, Leadership):
            self.error, self.settles_at = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), None
            return True
        return partition.high_watermark >= offset and partition.role.is_followed

    def ids_known_from(self) -> int:
        """The offset from which on the log remembers all append ids, for the refusal of an append with one;
        -1 for an append without."""
        if self.partition is None or self.condition is None or self.condition.append_id is None:
            return NO_EXPECTATION
        return self.partition.log.producers.append_ids.known_from

    def log_end(self) -> tuple[int, int]:
        """(end offset, leader epoch of the record before it), for the response to a condition.

        The end offset is the one after this append's last record, or the log's if nothing was appended.
        """
        error, partition = self.error, self.partition
        if isinstance(error, OffsetMismatchError | AppendIdUnknownError):
            return error.next_offset, error.last_leader_epoch
        assert partition is not None
        if self.result is not None:
            next_offset = self.result.last_offset + 1
        else:
            assert self.settles_at is not None
            next_offset = self.settles_at
        return next_offset, partition.log.epochs.epoch_at(next_offset - 1)
