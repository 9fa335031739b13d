"""SaslHandshake: choose a SASL mechanism (KIP-43)."""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, struct


@struct
class SaslHandshakeResponse(Response):
    error_code: Int16
    mechanisms: list[str]


@request(key=17, versions="0-1", flexible="none")
class SaslHandshakeRequest(Request[SaslHandshakeResponse]):
    mechanism: str
