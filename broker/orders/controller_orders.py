"""Carries out the controller's requests (LeaderAndIsr, UpdateMetadata, StopReplica, GetReplicaLogInfo,
YieldLeadership) in order of arrival.

A request for an earlier registration of this broker (a lower broker epoch, KIP-380), or from a controller
that has been replaced, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredLock, FirstError, fail, gatherResults, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.orders.strays import Strays
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.broker.settings.changes import TOPICS
from holdfast_log.coordinator.cluster.dynamic_configs import DynamicConfigs
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.get_replica_log_info import (
    REPLICA_LOG_INFO_MAX,
    AskedReplicas,
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    ReplicaLogInfo,
    TopicReplicaLogInfo,
)
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipRequest, YieldLeadershipResponse


class Registration(Protocol):
    """This broker's present registration in the cluster (`ClusterMembership`)."""

    @property
    def broker_epoch(self) -> int: ...


class ControllerOrders:
    """Carries out the controller's orders, from `begin` on.

    `prepare` reads what this broker must know before it leads the partitions of a LeaderAndIsr. `ordered` is
    called with the broker epoch of each LeaderAndIsr that has been applied.

    Each method fails with BrokerError STALE_BROKER_EPOCH if the order is for an earlier registration.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        replicas: Replicas,
        roles: Roles,
        dynamic_configs: DynamicConfigs,
        prepare: Callable[[LeaderAndIsrRequest], Deferred[None]],
        registration: Registration,
        strays: Strays,
        right: RightToConfirm,
        ordered: Callable[[int], None],
    ) -> None:
        self._right = right
        self._ordered = ordered
        self._metadata = metadata
        self._replicas = replicas
        self._roles = roles
        self._dynamic_configs = dynamic_configs
        self._prepare = prepare
        self._registration = registration
        self._strays = strays
        self._roles_in_order = DeferredLock()
        self._metadata_in_order = DeferredLock()
        self._roles_in_order.acquire()
        self._metadata_in_order.acquire()

    def begin(self) -> None:
        """Carry out the waiting orders and all later ones. Call it once the broker is registered: before, it
        cannot recognise orders for an earlier registration."""
        self._metadata_in_order.release()
        self._roles_in_order.release()

    # -- LeaderAndIsr ------------------------------------------------------------------------------------

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        """Lead and follow the partitions of the request."""
        return self._roles_in_order.run(refusable, self._prepare_roles, request)

    def _prepare_roles(self, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        self._check_broker_epoch(request.broker_epoch)
        # The settings of a topic new to this broker must be loaded before its logs are created.
        new = [topic.topic_name for topic in request.topic_states if not self._replicas.has(topic.topic_name)]
        reads: list[Deferred[Any]] = [self._dynamic_configs.refresh(TOPICS, name) for name in new]
        read = gatherResults([*reads, self._prepare(request)], consumeErrors=True)
        return read.addCallbacks(lambda _: refusable(self._assign, request), _registration_ended)

    def _assign(self, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        self._check_broker_epoch(request.broker_epoch)  # The broker may have registered again meanwhile.
        self._strays.before_roles(request)
        assigned = self._roles.apply_leader_and_isr(
            request, lambda: self._check_broker_epoch(request.broker_epoch)
        )
        return assigned.addCallback(self._assigned, request)

    def _assigned(self, response: LeaderAndIsrResponse, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        if response.error_code == ErrorCode.NONE:
            self._right.assigned(request, self._replicas.find)
            epoch = request.broker_epoch
            self._ordered(self._registration.broker_epoch if epoch == NO_EPOCH else epoch)
        return response

    # -- StopReplica -------------------------------------------------------------------------------------

    def stop_replica(self, request: StopReplicaRequest) -> Deferred[StopReplicaResponse]:
        """Stop the replicas in the request, and delete the logs that it lists for deletion."""
        return self._roles_in_order.run(refusable, self._stop, request)

    def _stop(self, request: StopReplicaRequest) -> Deferred[StopReplicaResponse]:
        self._check_broker_epoch(request.broker_epoch)
        return self._roles.apply_stop_replica(request, lambda: self._check_broker_epoch(request.broker_epoch))

    # -- GetReplicaLogInfo -------------------------------------------------------------------------------

    def log_info(self, request: GetReplicaLogInfoRequest) -> Deferred[GetReplicaLogInfoResponse]:
        """Say where the logs of replicas end, once all earlier orders have been carried out."""
        return self._roles_in_order.run(self._log_info, request)

    def _log_info(self, request: GetReplicaLogInfoRequest) -> GetReplicaLogInfoResponse:
        names = {partition.topic_id: partition.topic for partition in self._replicas}
        room = REPLICA_LOG_INFO_MAX
        topics = []
        for topic in request.topic_partitions or ():
            rows = [self._log_end(names.get(topic.topic_id), each) for each in topic.partitions[:room]]
            room -= len(rows)
            topics.append(TopicReplicaLogInfo(topic_id=topic.topic_id, partition_log_info=rows))
        return GetReplicaLogInfoResponse(
            broker_epoch=self._registration.broker_epoch,
            truncated=_count(request.topic_partitions or ()) > REPLICA_LOG_INFO_MAX,
            topic_partition_log_info_list=topics,
        )

    def _log_end(self, topic: str | None, index: int) -> ReplicaLogInfo:
        partition = None if topic is None else self._replicas.find(topic, index)
        if partition is None:
            return ReplicaLogInfo(partition=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.is_offline:
            return ReplicaLogInfo(partition=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return ReplicaLogInfo(
            partition=index,
            last_written_leader_epoch=partition.log.last_written_epoch,
            current_leader_epoch=partition.leader_epoch,
            log_end_offset=partition.log.log_end_offset,
            error_code=ErrorCode.NONE,
        )

    # -- YieldLeadership ---------------------------------------------------------------------------------

    def yield_leadership(self, request: YieldLeadershipRequest) -> Deferred[YieldLeadershipResponse]:
        """Stop confirming what concerns the partitions of the request, or confirm it again.

        Fails also with BrokerError STALE_CONTROLLER_EPOCH if that controller has been replaced.
        """
        return self._roles_in_order.run(refusable, self._yield, request)

    def _yield(self, request: YieldLeadershipRequest) -> YieldLeadershipResponse:
        self._check_broker_epoch(request.broker_epoch)
        if request.controller_epoch < self._roles.controller_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._right.obey(request)
        return YieldLeadershipResponse(error_code=ErrorCode.NONE)

    # -- UpdateMetadata ----------------------------------------------------------------------------------

    def update_metadata(self, request: UpdateMetadataRequest) -> Deferred[None]:
        """Apply the controller's view of the cluster. Fails with BrokerError STALE_CONTROLLER_EPOCH if that
        controller has been replaced.

        Metadata of known partitions does not wait for the preceding LeaderAndIsr, which is slow if many
        partitions change: a client that finds a leader not yet ready loses less time than one sent to a dead
        broker. Metadata of new partitions waits until this broker has created its replicas.
        """
        roles_begun = self._roles_in_order.run(self._look_for_strays, request)
        return self._metadata_in_order.run(refusable, self._update_in_order, request, roles_begun)

    def _update_in_order(self, request: UpdateMetadataRequest, roles_begun: Deferred[None]) -> Deferred[None]:
        if self._metadata.knows_partitions_of(request):
            self._update(request)
            return succeed(None)
        return roles_begun.addCallback(lambda _: refusable(self._update, request))

    def _update(self, request: UpdateMetadataRequest) -> None:
        self._check_broker_epoch(request.broker_epoch)
        if request.controller_epoch < self._metadata.controller_epoch:
            raise BrokerError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._metadata.update(request)

    def _look_for_strays(self, request: UpdateMetadataRequest) -> None:
        if self._is_stale(request.broker_epoch):
            return
        if request.controller_epoch >= self._metadata.controller_epoch:
            self._strays.after_metadata(request)

    # -- the registration of an order ----------------------------------------------------------------------

    def _check_broker_epoch(self, requested: int) -> None:
        if self._is_stale(requested):
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH)

    def _is_stale(self, requested: int) -> bool:
        return requested != NO_EPOCH and requested < self._registration.broker_epoch


def _count(topics: Sequence[AskedReplicas]) -> int:
    return sum(len(topic.partitions) for topic in topics)


def refusable(act: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
    """What `act` returns, now or later. Fails with the BrokerError that it raises.

    The error has no traceback. That would hold the frames of Deferreds that hold the error: each refused
    order would leave dozens of objects to the garbage collector.
    """
    try:
        result = act(*arguments)
    except BrokerError as error:
        return fail(error.with_traceback(None))
    return result if isinstance(result, Deferred) else succeed(result)


def _registration_ended(failure: Failure) -> Failure:
    """The ZooKeeper session ended while settings were read, and with it the registration of the order."""
    failure.trap(FirstError)
    assert isinstance(failure.value, FirstError)
    failure.value.subFailure.trap(SessionExpired)
    return Failure(BrokerError(ErrorCode.STALE_BROKER_EPOCH))
