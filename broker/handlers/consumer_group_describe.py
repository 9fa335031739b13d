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

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.descriptions import DescriptionApi, described_groups
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths
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
        return described_groups(
            context,
            self.groups,
            _API,
            request.group_ids,
            with_operations=request.include_authorized_operations,
        ).addCallback(lambda groups: ConsumerGroupDescribeResponse(groups=groups))

    def failed(
        self, context: RequestContext, request: ConsumerGroupDescribeRequest, error: BrokerError
    ) -> ConsumerGroupDescribeResponse:
        groups = [_refused(group_id, error) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)


def _described(context: RequestContext, info: ConsumerGroupInfo, operations: int) -> DescribedConsumerGroup:
    if info.error is not ErrorCode.NONE:
        return _refused(info.group_id, BrokerError(info.error, info.message))
    named = {*info.topics.values(), *(topic for member in info.members for topic in member.topics)}
    for topic in sorted(named):
        denied = context.denial(AclOperation.DESCRIBE, AclResource.TOPIC, topic)
        if denied is not None:
            message = "its members read topics that you may not describe"
            return _refused(info.group_id, BrokerError(denied.code, message))
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


def _refused(group_id: str, error: BrokerError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        error_code=error.code, error_message=str(error), group_id=group_id, members=[]
    )


_API = DescriptionApi(
    lambda shard, waiting, group_id: shard.consumers.describe(waiting, group_id), _described, _refused
)
