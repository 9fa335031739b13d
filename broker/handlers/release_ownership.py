"""Release (key 30021, own API): an owner releases resources, a waiter leaves the queue, a producer closes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.python.failure import Failure

from holdfast_log.broker.ownership import requests, rights
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.limits import CONNECTION_RESOURCES_MAX
from holdfast_log.broker.ownership.operations import ReleaseHeld
from holdfast_log.broker.ownership.resources import NamedGrant
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.handler import Handler, RequestContext, RowPaths
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import HeldResource, ReleaseRequest, ReleaseResponse

_TIMEOUT_MS = 30_000
"""Timeout in ms of a release, which waits only for earlier claims of the same resources."""


@dataclass(eq=False)
class ReleaseHandler(Handler[ReleaseRequest, ReleaseResponse]):
    request = ReleaseRequest
    elements_max = CONNECTION_RESOURCES_MAX
    parts = (RowPaths(("resources",), ("resources",)),)
    ownership: OwnershipService

    def handle(self, context: RequestContext, request: ReleaseRequest) -> Deferred[ReleaseResponse]:
        requests.check_resources(request.group, request.resources)
        rights.check_member(context, request.group)
        requester = requests.requester_of(context, request.group, request.owner_id, secret=request.secret)

        def submit(found: list[tuple[HeldResource, ResourceKey]]) -> Deferred[Standings]:
            named = [NamedGrant(key, each.incarnation) for each, key in found]
            some = [
                named[at : at + requests.RESOURCES_MAX] for at in range(0, len(named), requests.RESOURCES_MAX)
            ]
            # Carried out even if the connection closes before: the owner has requested it.
            parts = [self.ownership.submit(None, ReleaseHeld(requester, part), _TIMEOUT_MS) for part in some]
            return gatherResults(parts, consumeErrors=True).addCallbacks(
                lambda answers: list(chain.from_iterable(answers)), _first_error
            )

        judge = rights.may_keep(context, request.group)
        standings = requests.for_each(self.ownership.decided, request.group, request.resources, submit, judge)
        return standings.addCallback(
            lambda answers: ReleaseResponse(group=request.group, error_code=ErrorCode.NONE, resources=answers)
        )

    def failed(self, context: RequestContext, request: ReleaseRequest, error: BrokerError) -> ReleaseResponse:
        return ReleaseResponse(
            group=request.group, error_code=error.code, error_message=error.message, resources=[]
        )


def _first_error(failure: Failure) -> Failure:
    """The error of the part that failed first."""
    failure.trap(FirstError)
    assert isinstance(failure.value, FirstError)
    return failure.value.subFailure
