"""CheckToken (key 30029): whether tokens are those of the newest grants.

The broker that decides about a resource answers, and only while it holds its lease: a broker that may have
been replaced does not know whether a newer grant exists.
"""

from __future__ import annotations

from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership import requests
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.coordinator.ownership.records import ResourceKey
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import NO_PARTITION
from holdfast_log.protocol.messages.ownership_tokens import (
    CheckTokenRequest,
    CheckTokenResponse,
    TokenStanding,
)


@dataclass(eq=False)
class CheckTokenHandler(Handler[CheckTokenRequest, CheckTokenResponse]):
    request = CheckTokenRequest
    ownership: OwnershipService

    def handle(self, context: RequestContext, request: CheckTokenRequest) -> Deferred[CheckTokenResponse]:
        requests.check_resources(request.group, [request])
        if request.partition == NO_PARTITION:
            context.check(AclOperation.DESCRIBE, AclResource.GROUP, request.group)
        else:
            context.check(AclOperation.DESCRIBE, AclResource.TOPIC, request.name)
        located = requests.located(self.ownership.decided, request.group, request)
        return located.addCallback(lambda key: self._answer(request, key))

    def _answer(self, request: CheckTokenRequest, key: ResourceKey) -> CheckTokenResponse:
        standing = self.ownership.token_standing(request.group, key, request.token)
        return CheckTokenResponse(
            error_code=ErrorCode.NONE,
            standing=TokenStanding.CURRENT if standing.is_current else TokenStanding.SUPERSEDED,
            newest=standing.newest,
            is_held=standing.is_held,
        )

    def failed(
        self, context: RequestContext, request: CheckTokenRequest, error: BrokerError
    ) -> CheckTokenResponse:
        return CheckTokenResponse(error_code=error.code, error_message=error.message)
