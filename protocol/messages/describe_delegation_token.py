"""DescribeDelegationToken: the tokens of some principals, or of all (KIP-48)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str
    principal_name: str


@struct
class DescribedDelegationToken:
    """One token; `hmac` is its secret."""

    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire("3+", default="", ignorable=True)
    token_requester_principal_name: str = wire("3+", default="", ignorable=True)
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: bytes
    renewers: list[DescribedDelegationTokenRenewer]


@struct
class DescribeDelegationTokenResponse(Response):
    error_code: Int16
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: Int32


@struct
class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str


@request(key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest(Request[DescribeDelegationTokenResponse]):
    """Without `owners` all tokens are asked for."""

    owners: list[DescribeDelegationTokenOwner] | None
