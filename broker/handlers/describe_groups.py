"""DescribeGroups (key 15): state, protocol and members of groups. The state of a missing group is `Dead`.

Versions: from 3 on the client may ask which operations it is authorised for (KIP-430), from 4 on the response
has instance ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.groups.descriptions import DescriptionApi, described_groups
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths
from holdfast_log.coordinator.groups.effects import DescribeAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


@dataclass(eq=False)
class DescribeGroupsHandler(Handler[DescribeGroupsRequest, DescribeGroupsResponse]):
    request = DescribeGroupsRequest
    parts = (RowPaths(("groups",), ("groups",)),)
    elements_max = ANY_ELEMENTS
    groups: GroupService

    def handle(
        self, context: RequestContext, request: DescribeGroupsRequest
    ) -> Deferred[DescribeGroupsResponse]:
        return described_groups(
            context, self.groups, _API, request.groups, with_operations=request.include_authorized_operations
        ).addCallback(lambda groups: DescribeGroupsResponse(throttle_time_ms=0, groups=groups))

    def failed(
        self, context: RequestContext, request: DescribeGroupsRequest, error: BrokerError
    ) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            throttle_time_ms=0, groups=[_refused(group_id, error) for group_id in request.groups]
        )


def _described(_: RequestContext, answer: DescribeAnswer, operations: int) -> DescribedGroup:
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=answer.group_id,
        group_state=answer.state,
        protocol_type=answer.protocol_type,
        protocol_data=answer.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in answer.members
        ],
        authorized_operations=operations,
    )


def _refused(group_id: str, error: BrokerError) -> DescribedGroup:
    return DescribedGroup(
        error_code=error.code,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


_API = DescriptionApi(
    lambda shard, waiting, group_id: shard.describe_group(waiting, group_id), _described, _refused
)
