"""An authentication as requests and responses: SaslHandshake, then SaslAuthenticate until it is over."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode, error_for
from holdfast_log.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from holdfast_log.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from holdfast_log.protocol.sasl.callers import SaslCaller
from holdfast_log.protocol.sasl.mechanisms import SaslError

_STEPS_MAX = 8
"""More than any mechanism has."""


def sasl_exchange(caller: SaslCaller) -> Generator[Request[Any], Response, int]:
    """Yields requests and is sent their responses. Returns the time in ms after which the broker wants
    another authentication; 0: never.

    Raises BrokerError UNSUPPORTED_SASL_MECHANISM or SASL_AUTHENTICATION_FAILED, which say what to do.
    """
    mechanism = caller.mechanism
    chosen = yield SaslHandshakeRequest(mechanism=mechanism)
    assert isinstance(chosen, SaslHandshakeResponse)
    if chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(chosen.mechanisms) or "none"
        raise error_for(
            chosen.error_code,
            f"the broker does not offer the SASL mechanism {mechanism} at this address, only {offered}: set "
            "sasl.mechanism to one of them, or sasl.enabled.mechanisms of the broker",
        )
    if chosen.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise error_for(
            chosen.error_code,
            "the broker wants no SASL at this address: set security.protocol to that of the listener",
        )
    if chosen.error_code:
        raise error_for(chosen.error_code)
    return (yield from _exchange(caller))


def _exchange(caller: SaslCaller) -> Generator[Request[Any], Response, int]:
    try:
        token = caller.first()
        for _ in range(_STEPS_MAX):
            answer = yield SaslAuthenticateRequest(auth_bytes=token)
            assert isinstance(answer, SaslAuthenticateResponse)
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message)
            following = caller.answered(bytes(answer.auth_bytes))
            if following is None:
                return answer.session_lifetime_ms
            token = following
        raise SaslError(f"{caller.mechanism} did not end after {_STEPS_MAX} steps")
    except SaslError as error:  # What the broker said, or what this side lacks.
        raise error_for(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"this client has ended the authentication by {caller.mechanism}: {error}",
        ) from None
