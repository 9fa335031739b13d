"""OAUTHBEARER (RFC 7628): the client brings a token (JWT) that somebody else has signed.

A token that is not valid gets a text that says so; the client answers it, and is then refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.security.sasl.outcomes import Challenge, Identified, SaslOutcome, SaslRefused

VerifyToken: TypeAlias = "Callable[[str], Deferred[Identified]]"
"""Says whose a token is; the Deferred fails with `TokenRefused`."""

_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01", re.DOTALL
)
_BEARER = re.compile(rb"[Bb]earer (?P<token>[A-Za-z0-9\-._~+/]+=*)")
_INVALID = b'{"status":"invalid_token"}'
_REFUSAL = '{"status":"invalid_token"}'


class TokenRefused(Exception):
    """The token is not valid; the text is for the broker's log, and has no part of the token."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """Which tokens are valid. Without `audience` and `issuer` any is accepted. Times may differ by
    `skew_seconds`. The claim `subject_claim` has the user's name. `truststore` is a file with the authorities
    that may have signed the certificate of an https `url`; None: those of the system."""

    url: str
    refresh_ms: int
    audience: tuple[str, ...]
    issuer: str | None
    skew_seconds: int
    subject_claim: str
    truststore: str | None = None


class OAuthBearerServer:
    """One authentication. `validate` says whose a token is; its Deferred fails with `TokenRefused`."""

    def __init__(self, validate: VerifyToken) -> None:
        self._validate = validate
        self._refused: str | None = None
        """Why the token was refused."""

    def evaluate(self, token: bytes) -> SaslOutcome | Deferred[SaslOutcome]:
        if self._refused is not None:
            raise SaslRefused(_REFUSAL, self._refused)
        match = _FIRST.fullmatch(token)
        if match is None:
            raise SaslRefused("Authentication failed: the first message is not one of OAUTHBEARER")
        pairs = dict(pair.partition(b"=")[::2] for pair in match["pairs"].split(b"\x01") if pair)
        bearer = _BEARER.fullmatch(pairs.get(b"auth", b""))
        if bearer is None:
            raise SaslRefused("Authentication failed: the first message has no bearer token")
        authzid = (match["authzid"] or b"").decode(errors="replace")
        found = self._validate(bearer["token"].decode())
        return found.addCallbacks(lambda whose: _same(whose, authzid), self._not_valid)

    def _not_valid(self, failure: Failure) -> SaslOutcome:
        failure.trap(TokenRefused)
        self._refused = failure.getErrorMessage()
        return Challenge(_INVALID)


def _same(whose: Identified, authzid: str) -> SaslOutcome:
    if authzid not in ("", whose.user):
        raise SaslRefused(
            "Authentication failed: Client requested an authorization id that is different from the token's "
            "principal name"
        )
    return whose
