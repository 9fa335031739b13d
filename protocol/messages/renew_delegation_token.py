"""RenewDelegationToken: let a token, named by its secret, be valid for longer (KIP-48)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, Int64, struct


@struct
class RenewDelegationTokenResponse(Response):
    """`expiry_timestamp_ms` is in ms since 1970, -1 with an error."""

    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32


@request(key=39, versions="0-2", flexible="2+")
class RenewDelegationTokenRequest(Request[RenewDelegationTokenResponse]):
    hmac: bytes
    renew_period_ms: Int64
