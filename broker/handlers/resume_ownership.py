"""Resume (key 30023): an owner goes on with its grants on another connection, each by itself. The connection
that had them is severed."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from broker.handler import Handler, RequestContext
from broker.ownership import requests
from broker.ownership.answers import Standings
from broker.ownership.operations import Held
from broker.ownership.service import OwnershipService
from broker.ownership.settings import SessionTimeouts
from coordinator.ownership.records import ResourceKey
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import ResumedResource, ResumeRequest, ResumeResponse


@dataclass(eq=False)
class ResumeHandler(Handler[ResumeRequest, ResumeResponse]):
    request = ResumeRequest
    ownership: OwnershipService
    session_timeouts: SessionTimeouts

    def handle(self, call: RequestContext, request: ResumeRequest) -> Deferred[ResumeResponse]:
        requests.check_resources(request.group, request.resources)
        self.session_timeouts.check(request.session_timeout_ms)
        asker = requests.asker_of(call, request.group, request.owner_id, request.session_timeout_ms)
        connection = requests.connection_of(call)

        def ask(found: list[tuple[ResumedResource, ResourceKey]]) -> Deferred[Standings]:
            held = [Held(key, each.incarnation) for each, key in found]
            return self.ownership.resume(connection, asker, held, request.timeout_ms)

        standings = requests.each(self.ownership.homes, request.group, request.resources, ask)
        return standings.addCallback(
            lambda answers: ResumeResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, call: RequestContext, request: ResumeRequest, error: BrokerError) -> ResumeResponse:
        return ResumeResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )
