"""Appends of one request: all prepared, then all admitted, then all appended, then awaited.

The order matters. Nothing of a request is in a log before all of it has been judged, so that a condition on
one partition can refuse the rest (KIP-27).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.append import AppendOrigin, AppendResult, PreparedAppend
from broker.replication.admission import Origin
from broker.replication.conditions import Condition
from broker.replication.leadership import Leadership
from broker.replication.partition import Partition
from coordinator.controller.topic_rules import INTERNAL_TOPICS
from protocol.errors import BrokerError, ErrorCode, OffsetMismatchError

if TYPE_CHECKING:
    from broker.replication.replicas import Replicas

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0
NO_EXPECTATION = -1
"""The offset with which a client expects nothing."""


class Append:
    """What is appended to one partition, and what becomes of it. `error` is set where it failed.

    What the broker itself appends (`AppendOrigin.COORDINATOR`) nobody's admission is asked for.
    """

    __slots__ = (
        "condition",
        "error",
        "index",
        "origin",
        "partition",
        "prepared",
        "records",
        "result",
        "settles_at",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        records: memoryview,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        condition: Condition | None = None,
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
        self.settles_at: int | None = None
        """Of a condition that did not hold, or holds without anything to append: the offset that has to be
        committed before it is answered."""

    @property
    def is_guard(self) -> bool:
        """Whether there is nothing to append: only its condition counts, for the others of the request."""
        return self.condition is not None and not self.records

    @property
    def is_duplicate(self) -> bool:
        """Whether it repeats what is in the log already."""
        return self.prepared is not None and self.prepared.duplicate is not None

    def prepare(self, replicas: Replicas, acks: int, now_ms: int) -> None:
        """Find the partition, and check the batches and the right to append them here."""
        try:
            if self.topic in INTERNAL_TOPICS and self.origin is AppendOrigin.CLIENT:
                raise BrokerError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic} is written by the brokers alone"
                )
            partition = replicas.partition(self.topic, self.index)
            leadership = partition.leadership()
            if acks == ACKS_ALL and len(leadership.isr) < partition.log.config.min_insync_replicas:
                raise BrokerError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{len(leadership.isr)} in-sync replicas, min.insync.replicas is "
                    f"{partition.log.config.min_insync_replicas}",
                )
            self.partition = partition
            if self.condition is not None and self.is_guard:
                self.settles_at = partition.log.log_end_offset
                return
            self.prepared = partition.log.prepare_append(self.records, origin=self.origin, now_ms=now_ms)
            if partition.log.config.check_expected_offsets and self.condition is None:
                self._expect_base_offset(self.prepared)
        except BrokerError as error:
            self.error = error

    def _expect_base_offset(self, prepared: PreparedAppend) -> None:
        """Take the offset that came with the records as the one that is expected; -1 expects nothing
        (KIP-27)."""
        expected_offset = prepared.headers[0].base_offset
        if self.origin is AppendOrigin.CLIENT and expected_offset != NO_EXPECTATION:
            self.condition = Condition(expected_offset)

    def admit(self, origin: Origin | None, acks: int) -> None:
        """Ask whoever guards the partition. A retry of an append that succeeded is not asked about."""
        partition, prepared = self.partition, self.prepared
        if (
            partition is None
            or prepared is None
            or partition.admission is None
            or self.origin is AppendOrigin.COORDINATOR
            or prepared.duplicate is not None
        ):
            return
        try:
            partition.admission.admit(origin, acks)
        except BrokerError as error:
            self.error = error

    def append(self, now_ms: int) -> None:
        """Put the batches into the log, unless something spoke against it."""
        if self.error is not None or (self.condition is not None and self.is_guard):
            return
        assert self.partition is not None and self.prepared is not None
        try:
            self.result = self.partition.log.append_prepared(
                self.prepared, self.partition.leader_epoch, now_ms=now_ms
            )
        except BrokerError as error:
            self.error = error

    def is_settled(self, acks: int) -> bool:
        """Whether the append may be answered: it failed, or is as safe as `acks` asks for."""
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
        config = partition.log.config
        if acks == ACKS_LEADER:
            return not config.flush_before_ack or partition.log.recovery_point > result.last_offset
        if partition.high_watermark <= result.last_offset:
            return False
        if len(role.isr) < config.min_insync_replicas:
            self.error = BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return True

    def _is_condition_settled(self, offset: int) -> bool:
        """Whether what a condition's answer rests on is committed: a refusal tells of nothing else."""
        partition = self.partition
        assert partition is not None
        if not isinstance(partition.role, Leadership):
            self.error, self.settles_at = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), None
            return True
        return partition.high_watermark >= offset

    def log_end(self) -> tuple[int, int]:
        """In answer to a condition: the offset after the log's last record, or after this append's, and the
        leader epoch of the record before it."""
        error, partition = self.error, self.partition
        if isinstance(error, OffsetMismatchError):
            return error.next_offset, error.last_leader_epoch
        assert partition is not None
        if self.result is not None:
            next_offset = self.result.last_offset + 1
        else:
            assert self.settles_at is not None
            next_offset = self.settles_at
        return next_offset, partition.log.epochs.epoch_at(next_offset - 1)
