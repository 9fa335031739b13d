"""Appends of one request: all prepared, then all admitted, then all appended, then awaited.

The order matters. Nothing of a request is in a log before all of it has been judged, so that a condition on
one partition can refuse the rest (seed kip-27-conditional-publish).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.log.append import AppendOrigin, AppendResult, PreparedAppend
from broker.replication.admission import Origin
from broker.replication.leadership import Leadership
from broker.replication.partition import Partition
from coordinator.topic_rules import INTERNAL_TOPICS
from protocol.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from broker.replication.replicas import Replicas

ACKS_ALL = -1
ACKS_LEADER = 1
ACKS_NONE = 0


class Append:
    """What is appended to one partition, and what becomes of it. `error` is set where it failed.

    What the broker itself appends (`AppendOrigin.COORDINATOR`) nobody's admission is asked for.
    """

    __slots__ = ("error", "index", "origin", "partition", "prepared", "records", "result", "topic")

    def __init__(
        self, topic: str, index: int, records: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> None:
        self.topic = topic
        self.index = index
        self.records = records
        self.origin = origin
        self.partition: Partition | None = None
        self.prepared: PreparedAppend | None = None
        self.result: AppendResult | None = None
        self.error: BrokerError | None = None

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
            self.prepared = partition.log.prepare_append(self.records, origin=self.origin, now_ms=now_ms)
            self.partition = partition
        except BrokerError as error:
            self.error = error

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
        if self.error is not None:
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
