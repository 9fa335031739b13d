"""The roles of this broker's replicas: the controller assigns them; a failed log directory ends them.

All calls are made on the reactor's thread. `Partition` decides; `Roles` creates and deletes logs, and
notifies fetchers and waiting requests.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from holdfast_log.broker.cluster.metadata_cache import ZERO_ID
from holdfast_log.broker.log.manager import LogManager
from holdfast_log.broker.log.names import shortened
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.pause import pause
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

NO_LEADER_EPOCH = -1
"""Leader epoch in StopReplica: skip the check of the leader epoch."""
EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica: the topic is being deleted; skip the check of the leader epoch."""

_WORK_PER_TURN = 256
_WORK_OF_NEW_REPLICA = 128
"""Cost of creating a log, in units of the cost of beginning a role, about 20 µs."""
_STOPS_PER_TURN = 16
"""Replicas that are stopped in one turn. One whose log is deleted takes about 150 µs."""


@dataclass(slots=True)
class _Begun:
    """Partitions in which this broker begins a role because of one LeaderAndIsr request."""

    leading: list[Partition] = field(default_factory=list)
    following: list[Partition] = field(default_factory=list)
    missing: list[TopicPartition] = field(default_factory=list)
    """Partitions in which it begins none, because their logs are lost."""


class Copier(Protocol):
    """Copies from leaders: `Fetchers`."""

    def follow(self, partition: Partition) -> None:
        """Start to copy a partition from its leader, in its leader epoch."""
        ...

    def forget(self, partition: Partition) -> None:
        """Stop copying a partition. No effect if it is not copied."""
        ...


