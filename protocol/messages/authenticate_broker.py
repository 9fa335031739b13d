"""AuthenticateBroker: a broker proves to another one that both have the cluster's secret, and is given the
same proof.

Holdfast's own, between brokers. The exchange has two requests on one connection. The first has the caller's
nonce and gets the answerer's; the second has the caller's proof and gets the answerer's. Who cannot prove
that it has the secret learns nothing from the answerer that was made with it.
"""

from __future__ import annotations

from holdfast_log.protocol.api import Request, Response, request
from holdfast_log.protocol.schema import Int16, Int32, struct


@struct
class AuthenticateBrokerResponse(Response):
    """`proof` is empty in the answer to the first request."""

    error_code: Int16
    error_message: str | None = None
    nonce: bytes = b""
    proof: bytes = b""


@request(key=30031, versions="0", flexible="0+", internal=True)
class AuthenticateBrokerRequest(Request[AuthenticateBrokerResponse]):
    """`proof` is empty in the first request. Both requests of an exchange have the same id and nonce."""

    broker_id: Int32
    nonce: bytes
    proof: bytes = b""
