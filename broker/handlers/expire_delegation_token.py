"""ExpireDelegationToken (key 40): end a token (KIP-48).

Refused: there are no delegation tokens here.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.delegation_tokens import NO_TIME, no_tokens
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@dataclass(eq=False)
class ExpireDelegationTokenHandler(Handler[ExpireDelegationTokenRequest, ExpireDelegationTokenResponse]):
    request = ExpireDelegationTokenRequest

    def handle(self, context: RequestContext, request: ExpireDelegationTokenRequest) -> None:
        raise no_tokens(context)

    def failed(
        self, context: RequestContext, request: ExpireDelegationTokenRequest, error: BrokerError
    ) -> ExpireDelegationTokenResponse:
        return ExpireDelegationTokenResponse(
            error_code=error.code, expiry_timestamp_ms=NO_TIME, throttle_time_ms=0
        )
