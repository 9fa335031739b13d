"""DescribeDelegationToken (key 41): list tokens (KIP-48).

Refused: there are no delegation tokens here.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.delegation_tokens import no_tokens
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@dataclass(eq=False)
class DescribeDelegationTokenHandler(
    Handler[DescribeDelegationTokenRequest, DescribeDelegationTokenResponse]
):
    request = DescribeDelegationTokenRequest

    def handle(self, context: RequestContext, request: DescribeDelegationTokenRequest) -> None:
        raise no_tokens(context)

    def failed(
        self, context: RequestContext, request: DescribeDelegationTokenRequest, error: BrokerError
    ) -> DescribeDelegationTokenResponse:
        return DescribeDelegationTokenResponse(error_code=error.code, tokens=[], throttle_time_ms=0)
