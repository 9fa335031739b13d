"""ConsumerGroupDescribe (key 69): state, members and assignments of consumer groups (KIP-848).

A group that does not exist, or is of another protocol, has the error GROUP_ID_NOT_FOUND: tools then ask
DescribeGroups. A client that may not describe all topics of a group gets an error in place of its members.
Version 1 has the protocol of each member (KIP-1099). The API is missing where
`group.coordinator.rebalance.protocols` lacks `consumer`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths, refusal
from holdfast_log.broker.requests.operations import NOT_ASKED, authorized_operations
from holdfast_log.coordinator.groups.effects import ConsumerGroupInfo, ConsumerInfo
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
)

_CLASSIC_PROTOCOL, _CONSUMER_PROTOCOL = range(2)
"""The types of members: of one that sends JoinGroup, and of one that sends ConsumerGroupHeartbeat."""


@dataclass(eq=False)
class ConsumerGroupDescribeHandler(Handler[ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse]):
    request = ConsumerGroupDescribeRequest
    parts = (RowPaths(("group_ids",), ("groups",)),)
    elements_max = ANY_ELEMENTS
    protocol = "consumer"
    groups: GroupService

    def handle(
        self, context: RequestContext, request: ConsumerGroupDescribeRequest
    ) -> Deferred[ConsumerGroupDescribeResponse]:
        # Each group once: a description may be a thousand times as long as a name.
        names = dict.fromkeys(request.group_ids)
        is_asked = request.include_authorized_operations
        described = [self._describe(context, group_id, with_operations=is_asked) for group_id in names]
        return gatherResults(described).addCallback(
            lambda groups: ConsumerGroupDescribeResponse(groups=groups)
        )

    def _describe(
        self, context: RequestContext, group_id: str, *, with_operations: bool
    ) -> Deferred[DescribedConsumerGroup]:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if denied is not None:
            return succeed(_refused(group_id, denied.code, str(denied)))
        operations = NOT_ASKED
        if with_operations:
            operations = authorized_operations(context, AclResource.GROUP, group_id)
        return self.groups.ask(
            group_id, lambda shard, waiting, _: shard.consumers.describe(waiting, group_id)
        ).addCallbacks(_described, _failed, callbackArgs=(context, operations), errbackArgs=(group_id,))

    def failed(
        self, context: RequestContext, request: ConsumerGroupDescribeRequest, error: BrokerError
    ) -> ConsumerGroupDescribeResponse:
        groups = [_refused(group_id, error.code, str(error)) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)


def _described(info: ConsumerGroupInfo, context: RequestContext, operations: int) -> DescribedConsumerGroup:
    if info.error is not ErrorCode.NONE:
        return _refused(info.group_id, info.error, info.message)
    named = {*info.topics.values(), *(topic for member in info.members for topic in member.topics)}
    for topic in sorted(named):
        denied = context.denial(AclOperation.DESCRIBE, AclResource.TOPIC, topic)
        if denied is not None:
            return _refused(info.group_id, denied.code, "its members read topics that you may not describe")
    return DescribedConsumerGroup(
        error_code=ErrorCode.NONE,
        group_id=info.group_id,
        group_state=info.state,
        group_epoch=info.epoch,
        assignment_epoch=info.assignment_epoch,
        assignor_name=info.assignor,
        members=[_member(member, info.topics) for member in info.members],
        authorized_operations=operations,
    )


def _member(member: ConsumerInfo, topics: Mapping[UUID, str]) -> DescribedConsumer:
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or None,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(member.target, topics),
        member_type=_CLASSIC_PROTOCOL if member.is_classic else _CONSUMER_PROTOCOL,
    )


def _assignment(partitions: Iterable[tuple[UUID, int]], topics: Mapping[UUID, str]) -> DescribedAssignment:
    rows: dict[UUID, DescribedTopicPartitions] = {}
    for topic_id, number in partitions:
        if topic_id not in topics:
            continue  # the topic has been deleted
        if topic_id not in rows:
            rows[topic_id] = DescribedTopicPartitions(
                topic_id=topic_id, topic_name=topics[topic_id], partitions=[]
            )
        rows[topic_id].partitions.append(number)
    return DescribedAssignment(topic_partitions=list(rows.values()))


def _failed(failure: Failure, group_id: str) -> DescribedConsumerGroup:
    error = refusal(failure)
    return _refused(group_id, error.code, str(error))


def _refused(group_id: str, error: ErrorCode, message: str | None) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(error_code=error, error_message=message, group_id=group_id, members=[])
