"""Cluster members without brokers: ZooKeeper client, membership, candidacy, controller.

`Members` is the network between them. Each broker records requests and answers as a healthy broker does,
unless a test changes its answers.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.coordinator.cluster.membership import ClusterMembership
from holdfast_log.coordinator.controller.machine import ControllerPolicy
from holdfast_log.coordinator.controller.partition_limits import PartitionLimits
from holdfast_log.coordinator.controller.service import ControllerService
from holdfast_log.coordinator.controller.topic_rules import TopicDefaults
from holdfast_log.coordinator.znodes.brokers import (
    ELIGIBLE_LEADERS,
    REPLICA_LOG_INFO,
    BrokerInfo,
    RegisteredEndpoint,
)
from holdfast_log.coordinator.zookeeper.interface import ZooKeeperSession
from holdfast_log.coordinator.zookeeper.kazoo_zookeeper import KazooZooKeeper
from holdfast_log.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    ProposedPartition,
    TopicData,
)
from holdfast_log.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    ReplicaLogInfo,
    TopicReplicaLogInfo,
)
from holdfast_log.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.reactor import reactor, until

SESSION_TIMEOUT_MS = 6000


def broker_info(broker_id: int, rack: str | None = None) -> BrokerInfo:
    return BrokerInfo(
        broker_id,
        (RegisteredEndpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id, "PLAINTEXT"),),
        rack,
        {ELIGIBLE_LEADERS: (1, 1), REPLICA_LOG_INFO: (1, 1)},
    )


def no_config_named_bad(configs: Mapping[str, str | None]) -> None:
    if "bad" in configs:
        raise ValueError("bad is not a config")


def policy(
    *,
    unclean: bool = False,
    new_topic_id: Callable[[], uuid.UUID] = uuid.uuid4,
    min_in_sync: Callable[[str], int] = lambda topic: 1,
    limits: PartitionLimits | None = None,
) -> ControllerPolicy:
    return ControllerPolicy(
        inter_broker_listener="PLAINTEXT",
        defaults=TopicDefaults(partition_count=1, replication_factor=1),
        validate_configs=no_config_named_bad,
        unclean_allowed=lambda topic: unclean,
        new_topic_id=new_topic_id,
        min_in_sync=min_in_sync,
        limits=limits or PartitionLimits(),
    )


def isr_proposal(
    topic_id: uuid.UUID,
    isr: Sequence[int],
    epochs: Mapping[int, int],
    *,
    broker_id: int = 1,
    partition: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> AlterPartitionRequest:
    """A leader's proposal of an in-sync set; `epochs` are the brokers' epochs."""
    row = ProposedPartition(
        partition_index=partition,
        leader_epoch=leader_epoch,
        new_isr=[],
        new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr],
        partition_epoch=partition_epoch,
    )
    topics = [TopicData(topic_id=topic_id, partitions=[row])]
    return AlterPartitionRequest(broker_id=broker_id, broker_epoch=epochs.get(broker_id, 0), topics=topics)


def healthy_answer(request: Any) -> Any:
    """The answer of a healthy broker to its controller."""
    match request:
        case LeaderAndIsrRequest():
            return LeaderAndIsrResponse(
                error_code=0,
                topics=[
                    LeaderAndIsrTopicError(
                        topic_id=topic.topic_id,
                        partition_errors=[
                            LeaderAndIsrPartitionError(partition_index=row.partition_index, error_code=0)
                            for row in topic.partition_states
                        ],
                    )
                    for topic in request.topic_states
                ],
            )
        case StopReplicaRequest():
            return StopReplicaResponse(
                error_code=0,
                partition_errors=[
                    StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=row.partition_index, error_code=0
                    )
                    for topic in request.topic_states
                    for row in topic.partition_states
                ],
            )
        case UpdateMetadataRequest():
            return UpdateMetadataResponse(error_code=0)
    raise AssertionError(request)


def log_ends(
    request: GetReplicaLogInfoRequest, broker_epoch: int, leader_epoch: int = 0, end_offset: int = 0
) -> GetReplicaLogInfoResponse:
    """A broker's answer that all its replicas end at the same place."""
    topics = [
        TopicReplicaLogInfo(
            topic_id=topic.topic_id,
            partition_log_info=[
                ReplicaLogInfo(
                    partition=number,
                    last_written_leader_epoch=leader_epoch,
                    log_end_offset=end_offset,
                    error_code=0,
                )
                for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return GetReplicaLogInfoResponse(broker_epoch=broker_epoch, topic_partition_log_info_list=topics)


@dataclass(slots=True)
class Member:
    """One member of the cluster."""

    broker_id: int
    zookeeper: KazooZooKeeper
    membership: ClusterMembership
    candidacy: Candidacy
    controller: ControllerService
    events: list[str] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)

    def requests_of(self, kind: type) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def was_told_of(self, brokers: int) -> bool:
        """Whether the controller has sent it metadata with this many live brokers."""
        return any(len(told.live_brokers) == brokers for told in self.requests_of(UpdateMetadataRequest))

    # MembershipListener

    def registered(self, session: ZooKeeperSession, broker_epoch: int) -> None:
        self.events.append("registered")

    def suspended(self) -> None:
        self.events.append("suspended")

    def resumed(self) -> None:
        self.events.append("resumed")

    def expired(self) -> None:
        self.events.append("expired")

    def registration_failed(self, error: Exception) -> None:
        self.events.append(f"failed: {error}")


class Members:
    """A cluster on one ZooKeeper."""

    def __init__(self, connect: str) -> None:
        self.connect = connect
        self.members: dict[int, Member] = {}
        self.answer: Callable[[int, Any], Any] = lambda broker_id, request: healthy_answer(request)
        """A broker's answer; an exception stands for a lost connection, None for no answer."""

    def send(self, broker_id: int, request: Any) -> Deferred[Any]:
        member = self.members.get(broker_id)
        if member is None:
            return fail(ConnectionError(f"broker {broker_id} is not there"))
        if isinstance(request, GetReplicaLogInfoRequest):
            return succeed(log_ends(request, member.membership.broker_epoch))
        answer = self.answer(broker_id, request)
        if isinstance(answer, Exception):
            return fail(answer)
        member.requests.append(request)
        return Deferred() if answer is None else succeed(answer)

    def make(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        conflict_timeout_ms: int = 10_000,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        policy: ControllerPolicy | None = None,
    ) -> Member:
        """Create a member without starting it."""
        zookeeper = KazooZooKeeper(self.connect, session_timeout_ms, reactor.callFromThread)
        membership = ClusterMembership(
            zookeeper,
            reactor,
            _date_ms,
            lambda: broker_info(broker_id, rack),
            conflict_timeout_ms=conflict_timeout_ms,
        )
        candidacy = Candidacy(broker_id, reactor, _date_ms)
        controller = ControllerService(candidacy, reactor, self.send, policy or _default_policy())
        zookeeper.add_listener(membership)
        candidacy.add_listener(controller)
        member = Member(broker_id, zookeeper, membership, candidacy, controller)
        membership.add_listener(member)
        membership.add_listener(candidacy)
        return member

    async def start(self, broker_id: int, **options: Any) -> Member:
        """Start a member and wait until it is registered; the first one becomes controller."""
        member = self.make(broker_id, **options)
        self.members[broker_id] = member
        member.zookeeper.start()
        await member.membership.start()
        await until(lambda: member.candidacy.controller_id is not None)
        return member

    async def stop(self, broker_id: int) -> None:
        """Stop a member; its ephemeral znodes are removed."""
        member = self.members.pop(broker_id)
        member.membership.close()
        member.candidacy.stand_down()
        await member.zookeeper.close()

    def controller(self) -> Member:
        """The member that is the controller."""
        (found,) = [member for member in self.members.values() if member.controller.is_active]
        return found


_default_policy = policy


@asynccontextmanager
async def cluster(connect: str, *broker_ids: int) -> AsyncIterator[Members]:
    """A cluster of started members; the first is the controller and knows them all."""
    members = Members(connect)
    try:
        started = [await members.start(broker_id) for broker_id in broker_ids]
        await until(lambda: all(member.was_told_of(len(broker_ids)) for member in started))
        yield members
    finally:
        for broker_id in list(members.members):
            await members.stop(broker_id)


def _date_ms() -> int:
    return time.time_ns() // 1_000_000
