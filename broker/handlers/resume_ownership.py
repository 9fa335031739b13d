"""Resume (key 30023, own API): an owner resumes its grants on another connection.

Each resource succeeds or fails separately, and many are resumed in parts. The client needs the same rights as
for the claim. The broker closes the connection that had the grants.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.limits import CONNECTION_RESOURCES_MAX
from holdfast_log.broker.ownership.operations import Resume
from holdfast_log.broker.ownership.resources import NamedGrant
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.settings import SessionTimeouts
from holdfast_log.broker.ownership.standings import outcome
from holdfast_log.broker.requests.handler import Handler, RequestContext, RowPaths
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import (
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
    ResumeResponse,
)


@dataclass(eq=False)
class ResumeHandler(Handler[ResumeRequest, ResumeResponse]):
    request = ResumeRequest
    elements_max = CONNECTION_RESOURCES_MAX
    parts = (RowPaths(("resources",), ("resources",)),)
    ownership: OwnershipService
    session_timeouts: SessionTimeouts

    def handle(self, context: RequestContext, request: ResumeRequest) -> Deferred[ResumeResponse]:
        requests.check_resources(request.group, request.resources)
        self.session_timeouts.check(request.session_timeout_ms)
        rights.check_member(context, request.group)
        requester = requests.requester_of(
            context, request.group, request.owner_id, request.session_timeout_ms, secret=request.secret
        )
        connection = requests.connection_of(context)

        def submit(found: list[tuple[ResumedResource, ResourceKey]]) -> Deferred[Standings]:
            named: list[NamedGrant] = []
            refused: dict[int, ResourceStanding] = {}
            for number, (each, key) in enumerate(found):
                access = self.ownership.access(request.group, key)
                denied = rights.may_own(context, access)(each)
                if denied is None:
                    named.append(NamedGrant(key, each.incarnation))
                else:
                    refused[number] = outcome(key, denied.code, denied.message)
            if not named:
                return succeed(requests.merged(refused, ()))
            resumed = self.ownership.submit(connection, Resume(requester, named), request.timeout_ms)
            return resumed.addCallback(lambda answers: requests.merged(refused, answers))

        judge = rights.may_keep(context, request.group)
        standings = requests.for_each(self.ownership.decided, request.group, request.resources, submit, judge)
        return standings.addCallback(
            lambda answers: ResumeResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, context: RequestContext, request: ResumeRequest, error: BrokerError) -> ResumeResponse:
        return ResumeResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )
