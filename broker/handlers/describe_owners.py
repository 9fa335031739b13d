"""DescribeOwners (key 30024): who owns what, of that which this broker decides about.

Names are told of as far as this broker has been asked about their groups since it coordinates them; a group
that is named in the request is looked up.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred, DeferredList

from broker.call import Call, Handler
from broker.ownership.description import describe
from broker.ownership.resources import Resource
from broker.ownership.service import OwnershipService
from coordinator.ownership_records import NameKey
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import NO_PARTITION
from protocol.messages.ownership_sight import (
    DescribedResource,
    DescribeOwnersRequest,
    DescribeOwnersResponse,
)


@dataclass(eq=False)
class DescribeOwnersHandler(Handler[DescribeOwnersRequest, DescribeOwnersResponse]):
    request = DescribeOwnersRequest
    ownership: OwnershipService

    def handle(self, call: Call, request: DescribeOwnersRequest) -> Deferred[DescribeOwnersResponse]:
        lookups = []
        for group in dict.fromkeys(request.groups or ()):
            try:
                lookups.append(self.ownership.homes.ready(group))
            except BrokerError:
                continue  # Another broker coordinates it.
        known = DeferredList(lookups, consumeErrors=True)
        return known.addCallback(lambda _: self._answer(request))

    def _answer(self, request: DescribeOwnersRequest) -> DescribeOwnersResponse:
        groups = None if request.groups is None else set(request.groups)
        names = None
        if request.resources is not None:
            names = {(each.name, each.partition) for each in request.resources}
        found: list[DescribedResource] = []
        for resource in self.ownership.resources():
            if names is None or _name(resource) in names:
                found += describe(
                    resource,
                    self.ownership.now_ms(),
                    self.ownership.last_heard_ms,
                    include_history=request.include_history,
                )
        if groups is not None:
            found = [each for each in found if each.group in groups]
        return DescribeOwnersResponse(error_code=ErrorCode.NONE, resources=found)

    def failed(
        self, call: Call, request: DescribeOwnersRequest, error: BrokerError
    ) -> DescribeOwnersResponse:
        return DescribeOwnersResponse(error_code=error.code, error_message=error.message, resources=[])


def _name(resource: Resource) -> tuple[str, int]:
    key = resource.key
    return (key.name, NO_PARTITION) if isinstance(key, NameKey) else (key.topic, key.index)
