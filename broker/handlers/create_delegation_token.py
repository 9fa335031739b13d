"""CreateDelegationToken (key 38): a token to authenticate with (KIP-48). Refused: there are no delegation
tokens here. As in Kafka the answer names the owner that the token would have had, and who has asked."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.requests.delegation_tokens import NO_TIME, no_tokens
from holdfast_log.broker.requests.handler import Handler, RequestContext
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


@dataclass(eq=False)
class CreateDelegationTokenHandler(Handler[CreateDelegationTokenRequest, CreateDelegationTokenResponse]):
    request = CreateDelegationTokenRequest

    def handle(self, context: RequestContext, request: CreateDelegationTokenRequest) -> None:
        raise no_tokens(context)

    def failed(
        self, context: RequestContext, request: CreateDelegationTokenRequest, error: BrokerError
    ) -> CreateDelegationTokenResponse:
        kind, _, name = context.principal.partition(":")
        owner_kind, owner = kind, name
        if request.owner_principal_name:
            owner_kind, owner = request.owner_principal_type or "", request.owner_principal_name
        return CreateDelegationTokenResponse(
            error_code=error.code,
            principal_type=owner_kind,
            principal_name=owner,
            token_requester_principal_type=kind,
            token_requester_principal_name=name,
            issue_timestamp_ms=NO_TIME,
            expiry_timestamp_ms=NO_TIME,
            max_timestamp_ms=NO_TIME,
            token_id="",
            hmac=b"",
            throttle_time_ms=0,
        )
