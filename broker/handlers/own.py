"""Own (key 30020, own API): a connection claims all resources of the request, or none.

The response comes when the grants are durable, the former owners' connections are closed, and all records
before the fence offsets are committed; or it has the reasons of the refusal. The rules are in
docs/ownership.md, the path of a claim in `broker.ownership`.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.claims import Claim, WantedResource, wait_until_ms
from holdfast_log.broker.ownership.rules import check_generation
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.settings import SessionTimeouts
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    NO_PARTITION,
    Access,
    OwnRequest,
    OwnResponse,
    ResourceClaim,
)


@dataclass(eq=False)
class OwnHandler(Handler[OwnRequest, OwnResponse]):
    request = OwnRequest
    ownership: OwnershipService
    session_timeouts: SessionTimeouts

    def handle(self, context: RequestContext, request: OwnRequest) -> Deferred[OwnResponse]:
        requests.check_group(request.group)
        requests.check_resources(request.group, request.resources, requests.RESOURCES_MAX)
        self.session_timeouts.check(request.session_timeout_ms)
        for claim in request.resources:
            check_generation(claim.generation)
        _check_wait(request)
        _check_access(request)
        rights.check_member(context, request.group)
        requester = requests.requester_of(
            context,
            request.group,
            request.owner_id,
            request.session_timeout_ms,
            request.access,
            request.writer_client_id,
            request.writer_principal,
            secret=request.secret,
        )
        connection = requests.connection_of(context)

        def submit(found: list[tuple[ResourceClaim, ResourceKey]]) -> Deferred[Standings]:
            wanted = [WantedResource(key, claim.generation) for claim, key in found]
            until_ms = wait_until_ms(self.ownership.now_ms(), request.wait_timeout_ms)
            claim = Claim(requester, wanted, until_ms, request.waited_ms)
            return self.ownership.submit(connection, claim, request.timeout_ms)

        judge = rights.may_own(context, request.access)
        standings = requests.for_all_or_none(
            self.ownership.decided, request.group, request.resources, submit, judge
        )
        return standings.addCallback(
            lambda answers: OwnResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, context: RequestContext, request: OwnRequest, error: BrokerError) -> OwnResponse:
        return OwnResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )


def _check_wait(request: OwnRequest) -> None:
    is_single = len(request.resources) == 1 and request.resources[0].generation == IF_FREE
    if request.wait_timeout_ms != 0 and not is_single:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            "only a claim of one resource with generation -1 can wait: send one request for each resource",
        )


def _check_access(request: OwnRequest) -> None:
    """Refuse to make an owner of a partition that may neither write nor read it: it would exclude nobody."""
    partitions = [each for each in request.resources if each.partition != NO_PARTITION]
    if request.access == Access.NONE and partitions:
        raise error_for(
            ErrorCode.INVALID_REQUEST,
            f"a claim of {partitions[0].name}-{partitions[0].partition} with access 0 would exclude nobody: "
            "use 1 to be its only writer, 2 to be its only reader, 3 for both, or claim a name (partition "
            "-1)",
        )
