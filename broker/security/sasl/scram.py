"""SCRAM (RFC 5802), from the server's side: it needs two HMACs, and no password.

A name that no user has gets an exchange like any other, up to the refusal of the proof: with a salt that
belongs to that name, on every broker and each time. So nobody learns which users exist.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

from holdfast_log.broker.security.sasl.outcomes import Challenge, Identified, SaslOutcome, SaslRefused
from holdfast_log.protocol.sasl.mechanisms import SaslError
from holdfast_log.protocol.sasl.scram import (
    ClientFirst,
    ScramCredential,
    ScramMechanism,
    ServerFirst,
    auth_message,
    encode_server_final,
    is_proof,
    new_salt,
    parse_client_final,
    parse_client_first,
    server_signature,
)


def decoy(secret: bytes, mechanism: ScramMechanism, user: str, iterations: int) -> ScramCredential:
    """What stands in for the credential of a user who has none: always the same for a name, and not to be
    told from a real one without the secret."""

    def derived(what: str) -> bytes:
        return hmac.digest(secret, f"{mechanism.sasl_name} {what} {user}".encode(), "sha512")

    size = mechanism.digest_bytes
    return ScramCredential(
        new_salt(derived("salt")), derived("stored key")[:size], derived("server key")[:size], iterations
    )


class ScramServer:
    """One authentication. `credential` returns what is known of a user, None for nothing, and `stand_in` a
    decoy; `nonce` makes the server's part of the nonce, which nobody can guess."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential: Callable[[str], ScramCredential | None],
        stand_in: Callable[[str], ScramCredential],
        nonce: Callable[[], str],
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential
        self._stand_in = stand_in
        self._new_nonce = nonce
        self._first: ClientFirst | None = None
        self._answer = ServerFirst("", b"", 0)
        self._credential: ScramCredential | None = None
        self._decoy: ScramCredential | None = None

    def evaluate(self, token: bytes) -> SaslOutcome:
        try:
            return self._begin(token) if self._first is None else self._judge(self._first, token)
        except SaslError as error:
            raise self._refused(str(error)) from None

    def _begin(self, token: bytes) -> Challenge:
        first = parse_client_first(token)
        if first.authzid not in (None, "", first.user):
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if any(each.lower() == "tokenauth=true" for each in first.extensions):
            raise SaslRefused(
                "Authentication failed: delegation tokens are not enabled on this broker: use a user's "
                "password"
            )
        self._first = first
        # Both are looked up for every name, so that the answer takes the same time.
        self._credential, self._decoy = self._credential_of(first.user), self._stand_in(first.user)
        shown = self._credential or self._decoy
        self._answer = ServerFirst(first.nonce + self._new_nonce(), shown.salt, shown.iterations)
        return Challenge(self._answer.text().encode())

    def _judge(self, first: ClientFirst, token: bytes) -> Identified:
        final = parse_client_final(token)
        if final.binding != first.gs2.encode():
            raise SaslError("it does not repeat the header of its first message")
        if final.nonce != self._answer.nonce:
            raise SaslError("its nonce is not the one of this exchange")
        assert self._decoy is not None
        credential = self._credential or self._decoy
        signed = auth_message(first.bare, self._answer.text(), final.bare)
        is_right = is_proof(self._mechanism, credential, signed, final.proof)
        if not is_right or self._credential is None:
            raise SaslError(f"wrong password, or no such user: {first.user[:100]!r}")
        signature = server_signature(self._mechanism, credential.server_key, signed)
        return Identified(first.user, encode_server_final(signature), credential=credential)

    def _refused(self, reason: str) -> SaslRefused:
        name = self._mechanism.sasl_name
        return SaslRefused(
            "Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{name}",
            reason,
        )
