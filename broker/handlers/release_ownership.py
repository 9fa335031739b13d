"""Release (key 30021): an owner lets go of resources, a producer closes, one that waits leaves the queue."""

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
from protocol.messages.ownership import HeldResource, ReleaseRequest, ReleaseResponse

_TIMEOUT_MS = 30_000
"""It waits for claims of the same resources that came before it, and for nothing else."""


@dataclass(eq=False)
class ReleaseHandler(Handler[ReleaseRequest, ReleaseResponse]):
    request = ReleaseRequest
    ownership: OwnershipService

    def handle(self, call: RequestContext, request: ReleaseRequest) -> Deferred[ReleaseResponse]:
        requests.check_resources(request.group, request.resources)
        asker = requests.asker_of(call, request.group, request.owner_id)
        connection = requests.connection_of(call)

        def ask(found: list[tuple[HeldResource, ResourceKey]]) -> Deferred[Standings]:
            held = [Held(key, each.incarnation) for each, key in found]
            return self.ownership.release(connection, asker, held, _TIMEOUT_MS)

        standings = requests.each(self.ownership.homes, request.group, request.resources, ask)
        return standings.addCallback(
            lambda answers: ReleaseResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, call: RequestContext, request: ReleaseRequest, error: BrokerError) -> ReleaseResponse:
        return ReleaseResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )
