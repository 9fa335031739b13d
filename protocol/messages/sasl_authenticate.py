"""SaslAuthenticate: the tokens of the chosen SASL mechanism (KIP-152, KIP-368)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int64, struct, wire


@struct
class SaslAuthenticateResponse(Response):
    """`session_lifetime_ms` is 0 if the client need not authenticate again (KIP-368)."""

    error_code: Int16
    error_message: str | None = None
    auth_bytes: bytes
    session_lifetime_ms: Int64 = wire("1+", ignorable=True)


@request(key=36, versions="0-2", flexible="2+")
class SaslAuthenticateRequest(Request[SaslAuthenticateResponse]):
    auth_bytes: bytes
