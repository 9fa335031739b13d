"""The group coordinator of a fake cluster: the broker's own machine behind the real protocol."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from coordinator.groups.classic_join import Join
from coordinator.groups.effects import (
    DeleteAnswer,
    DescribeAnswer,
    JoinAnswer,
    LeaveAnswer,
    ListAnswer,
    ManagedHeartbeatAnswer,
    ManagedListAnswer,
    OffsetsAnswer,
    PartitionErrorsAnswer,
    ReaderClaim,
    RegisterAnswer,
    RewindAnswer,
    RewoundPartition,
    ShardResult,
    SyncAnswer,
)
from coordinator.groups.settings import GroupSettings
from coordinator.groups.shard import GroupShard, OffsetToCommit
from protocol.api import Request, Response
from protocol.errors import ErrorCode
from protocol.messages import (
    delete_groups,
    describe_groups,
    join_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from protocol.messages import group_membership as membership
from protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.topic_partition import TopicPartition
from tests.models.shard_host import ShardHost

if TYPE_CHECKING:
    from tests.models.fake_cluster import FakeCluster

VERSIONS = {
    8: (2, 8), 9: (1, 8), 10: (0, 4), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5),
    15: (0, 5), 16: (0, 5), 42: (0, 2), 47: (0, 0),
}  # fmt: skip
FEATURES = {membership.FEATURE: 1}
HOST = "/127.0.0.1"
ANYWHERE = (FindCoordinatorRequest, membership.ListConsumerGroupsRequest, membership.CreateGroupRequest)
"""Requests that any broker answers."""


class FakeGroups(ShardHost):
    """All groups of a fake cluster, coordinated by broker `node`. It may move to another broker."""

    def __init__(self, cluster: FakeCluster, config: GroupSettings) -> None:
        self.node = min(cluster.brokers)
        self.config = config
        self._cluster = cluster
        self._ids = itertools.count(1)
        self._answers: dict[int, Callable[[Any], Response]] = {}
        self._sinks: dict[int, Callable[[Response], None]] = {}
        self._refusals: dict[int, object] = {}
        """By request token: the answer to give if the coordinator moves."""
        self._requests = itertools.count(1)
        super().__init__()

    # The surroundings of the machine

    def time_ms(self) -> int:
        return 1_000_000 + self._cluster.time_ms

    def tick(self) -> None:
        """Have happen what is due."""
        self.perform(self.shard.tick(self.time_ms()))

    def next_ms(self) -> int | None:
        """When something is due, by the cluster's clock."""
        due_ms = self.shard.next_deadline_ms()
        return None if due_ms is None else due_ms - 1_000_000

    def topics_changed(self, *topics: str) -> None:
        self.perform(self.shard.topics_changed(topics, self.time_ms()))

    def move(self, node: int) -> None:
        """Let another broker take over from the log; waiting requests are answered NOT_COORDINATOR."""
        self.node = node
        for token in list(self._sinks):
            self._sinks.pop(token)(self._answers.pop(token)(self._refusals.pop(token)))
        self.fail_over()

    def commit(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Commit from outside of the group."""
        rows = [OffsetToCommit(TopicPartition(*where), offset) for where, offset in offsets.items()]
        self.perform(self.shard.commit_offsets(next(self._requests), group, rows, now_ms=self.time_ms()))

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        result = self.shard.fetch_offsets("look", group, None)
        for _, answer in result.replies:
            assert isinstance(answer, OffsetsAnswer)
            found = {tuple(row.partition): row.offset for row in answer.offsets}  # type: ignore[misc]
        return found

    def state(self, group: str) -> str:
        ((_, answer),) = self.shard.describe_group("look", group).replies
        assert isinstance(answer, DescribeAnswer)
        return answer.state

    def new_shard(self) -> GroupShard:
        return GroupShard(
            self.config,
            new_id=lambda: f"{next(self._ids):04}",
            partition_count=lambda topic: len(self._cluster.topics.get(topic, ())),
        )

    def claim(self, claims: Sequence[ReaderClaim]) -> None:
        self._cluster.readers.claim(claims)

    def reply(self, request: Any, answer: Any) -> None:
        sink, respond = self._sinks.pop(request, None), self._answers.pop(request, None)
        self._refusals.pop(request, None)
        if sink is not None and respond is not None:
            sink(respond(answer))

    # Requests

    def handles(self, request: Request[Any]) -> bool:
        return request.api.key in VERSIONS or request.api.feature in FEATURES

    def handle(
        self, node: int, request: Request[Any], error: ErrorCode, client_id: str, sink: Callable[[Any], None]
    ) -> None:
        """Have `sink` called with the response, now or when the machine has an answer."""
        token = next(self._requests)
        self._sinks[token] = sink
        self._refusals[token] = _refusal(request)
        if error is ErrorCode.NONE and node != self.node and not isinstance(request, ANYWHERE):
            error = ErrorCode.NOT_COORDINATOR
        outcome = self._begin(token, request, error, client_id)
        if isinstance(outcome, Response):
            del self._sinks[token], self._refusals[token]
            self._answers.pop(token, None)
            sink(outcome)
        else:
            self.perform(outcome)

    def _begin(
        self, token: int, request: Request[Any], error: ErrorCode, client_id: str
    ) -> ShardResult | Response:
        now_ms = self.time_ms()
        classic, managed, shard = self.shard.classic, self.shard.managed, self.shard
        match request:
            case FindCoordinatorRequest():
                rows = [
                    FoundCoordinator(
                        key=key, node_id=self.node, host=f"broker-{self.node}", port=9092, error_code=error
                    )
                    for key in request.coordinator_keys
                ]
                return FindCoordinatorResponse(error_code=0, node_id=0, host="", port=0, coordinators=rows)
            case join_group.JoinGroupRequest():
                self._answers[token] = _join
                if error:
                    return _join(JoinAnswer(error))
                protocols = tuple((row.name, bytes(row.metadata)) for row in request.protocols)
                join = Join(
                    token,
                    request.member_id,
                    request.group_instance_id,
                    client_id,
                    HOST,
                    request.session_timeout_ms,
                    request.rebalance_timeout_ms,
                    request.protocol_type,
                    protocols,
                )
                return classic.join(request.group_id, join, now_ms)
            case SyncGroupRequest():
                self._answers[token] = _sync
                if error:
                    return _sync(SyncAnswer(error))
                return classic.sync(
                    token,
                    request.group_id,
                    member_id=request.member_id,
                    generation=request.generation_id,
                    instance_id=request.group_instance_id,
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                    assignments={row.member_id: bytes(row.assignment) for row in request.assignments},
                    now_ms=now_ms,
                )
            case HeartbeatRequest():
                self._answers[token] = lambda answer: HeartbeatResponse(
                    throttle_time_ms=0, error_code=answer.error
                )
                if error:
                    return HeartbeatResponse(throttle_time_ms=0, error_code=error)
                return classic.heartbeat(
                    token,
                    request.group_id,
                    member_id=request.member_id,
                    generation=request.generation_id,
                    instance_id=request.group_instance_id,
                    now_ms=now_ms,
                )
            case LeaveGroupRequest():
                self._answers[token] = _leave
                if error:
                    return LeaveGroupResponse(error_code=error)
                members = [(row.member_id, row.group_instance_id) for row in request.members]
                return shard.leave(token, request.group_id, members, now_ms)
            case offset_commit.OffsetCommitRequest():
                return self._commit(token, request, error)
            case offset_fetch.OffsetFetchRequest():
                return self._fetch(token, request, error)
            case offset_delete.OffsetDeleteRequest():
                self._answers[token] = _deleted_offsets
                partitions = [
                    TopicPartition(topic.name, row.partition_index)
                    for topic in request.topics
                    for row in topic.partitions
                ]
                return shard.delete_offsets(token, request.group_id, partitions)
            case list_groups.ListGroupsRequest():
                self._answers[token] = _listed
                if error is ErrorCode.NOT_COORDINATOR:
                    return _listed(ListAnswer([]))  # A broker lists those that it coordinates.
                return shard.list_groups(token, request.states_filter, request.types_filter)
            case describe_groups.DescribeGroupsRequest():
                self._answers[token] = _described
                return shard.describe_group(token, request.groups[0])
            case delete_groups.DeleteGroupsRequest():
                self._answers[token] = _deleted
                return shard.delete_groups(token, request.groups_names)
        return self._begin_managed(token, request, error, client_id, now_ms, managed)

    def _begin_managed(
        self, token: int, request: Request[Any], error: ErrorCode, client_id: str, now_ms: int, managed: Any
    ) -> ShardResult | Response:
        match request:
            case membership.ListConsumerGroupsRequest():
                self._answers[token] = self._list
                if error:
                    return membership.ListConsumerGroupsResponse(groups_info=[], error_code=error)
                return managed.list_groups(token, request.consumer_groups)
            case membership.CreateGroupRequest():
                group = request.consumer_group
                self._answers[token] = lambda answer: membership.CreateGroupResponse(
                    consumer_group=group, error_code=answer.error
                )
                return managed.create_group(
                    token,
                    group,
                    session_timeout_ms=request.session_timeout,
                    topics=request.topics,
                    ephemeral=request.ephemeral,
                    assignment_strategy=request.assignment_strategy,
                    single_reader=request.single_reader,
                    now_ms=now_ms,
                )
            case membership.DeleteGroupRequest():
                self._answers[token] = lambda answer: membership.DeleteGroupResponse(
                    deleted_consumer_groups=[name for name, code in answer.groups if not code],
                    error_code=next((code for _, code in answer.groups if code), 0),
                )
                return self.shard.delete_groups(token, request.consumer_group)
            case membership.RegisterConsumerRequest():
                self._answers[token] = lambda answer: _registered(request.consumer_group, answer)
                if error:
                    return _registered(request.consumer_group, RegisterAnswer(error))
                return managed.register_consumer(
                    token,
                    request.consumer_group,
                    consumer_id=request.consumer_id,
                    client_id=client_id,
                    client_host=HOST,
                    now_ms=now_ms,
                )
            case membership.ConsumerHeartbeatRequest():
                self._answers[token] = _managed_heartbeat
                if error:
                    return _managed_heartbeat(ManagedHeartbeatAnswer(error))
                return managed.heartbeat(
                    token,
                    request.consumer_group,
                    consumer_id=request.consumer_id,
                    generation=request.controller_generation,
                    session_timeout_ms=request.session_timeout,
                    now_ms=now_ms,
                )
            case membership.RewindConsumerRequest():
                self._answers[token] = lambda answer: _rewound(request.consumer_group, answer)
                rows = [(TopicPartition(row.topic, row.partition), row.offset) for row in request.new_offsets]
                return managed.rewind_consumer(
                    token,
                    request.consumer_group,
                    rows,
                    consumer_id=request.consumer_id,
                    generation=request.controller_generation,
                    now_ms=now_ms,
                )
        raise AssertionError(request)

    def _commit(
        self, token: int, request: offset_commit.OffsetCommitRequest, error: ErrorCode
    ) -> ShardResult | Response:
        rows = [
            OffsetToCommit(
                TopicPartition(topic.name, row.partition_index),
                row.committed_offset,
                row.committed_leader_epoch,
                row.committed_metadata or "",
            )
            for topic in request.topics
            for row in topic.partitions
        ]
        self._answers[token] = _committed
        if error:
            return _committed(PartitionErrorsAnswer(error, [(row.partition, error) for row in rows]))
        return self.shard.commit_offsets(
            token,
            request.group_id,
            rows,
            now_ms=self.time_ms(),
            generation=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
        )

    def _fetch(
        self, token: int, request: offset_fetch.OffsetFetchRequest, error: ErrorCode
    ) -> ShardResult | Response:
        (asked,) = request.groups
        self._answers[token] = _offsets
        if error:
            return _offsets(OffsetsAnswer(asked.group_id, [], error))
        partitions = None
        if asked.topics is not None:
            partitions = [
                TopicPartition(topic.name, number)
                for topic in asked.topics
                for number in topic.partition_indexes
            ]
        return self.shard.fetch_offsets(token, asked.group_id, partitions)

    def _list(self, answer: ManagedListAnswer) -> Response:
        broker = membership.ControllerBroker(broker_id=self.node, host=f"broker-{self.node}", port=9092)
        infos = [
            membership.GroupInfo(
                group_name=info.group_id,
                group_members=list(info.members),
                topics=list(info.topics),
                controller_broker=broker,
                session_timeout=info.session_timeout_ms,
                single_reader=info.single_reader,
            )
            for info in answer.groups
        ]
        return membership.ListConsumerGroupsResponse(groups_info=infos, error_code=0)


def _refusal(request: Request[Any]) -> object:
    """What a request that waits is answered when the coordinator moves."""
    error = ErrorCode.NOT_COORDINATOR
    match request:
        case join_group.JoinGroupRequest():
            return JoinAnswer(error)
        case SyncGroupRequest():
            return SyncAnswer(error)
        case membership.RegisterConsumerRequest():
            return RegisterAnswer(error)
        case membership.RewindConsumerRequest():
            rows = [TopicPartition(row.topic, row.partition) for row in request.new_offsets]
            return RewindAnswer(-1, [RewoundPartition(row, -1, error) for row in rows])
    return None  # It is answered at once.


def _join(answer: JoinAnswer) -> Response:
    return join_group.JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name or "",
        leader=answer.leader_id,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            join_group.JoinGroupResponseMember(
                member_id=row.member_id, group_instance_id=row.instance_id, metadata=row.metadata
            )
            for row in answer.members
        ],
    )


def _sync(answer: SyncAnswer) -> Response:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


def _leave(answer: LeaveAnswer) -> Response:
    rows = [
        MemberResponse(member_id=row.member_id, group_instance_id=row.instance_id, error_code=row.error)
        for row in answer.members
    ]
    return LeaveGroupResponse(error_code=0, members=rows)


def _committed(answer: PartitionErrorsAnswer) -> Response:
    topics: dict[str, list[Any]] = {}
    for (topic, number), code in answer.partitions:
        row = offset_commit.OffsetCommitResponsePartition(partition_index=number, error_code=code)
        topics.setdefault(topic, []).append(row)
    return offset_commit.OffsetCommitResponse(
        topics=[
            offset_commit.OffsetCommitResponseTopic(name=t, partitions=rows) for t, rows in topics.items()
        ]
    )


def _offsets(answer: OffsetsAnswer) -> Response:
    topics: dict[str, list[Any]] = {}
    for found in answer.offsets:
        row = offset_fetch.OffsetFetchResponsePartitions(
            partition_index=found.partition.partition,
            committed_offset=found.offset,
            committed_leader_epoch=found.leader_epoch,
            metadata=found.metadata,
            error_code=0,
        )
        topics.setdefault(found.partition.topic, []).append(row)
    group = offset_fetch.OffsetFetchResponseGroup(
        group_id=answer.group_id,
        topics=[
            offset_fetch.OffsetFetchResponseTopics(name=t, partitions=rows) for t, rows in topics.items()
        ],
        error_code=answer.error,
    )
    return offset_fetch.OffsetFetchResponse(groups=[group])


def _deleted_offsets(answer: PartitionErrorsAnswer) -> Response:
    topics: dict[str, list[Any]] = {}
    for (topic, number), code in answer.partitions:
        row = offset_delete.OffsetDeleteResponsePartition(partition_index=number, error_code=code)
        topics.setdefault(topic, []).append(row)
    return offset_delete.OffsetDeleteResponse(
        error_code=answer.error,
        throttle_time_ms=0,
        topics=[
            offset_delete.OffsetDeleteResponseTopic(name=t, partitions=rows) for t, rows in topics.items()
        ],
    )


def _listed(answer: ListAnswer) -> Response:
    rows = [
        list_groups.ListedGroup(
            group_id=row.group_id, protocol_type=row.protocol_type, group_state=row.state, group_type=row.type
        )
        for row in answer.groups
    ]
    return list_groups.ListGroupsResponse(error_code=0, groups=rows)


def _described(answer: DescribeAnswer) -> Response:
    members = [
        describe_groups.DescribedGroupMember(
            member_id=row.member_id,
            group_instance_id=row.instance_id,
            client_id=row.client_id,
            client_host=row.client_host,
            member_metadata=row.metadata,
            member_assignment=row.assignment,
        )
        for row in answer.members
    ]
    group = describe_groups.DescribedGroup(
        error_code=0,
        group_id=answer.group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol_name,
        members=members,
    )
    return describe_groups.DescribeGroupsResponse(groups=[group])


def _deleted(answer: DeleteAnswer) -> Response:
    rows = [
        delete_groups.DeletableGroupResult(group_id=name, error_code=code) for name, code in answer.groups
    ]
    return delete_groups.DeleteGroupsResponse(throttle_time_ms=0, results=rows)


def _registered(group: str, answer: RegisterAnswer) -> Response:
    rows = [
        membership.PartitionToOwn(
            topic=row.partition.topic, partition=row.partition.partition, offset=row.offset
        )
        for row in answer.partitions_to_own
    ]
    return membership.RegisterConsumerResponse(
        consumer_group=group,
        partitions_to_own=rows,
        error_code=answer.error,
        controller_generation=answer.generation,
        single_reader=answer.single_reader,
    )


def _managed_heartbeat(answer: ManagedHeartbeatAnswer) -> Response:
    return membership.ConsumerHeartbeatResponse(
        controller_generation=answer.controller_generation, error_code=answer.error
    )


def _rewound(group: str, answer: RewindAnswer) -> Response:
    rows = [
        membership.ActualOffset(
            topic=row.partition.topic,
            partition=row.partition.partition,
            offset=row.offset,
            error_code=row.error,
        )
        for row in answer.actual_offsets
    ]
    return membership.RewindConsumerResponse(
        consumer_group=group, actual_offsets=rows, controller_generation=answer.generation
    )
