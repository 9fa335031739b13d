"""A broker with groups: real logs, replicas, shards and handlers, on the test's clock.

The controller is played by the test: topics that the broker asks for are made with a leader here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.cluster.identity import BrokerIdentity
from holdfast_log.broker.cluster.metadata_cache import LEADER_DURING_DELETE, MetadataCache
from holdfast_log.broker.groups.forwarding import SendToBroker
from holdfast_log.broker.handlers.find_coordinator import FindCoordinatorHandler
from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.authorization import Authorizer
from holdfast_log.broker.settings.rows import broker_settings
from holdfast_log.broker.wiring.groups import build_groups
from holdfast_log.broker.wiring.transactions import build_transactions
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.coordinator.ownership.store import OwnershipStore
from holdfast_log.protocol.api import Request
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.heartbeat import HeartbeatRequest
from holdfast_log.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast_log.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from holdfast_log.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast_log.testing.fakes.handlers import AnswerParts, handlers_about
from tests.broker.world import LOCAL_ID, Client, World
from tests.models.instant_zookeeper import InstantZooKeeper
from tests.models.orders import partition_metadata

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\0\0\0\0"
"""Version 0, of topic t, no user data."""
SESSION_MS = 10_000


class GroupBroker(World):
    """A broker with groups. `offsets_replicas` are those of each partition of `__consumer_offsets`."""

    def __init__(
        self,
        directory: Path,
        *,
        send: SendToBroker | None = None,
        send_claims: SendToBroker | None = None,
        topic_config: dict[str, Any] | None = None,
        local_id: int = LOCAL_ID,
        authorizer: Authorizer | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(directory, topic_config=topic_config, local_id=local_id, authorizer=authorizer)
        values = {"zookeeper.connect": "z:1", "offsets.topic.num.partitions": 3}
        values |= {name.replace("_", "."): value for name, value in settings.items()}
        self.settings = broker_settings(values)
        self.offsets_replicas: Sequence[int] = (local_id,)
        self.created: list[str] = []
        self.producer_ids = 1_000
        self.creation_error = ErrorCode.NONE
        self.controller: Deferred[None] = succeed(None)
        """Fires when there is a controller that makes topics."""
        self.groups = build_groups(
            self.settings,
            self.surroundings(),
            self.metadata,
            self.replicas,
            create_topics=self._create,
            send=send or _no_other_broker,
            send_claims=send_claims or _no_other_broker,
        )
        self.transactions = build_transactions(
            self.settings,
            self.surroundings(),
            self.metadata,
            self.replicas,
            create_topics=self._create,
            new_producer_id=self._new_producer_id,
            send=send or _no_other_broker,
            send_markers=send or _no_other_broker,
        )
        self.metadata.add_listener(self.groups.service)
        self.replicas.add_role_listener(self.groups.leadership.role_changed)
        identity = BrokerIdentity(local_id, "cluster", "PLAINTEXT")
        self.zookeeper = InstantZooKeeper()
        self.ownership_store = OwnershipStore(self.zookeeper)
        known = _Known(self.metadata, identity, CommitterCheck(self.ownership_store))
        self.dispatcher.add(
            handlers_about(
                GroupService, self.groups, self.transactions, known, AnswerParts(LongAnswers(self.clock))
            )
        )
        self.dispatcher.add(
            [
                FindCoordinatorHandler(
                    self.groups.topic, self.transactions.transactions_topic, self.metadata, identity
                )
            ]
        )

    def _new_producer_id(self) -> Deferred[int]:
        self.producer_ids += 1
        return succeed(self.producer_ids)

    def _create(self, names: list[str]) -> Deferred[dict[str, ErrorCode]]:
        self.created += names
        created: Deferred[dict[str, ErrorCode]] = Deferred()
        self.controller.addCallback(lambda _: created.callback(self._made(names)))
        return created

    def _made(self, names: list[str]) -> dict[str, ErrorCode]:
        if self.creation_error is ErrorCode.NONE:
            self.make_offsets_topic()
        return dict.fromkeys(names, self.creation_error)

    def make_offsets_topic(self) -> None:
        for index in range(self.settings["offsets.topic.num.partitions"]):
            self.assign(OFFSETS_TOPIC, index, leader=self.replicas.local_id, replicas=self.offsets_replicas)

    def delete(self, topic: str) -> None:
        """The controller says that a topic is gone."""
        gone: dict[str, Any] = {"leader": LEADER_DURING_DELETE, "leader_epoch": -2, "partition_epoch": 1}
        states = [
            partition_metadata(index, isr=(), replicas=(), **gone)
            for index in self.metadata.topics[topic].partitions
        ]
        self.tell(topic, states, live=[LOCAL_ID])

    def partition_of(self, group: str) -> int:
        partition = self.groups.topic.partition_of(group)
        assert partition is not None
        return partition

    def hand_over(self, group: str, *, leader: int, leader_epoch: int) -> None:
        """Let another broker, or this one again, lead the partition of a group."""
        self.assign(
            OFFSETS_TOPIC,
            self.partition_of(group),
            leader=leader,
            leader_epoch=leader_epoch,
            replicas=(LOCAL_ID, 2),
            isr=(leader,),
            partition_epoch=leader_epoch,
        )

    def pass_time(self, ms: int) -> None:
        """In small steps, for timers set others."""
        for _ in range(0, ms, 100):
            self.clock.advance(0.1)


@dataclass(frozen=True)
class _Known:
    """What the handlers of groups ask for beside the groups."""

    metadata: MetadataCache
    identity: BrokerIdentity
    committers: CommitterCheck


def _no_other_broker(broker_id: int, request: Request[Any], timeout_ms: int | None = None) -> Any:
    raise AssertionError(f"nobody was to ask broker {broker_id}: {request}")


def commit_request(
    group: str, offset: int, *, topic: str = "t", partition: int = 0, metadata: str = "", **member: Any
) -> OffsetCommitRequest:
    wanted = OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    return OffsetCommitRequest(
        group_id=group,
        member_id=member.pop("member_id", ""),
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[wanted])],
        **member,
    )


def commit(client: Client, group: str, offset: int, **how: Any) -> ErrorCode:
    """Commit an offset of t-0 and return its error."""
    return commit_error(client.call(commit_request(group, offset, **how)))


def commit_error(response: Any) -> ErrorCode:
    ((partition,),) = [topic.partitions for topic in response.topics]
    return ErrorCode(partition.error_code)


def fetch_request(group: str, *, topic: str = "t", partition: int = 0) -> OffsetFetchRequest:
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])


def fetched(client: Client, group: str, **where: Any) -> tuple[int, ErrorCode]:
    """The offset of t-0 that a group has committed, and the group's error."""
    (answer,) = client.call(fetch_request(group, **where)).groups
    offsets = [found.committed_offset for topic in answer.topics for found in topic.partitions]
    return offsets[0] if offsets else -1, ErrorCode(answer.error_code)


def join_request(group: str, member_id: str = "", **how: Any) -> JoinGroupRequest:
    values: dict[str, Any] = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 60_000} | how
    return JoinGroupRequest(
        group_id=group,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        **values,
    )


def join_alone(broker: GroupBroker, client: Client, group: str) -> JoinGroupResponse:
    """Become the only member of an empty group."""
    member_id = client.call(join_request(group)).member_id
    client.ask(join_request(group, member_id))
    broker.pass_time(broker.settings["group.initial.rebalance.delay.ms"] + 100)
    (answer,) = client.answers()
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.NONE
    return answer


def sync_request(group: str, member_id: str, generation: int, assignment: bytes = b"all") -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)],
    )


def heartbeat_request(group: str, member_id: str, generation: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
