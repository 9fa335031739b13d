"""ForceRelease (key 30025): an administrator takes resources from their owners.

The broker closes the owners' connections, and they cannot resume.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.operations import ForcedResource, ForceRelease
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import ResourceStanding
from holdfast_log.protocol.messages.ownership_sight import (
    ForceReleaseRequest,
    ForceReleaseResponse,
    ReleasedResource,
    ResourceToRelease,
)

_audit = logging.getLogger("holdfast_log.broker.ownership.audit")


@dataclass(eq=False)
class ForceReleaseHandler(Handler[ForceReleaseRequest, ForceReleaseResponse]):
    request = ForceReleaseRequest
    ownership: OwnershipService

    def handle(self, context: RequestContext, request: ForceReleaseRequest) -> Deferred[ForceReleaseResponse]:
        requests.check_resources(request.group, request.resources, requests.RESOURCES_MAX)

        def submit(found: list[tuple[ResourceToRelease, ResourceKey]]) -> Deferred[Standings]:
            names = ", ".join(str(key) for _, key in found)
            _audit.info(
                "forced release of %s in group %r requested by %s at %s: %r",
                names,
                request.group,
                context.principal,
                context.client_host,
                request.comment[: requests.NAME_LENGTH_MAX],
            )
            forced = [ForcedResource(key, each.generation) for each, key in found]
            return self.ownership.submit(None, ForceRelease(request.group, forced), request.timeout_ms)

        judge = rights.may_take(context)
        standings = requests.for_each(self.ownership.decided, request.group, request.resources, submit, judge)
        return standings.addCallback(
            lambda answers: ForceReleaseResponse(
                error_code=ErrorCode.NONE, resources=[_released(each) for each in answers]
            )
        )

    def failed(
        self, context: RequestContext, request: ForceReleaseRequest, error: BrokerError
    ) -> ForceReleaseResponse:
        return ForceReleaseResponse(error_code=error.code, error_message=error.message, resources=[])


def _released(standing: ResourceStanding) -> ReleasedResource:
    return ReleasedResource(
        name=standing.name,
        partition=standing.partition,
        error_code=standing.error_code,
        error_message=standing.error_message,
        generation=standing.generation,
        owner_id=standing.owner_id,
    )