class Roles:
    """Begins and ends the roles of this broker's replicas."""

    def __init__(self, replicas: Replicas, logs: LogManager, copier: Copier, clock: Clock) -> None:
        self.controller_epoch = -1
        self._replicas = replicas
        self._logs = logs
        self._copier = copier
        self._clock = clock
        self._is_stopped = False

    def stop(self) -> None:
        """Stop applying requests of controllers, because the logs are about to be closed."""
        self._is_stopped = True

    def apply_leader_and_isr(
        self, request: LeaderAndIsrRequest, check_current: Callable[[], None] = lambda: None
    ) -> Deferred[LeaderAndIsrResponse]:
        """Apply the leader and the in-sync set of each partition, unless the controller has been replaced.

        A request that creates many logs, or begins very many roles, takes several reactor turns, during which
        the caller must not apply another request of the controller. `check_current` is called before every
        turn; if it raises an error, the work stops and the Deferred fails.
        """
        if request.controller_epoch < self.controller_epoch:
            return succeed(LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, topics=[]))
        self.controller_epoch = request.controller_epoch
        return ensureDeferred(self._apply_states(request, check_current))

    async def _apply_states(
        self, request: LeaderAndIsrRequest, check_current: Callable[[], None]
    ) -> LeaderAndIsrResponse:
        begun = _Begun()
        topics: list[LeaderAndIsrTopicError] = []
        work = 0
        try:
            for topic in request.topic_states:
                errors: list[LeaderAndIsrPartitionError] = []
                topics.append(LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors))
                for state in topic.partition_states:
                    if work >= _WORK_PER_TURN:
                        work = 0
                        await pause(self._clock)
                        self._check_running()
                        check_current()
                    is_known = self._replicas.find(topic.topic_name, state.partition_index) is not None
                    work += 1 if is_known else _WORK_OF_NEW_REPLICA
                    code = self._apply_state(topic, state, begun)
                    errors.append(
                        LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=code)
                    )
        finally:
            # Last, for all partitions together: the leaders got their requests at the same time and have
            # begun by now; earlier fetches would fail.
            for partition in begun.following:
                self._copier.follow(partition)
        if begun.leading:
            _log_leading(begun.leading)
        if begun.missing:
            _log_missing(begun.missing)
        return LeaderAndIsrResponse(error_code=ErrorCode.NONE, topics=topics)

    def _check_running(self) -> None:
        if self._is_stopped:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH, "this broker is stopping")

    def _apply_state(
        self, topic: LeaderAndIsrTopicState, state: LeaderAndIsrPartitionState, begun: _Begun
    ) -> ErrorCode:
        assignment = LeaderAndIsr(
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.partition_epoch,
            tuple(state.replicas),
            tuple(state.adding_replicas),
            tuple(state.removing_replicas),
            tuple(state.eligible_leader_replicas),
        )
        try:
            self._apply(
                topic.topic_name, topic.topic_id, state.partition_index, assignment, state.is_new, begun
            )
        except BrokerError as error:
            return error.code
        return ErrorCode.NONE

    def _apply(
        self,
        topic: str,
        topic_id: uuid.UUID,
        index: int,
        assignment: LeaderAndIsr,
        is_new: bool,
        begun: _Begun,
    ) -> None:
        """Apply an assignment; the caller starts the copying of partitions that begin to follow."""
        if self._replicas.local_id not in assignment.replicas:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition = self._replicas.find(topic, index)
        if partition is None:
            if not is_new:
                self._check_not_lost(TopicPartition(topic, index), topic_id, assignment, begun)
            partition = self._create(topic, topic_id, index, is_new)
        if partition.is_offline:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        if ZERO_ID != partition.topic_id != topic_id != ZERO_ID:
            raise BrokerError(ErrorCode.INCONSISTENT_TOPIC_ID)
        if assignment.leader_epoch < partition.leader_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if partition.is_withdrawing:
            self._withdraw(partition, assignment)
        if assignment.leader == self._replicas.local_id:
            if partition.is_resigning and partition.has_successor(assignment.isr, assignment.eligible):
                # The controller then treats this replica as offline and elects another one (KIP-112).
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
            self._copier.forget(partition)
            begins = partition.lead(assignment, self._replicas.monotonic_ms())
            # Recovered or copied records beyond the recovery point may not be durable yet.
            self._replicas.grown(partition)
            if begins:
                begun.leading.append(partition)
                self._replicas.role_changed(partition)
        elif partition.follow(assignment):
            self._copier.forget(partition)
            begun.following.append(partition)
            self._replicas.role_changed(partition)
        self._replicas.wake_all(partition)

    def _withdraw(self, partition: Partition, assignment: LeaderAndIsr) -> None:
        """Raises BrokerError with KAFKA_STORAGE_ERROR while a replica that must truncate inside its damage is
        counted on. On this error the controller treats it as offline: it removes it from the in-sync set and
        from the eligible replicas, except where no other replica is in sync."""
        local_id = self._replicas.local_id
        is_in_sync = local_id in assignment.isr and len(assignment.isr) > 1
        if is_in_sync or local_id in assignment.eligible:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        partition.is_withdrawing = False

    def _check_not_lost(
        self, partition: TopicPartition, topic_id: uuid.UUID, assignment: LeaderAndIsr, begun: _Begun
    ) -> None:
        """Raises BrokerError with KAFKA_STORAGE_ERROR if this replica leads or is in sync, but lost its log.

        An empty log in its place would make the other replicas truncate theirs. On this error the controller
        removes the replica from the in-sync set. Outside the set an empty log is harmless: it is filled from
        the leader. A partition's only replica begins with an empty log if log.dirs.lost names a directory.
        """
        local_id, logs = self._replicas.local_id, self._logs
        is_counted_on = local_id == assignment.leader or local_id in assignment.isr
        is_alone = assignment.replicas == (local_id,) and bool(logs.lost)
        if is_counted_on and not is_alone and logs.may_have_lost(partition, topic_id):
            begun.missing.append(partition)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    def _create(self, topic: str, topic_id: uuid.UUID, index: int, is_new: bool) -> Partition:
        log = self._logs.get_or_create(TopicPartition(topic, index), topic_id, is_new=is_new)
        partition = Partition(
            topic, index, topic_id, self._replicas.local_id, log, self._replicas.is_eligible
        )
        partition.restore_high_watermark(self._logs.high_watermark(log.topic_partition))
        self._replicas.add(partition)
        return partition

    def apply_stop_replica(
        self, request: StopReplicaRequest, check_current: Callable[[], None] = lambda: None
    ) -> Deferred[StopReplicaResponse]:
        """End the roles of partitions, and delete the logs that the request says to delete. Many of them take
        several turns, as those of `apply_leader_and_isr` do."""
        if request.controller_epoch < self.controller_epoch:
            stale = ErrorCode.STALE_CONTROLLER_EPOCH
            return succeed(StopReplicaResponse(error_code=stale, partition_errors=[]))
        self.controller_epoch = request.controller_epoch
        return ensureDeferred(self._stop_all(request, check_current))

    async def _stop_all(
        self, request: StopReplicaRequest, check_current: Callable[[], None]
    ) -> StopReplicaResponse:
        errors: list[StopReplicaPartitionError] = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                if errors and len(errors) % _STOPS_PER_TURN == 0:
                    await pause(self._clock)
                    self._check_running()
                    check_current()
                code = self._stop(topic.topic_name, topic.topic_id, state)
                errors.append(
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        return StopReplicaResponse(error_code=ErrorCode.NONE, partition_errors=errors)

    def _stop(self, topic: str, topic_id: uuid.UUID, state: StopReplicaPartitionState) -> ErrorCode:
        index = state.partition_index
        partition = self._replicas.find(topic, index)
        log = self._logs.find(TopicPartition(topic, index))
        known = ZERO_ID if log is None or log.topic_id is None else log.topic_id
        if ZERO_ID not in (topic_id, known) and topic_id != known:
            # A late copy of a request about a topic that was deleted and created again since.
            _log.info("Not stopping %s-%d: the topic has been created again since", topic, index)
            return ErrorCode.NONE
        if partition is not None:
            if partition.is_offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            unchecked = state.leader_epoch in (NO_LEADER_EPOCH, EPOCH_DURING_DELETE)
            if not unchecked and state.leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._copier.forget(partition)
            partition.stop()
            partition.is_deleted = state.leader_epoch == EPOCH_DURING_DELETE
            self._replicas.role_changed(partition)
            self._replicas.remove(partition)
            self._logs.know_high_watermark(partition.key, partition.high_watermark)
            self._replicas.wake_all(partition)
        if state.delete_partition:
            try:
                self._logs.delete(TopicPartition(topic, index))
            except BrokerError as error:
                return error.code
        return ErrorCode.NONE

    def directory_failed(self, path: str) -> None:
        """End the roles of all partitions in a failed log directory. `LogManager` has logged the failure."""
        for partition in list(self._replicas):
            if partition.is_offline and partition.role is not None:
                self._copier.forget(partition)
                partition.stop()
                self._replicas.role_changed(partition)
                self._replicas.wake_all(partition)


def _log_leading(begun: Sequence[Partition]) -> None:
    """Log one line for all partitions: ten thousand lines would delay clients."""
    first = begun[0]
    more = f", and {len(begun) - 1} more partitions" if len(begun) > 1 else ""
    _log.info("Leading %s-%d in leader epoch %d%s", first.topic, first.index, first.leader_epoch, more)
    for partition in begun if _log.isEnabledFor(logging.DEBUG) else ():
        _log.debug(
            "Leading %s-%d in leader epoch %d", partition.topic, partition.index, partition.leader_epoch
        )


def _log_missing(missing: Sequence[TopicPartition]) -> None:
    """Log one line for all partitions of a lost directory."""
    _log.error(
        "The logs of %s are missing, though these replicas are in sync: they stay offline until the "
        "controller removes them from the in-sync sets, or their log directory is mounted again",
        shortened(missing),
    )
