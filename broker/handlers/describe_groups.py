"""DescribeGroups (key 15): state, protocol and members of groups. The state of a missing group is `Dead`.

Versions: from 3 on the client may ask which operations it is authorised for (KIP-430), from 4 on the response
has instance ids.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext, RowPaths, refusal
from holdfast_log.broker.requests.operations import NOT_ASKED, authorized_operations
from holdfast_log.coordinator.groups.effects import DescribeAnswer
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.acls import AclOperation, AclResource
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
        # Each group once: a description may be a thousand times as long as a name.
        names = dict.fromkeys(request.groups)
        is_asked = request.include_authorized_operations
        described = [self._describe(context, group_id, with_operations=is_asked) for group_id in names]
        return gatherResults(described).addCallback(
            lambda groups: DescribeGroupsResponse(throttle_time_ms=0, groups=groups)
        )

    def _describe(
        self, context: RequestContext, group_id: str, *, with_operations: bool
    ) -> Deferred[DescribedGroup]:
        denied = context.denial(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        if denied is not None:
            return succeed(_refused(group_id, denied.code))
        operations = NOT_ASKED
        if with_operations:
            operations = authorized_operations(context, AclResource.GROUP, group_id)
        return self.groups.ask(
            group_id, lambda shard, waiting, _: shard.describe_group(waiting, group_id)
        ).addCallbacks(_described, _failed, callbackArgs=(operations,), errbackArgs=(group_id,))

    def failed(
        self, context: RequestContext, request: DescribeGroupsRequest, error: BrokerError
    ) -> DescribeGroupsResponse:
        return DescribeGroupsResponse(
            throttle_time_ms=0, groups=[_refused(group_id, error.code) for group_id in request.groups]
        )


def _described(answer: DescribeAnswer, operations: int) -> DescribedGroup:
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


def _failed(failure: Failure, group_id: str) -> DescribedGroup:
    return _refused(group_id, refusal(failure).code)


def _refused(group_id: str, error: ErrorCode) -> DescribedGroup:
    return DescribedGroup(
        error_code=error, group_id=group_id, group_state="", protocol_type="", protocol_data="", members=[]
    )
