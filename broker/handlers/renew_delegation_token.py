"""RenewDelegationToken (key 39): let a token be valid for longer (KIP-48).

Refused: there are no delegation tokens here.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.delegation_tokens import NO_TIME, no_tokens
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@dataclass(eq=False)
class RenewDelegationTokenHandler(Handler[RenewDelegationTokenRequest, RenewDelegationTokenResponse]):
    request = RenewDelegationTokenRequest

    def handle(self, context: RequestContext, request: RenewDelegationTokenRequest) -> None:
        raise no_tokens(context)

    def failed(
        self, context: RequestContext, request: RenewDelegationTokenRequest, error: BrokerError
    ) -> RenewDelegationTokenResponse:
        return RenewDelegationTokenResponse(
            error_code=error.code, expiry_timestamp_ms=NO_TIME, throttle_time_ms=0
        )
