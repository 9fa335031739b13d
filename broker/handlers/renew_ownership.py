"""Renew (key 30022, own API): an owner extends its session, and gets its standings.

If these have not changed since its last Renew, the response waits for up to `max_wait_ms`.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership import requests
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.limits import CONNECTION_RESOURCES_MAX
from holdfast_log.broker.ownership.resources import NamedGrant
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import HeldResource, RenewRequest, RenewResponse


@dataclass(eq=False)
class RenewHandler(Handler[RenewRequest, RenewResponse]):
    request = RenewRequest
    elements_max = CONNECTION_RESOURCES_MAX
    ownership: OwnershipService

    def handle(self, context: RequestContext, request: RenewRequest) -> Deferred[RenewResponse]:
        requests.check_resources(request.group, request.resources)
        requester = requests.requester_of(context, request.group, request.owner_id, secret=request.secret)
        connection = requests.connection_of(context)

        def renew(found: list[tuple[HeldResource, ResourceKey]]) -> Deferred[Standings]:
            named = [NamedGrant(key, each.incarnation) for each, key in found]
            # Answer without waiting: the client must ask other brokers about some of its resources.
            max_wait_ms = request.max_wait_ms if len(found) == len(request.resources) else 0
            return self.ownership.renew(connection, requester, named, max_wait_ms)

        standings = requests.for_each(self.ownership.decided, request.group, request.resources, renew)
        return standings.addCallback(
            lambda answers: RenewResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, context: RequestContext, request: RenewRequest, error: BrokerError) -> RenewResponse:
        return RenewResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )
