"""How requests for delegation tokens (KIP-48) are refused: this broker has none, like a Kafka broker without
`delegation.token.secret.key`."""

from __future__ import annotations

from holdfast_log.broker.network.connection import ANONYMOUS
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.protocol.errors import BrokerError, ErrorCode

NO_TIME = -1
"""Stands for a time of a token in an answer that refuses it."""


def no_tokens(context: RequestContext) -> BrokerError:
    """The error for any request about tokens. As in Kafka a client that has not proved who it is may not ask
    at all; everybody else learns that there are none."""
    if context.principal == ANONYMOUS:
        return BrokerError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens are for clients that have proved who they are",
        )
    return BrokerError(
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
        "this broker has no delegation tokens: use SCRAM or OAUTHBEARER",
    )
