"""Whose a token is: a JWT, verified with the public keys of who issues tokens (JWKS).

Only this file loads PyJWT, and only a broker with OAUTHBEARER loads this file.
"""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Mapping
from typing import Any
from urllib.request import Request, urlopen

import jwt
from twisted.internet.defer import Deferred, fail, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.security.sasl.oauthbearer import TokenRefused, TokenRules
from holdfast_log.broker.security.sasl.outcomes import Identified
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.clock import Clock, TimeOfDay

_log = logging.getLogger(__name__)

_ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Those with a private key. With the others, who can verify a token can make one."""
_BYTES_MAX = 1024 * 1024
_TIMEOUT_S = 10.0
_PAUSE_S = 10.0
"""Minimum time between two attempts to fetch keys: tokens with unknown keys must not make a flood."""
_SHOWN = 100


class SigningKeys:
    """The keys at `url` (https:, http: or file:), by their ids, whose publisher has a certificate of the
    authorities in `truststore` (None: of the system's). A worker fetches them at first use, when they
    are older than `refresh_ms`, and when a token names one that is not there."""

    def __init__(
        self, url: str, refresh_ms: int, workers: Workers, clock: Clock, truststore: str | None = None
    ) -> None:
        self._url = url
        self._truststore = truststore
        self._refresh_ms = refresh_ms
        self._workers = workers
        self._clock = clock
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._waiting: list[Deferred[None]] | None = None
        """Who waits for the fetch under way; None: there is none."""

    def find(self, key_id: str | None) -> Deferred[jwt.PyJWK | None]:
        """The key with this id; the only key if a token names none. None if there is no such key."""
        key = self._known(key_id)
        age_s = None if self._fetched_s is None else self._clock.seconds() - self._fetched_s
        if key is not None and age_s is not None and age_s < self._refresh_ms / 1000:
            return succeed(key)
        if key is not None:
            self._fetch()  # For later tokens; this one is verified with the key that is known.
            return succeed(key)
        return self._fetch().addCallback(lambda _: self._known(key_id))

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is not None:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _fetch(self) -> Deferred[None]:
        """Fetch the keys, unless that was tried a moment ago. Never fails: then the keys are as before."""
        now_s = self._clock.seconds()
        if self._waiting is None:
            if self._tried_s is not None and now_s < self._tried_s + _PAUSE_S:
                return succeed(None)
            self._waiting = []
            self._tried_s = now_s
            fetching = self._workers.run(read_keys, self._url, self._truststore)
            fetching.addCallbacks(self._fetched, self._failed).addBoth(self._done)
        return self._end_of_fetch()

    def _end_of_fetch(self) -> Deferred[None]:
        if self._waiting is None:
            return succeed(None)
        done: Deferred[None] = Deferred()
        self._waiting.append(done)
        return done

    def _fetched(self, keys: Mapping[str, jwt.PyJWK]) -> None:
        self._keys = keys
        self._fetched_s = self._clock.seconds()

    def _failed(self, failure: Failure) -> None:
        _log.error(
            "The keys for OAUTHBEARER cannot be fetched from %s (sasl.oauthbearer.jwks.endpoint.url): %s",
            self._url,
            failure.getErrorMessage()[:500],
        )

    def _done(self, _: object) -> None:
        waiting, self._waiting = self._waiting or [], None
        for each in waiting:
            each.callback(None)


def read_keys(url: str, truststore: str | None = None) -> dict[str, jwt.PyJWK]:
    """Fetch the keys, in a worker. Keys that cannot sign, or are of an unknown kind, are left out. The
    certificate of an https URL must be for its host.

    Raises OSError and ValueError."""
    asked = Request(url, headers={"Accept": "application/json"})
    context = ssl.create_default_context(cafile=truststore)
    with urlopen(asked, timeout=_TIMEOUT_S, context=context) as answer:
        data = answer.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError(f"it has more than {_BYTES_MAX} bytes")
    return parse_keys(data)


def parse_keys(data: bytes) -> dict[str, jwt.PyJWK]:
    """The keys of a JWKS, by their ids. Raises ValueError."""
    import json

    found: dict[str, jwt.PyJWK] = {}
    listed = json.loads(data)
    if not isinstance(listed, dict) or not isinstance(listed.get("keys"), list):
        raise ValueError("it is not a list of keys (JWKS)")
    for number, each in enumerate(listed["keys"]):
        if not isinstance(each, dict) or each.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict(each)
        except jwt.PyJWTError:
            continue
        if key.algorithm_name in _ALGORITHMS:
            found[str(each.get("kid", f"(key {number})"))] = key
    if not found:
        raise ValueError("it has no public key with which signatures can be verified")
    return found


class Tokens:
    """Verifies tokens by `rules`."""

    def __init__(self, rules: TokenRules, workers: Workers, clock: Clock, date_ms: TimeOfDay) -> None:
        self._rules = rules
        self._date_ms = date_ms
        self._keys = SigningKeys(rules.url, rules.refresh_ms, workers, clock, rules.truststore)

    def validate(self, token: str) -> Deferred[Identified]:
        """Whose the token is. Fails with TokenRefused."""
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            return fail(TokenRefused("the token is not a signed JWT"))
        key_id = header.get("kid")
        if header.get("alg") not in _ALGORITHMS or not isinstance(key_id, str | None):
            return fail(TokenRefused(f"the token is signed by {str(header.get('alg'))[:_SHOWN]!r}"))
        return self._keys.find(key_id).addCallback(functools.partial(self._verified, token, key_id))

    def _verified(self, token: str, key_id: str | None, key: jwt.PyJWK | None) -> Identified:
        if key is None:
            shown = "no key" if key_id is None else f"the key {key_id[:_SHOWN]!r}"
            raise TokenRefused(f"the token names {shown}, which is not at sasl.oauthbearer.jwks.endpoint.url")
        rules = self._rules
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=rules.audience or None,
                issuer=rules.issuer,
                options={
                    "require": ["exp", rules.subject_claim],
                    "verify_aud": bool(rules.audience),
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,
                },
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(f"the token is not valid: {str(error)[:_SHOWN]}") from None
        return self._identified(claims)

    def _identified(self, claims: Mapping[str, Any]) -> Identified:
        # Times are compared here, with the broker's own clock.
        now_ms, skew_ms = self._date_ms(), self._rules.skew_seconds * 1000
        expires_ms, begins_ms = _ms(claims, "exp", 0), _ms(claims, "nbf", 0)
        if now_ms >= expires_ms + skew_ms:
            raise TokenRefused("the token has expired")
        if now_ms < begins_ms - skew_ms:
            raise TokenRefused("the token is not valid yet: its time and this broker's clock differ")
        user = claims[self._rules.subject_claim]
        if not isinstance(user, str) or not user:
            raise TokenRefused(f"the token's claim {self._rules.subject_claim} is no name")
        return Identified(user, expires_ms=expires_ms + skew_ms)


def _ms(claims: Mapping[str, Any], name: str, default: int) -> int:
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise TokenRefused(f"the token's claim {name} is no time")
    return int(value * 1000)
