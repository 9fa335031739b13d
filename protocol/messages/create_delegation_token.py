"""CreateDelegationToken: a token to authenticate with in place of a password (KIP-48)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct, wire


@struct
class CreateDelegationTokenResponse(Response):
    """`hmac` is the secret of the token. Times are in ms since 1970, -1 with an error."""

    error_code: Int16
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire("3+", default="", ignorable=True)
    token_requester_principal_name: str = wire("3+", default="", ignorable=True)
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: bytes
    throttle_time_ms: Int32


@struct
class CreatableRenewers:
    principal_type: str
    principal_name: str


@request(key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest(Request[CreateDelegationTokenResponse]):
    """Without an owner the token is the requester's. `max_lifetime_ms` of -1 is the broker's default."""

    owner_principal_type: str | None = wire("3+", default=None)
    owner_principal_name: str | None = wire("3+", default=None)
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64
