"""DescribeAcls (key 29): the entries of access control lists that a filter selects (KIP-140, KIP-290).

Every broker answers, with what is in force on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twisted.internet.defer import Deferred, ensureDeferred

from holdfast_log.broker.requests.answers import LongAnswers
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext
from holdfast_log.broker.security.administration import AclAdministration, selected_entries
from holdfast_log.broker.security.filters import checked_filter
from holdfast_log.protocol.acl_bindings import AclEntry, AclFilter, ResourcePattern
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

_ENTRIES_PER_ROW = 50
"""Maximum number of entries in one row: a list of more has several rows, which clients join."""
_FIELDS_BYTES = 8
_LOOKED_AT_BYTES = 24
"""The price of an entry that is looked at, and of its place in the order: about three microseconds."""


@dataclass(eq=False)
class DescribeAclsHandler(Handler[DescribeAclsRequest, DescribeAclsResponse]):
    request = DescribeAclsRequest
    elements_max = ANY_ELEMENTS
    acls: AclAdministration
    answers: LongAnswers

    def handle(self, context: RequestContext, request: DescribeAclsRequest) -> Deferred[DescribeAclsResponse]:
        context.check(AclOperation.DESCRIBE, AclResource.CLUSTER)
        wanted = checked_filter(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        return ensureDeferred(self._answer(context, wanted))

    async def _answer(self, context: RequestContext, wanted: AclFilter) -> DescribeAclsResponse:
        with self.answers.begin(context, DescribeAclsResponse) as answer:
            rows = answer.rows(DescribeAclsResource)
            for pattern, entries in await self.acls.described(wanted, answer.turn):
                await answer.turn(_LOOKED_AT_BYTES * len(entries))
                found = selected_entries(wanted, entries) if wanted.selects(pattern) else []
                for first in range(0, len(found), _ENTRIES_PER_ROW):
                    part = found[first : first + _ENTRIES_PER_ROW]
                    if not await answer.afford(_price(pattern, part)):
                        raise answer.too_long
                    rows.add(_row(pattern, part))
            resources = rows.finish()
        return DescribeAclsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, resources=resources)

    def failed(
        self, context: RequestContext, request: DescribeAclsRequest, error: BrokerError
    ) -> DescribeAclsResponse:
        return DescribeAclsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, resources=[]
        )


def _price(pattern: ResourcePattern, entries: Sequence[AclEntry]) -> int:
    return len(pattern.name) + sum(
        len(entry.principal) + len(entry.host) + _FIELDS_BYTES for entry in entries
    )


def _row(pattern: ResourcePattern, entries: Sequence[AclEntry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        acls=[
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in entries
        ],
    )
