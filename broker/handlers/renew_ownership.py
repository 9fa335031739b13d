"""Renew (key 30022): an owner lives, and asks how it stands; where nothing has changed it may wait until
something has."""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from broker.handler import Handler, RequestContext
from broker.ownership import requests
from broker.ownership.answers import Standings
from broker.ownership.operations import Held
from broker.ownership.service import OwnershipService
from coordinator.ownership.records import ResourceKey
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import HeldResource, RenewRequest, RenewResponse


@dataclass(eq=False)
class RenewHandler(Handler[RenewRequest, RenewResponse]):
    request = RenewRequest
    ownership: OwnershipService

    def handle(self, call: RequestContext, request: RenewRequest) -> Deferred[RenewResponse]:
        requests.check_resources(request.group, request.resources)
        asker = requests.asker_of(call, request.group, request.owner_id)
        connection = requests.connection_of(call)

        def ask(found: list[tuple[HeldResource, ResourceKey]]) -> Deferred[Standings]:
            held = [Held(key, each.incarnation) for each, key in found]
            # Where others are to be asked about some of it, they are to be asked soon.
            max_wait_ms = request.max_wait_ms if len(found) == len(request.resources) else 0
            return self.ownership.renew(connection, asker, held, max_wait_ms)

        standings = requests.each(self.ownership.homes, request.group, request.resources, ask)
        return standings.addCallback(
            lambda answers: RenewResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, call: RequestContext, request: RenewRequest, error: BrokerError) -> RenewResponse:
        return RenewResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )
