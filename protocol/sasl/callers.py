"""The caller's side of each mechanism: the messages that it sends, and what it makes of the answers."""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable
from typing import Protocol

from holdfast_log.protocol.sasl.mechanisms import OAUTHBEARER, PLAIN, SaslError
from holdfast_log.protocol.sasl.scram import (
    ITERATIONS_ACCEPTED_MAX,
    ITERATIONS_MIN,
    ClientFirst,
    ScramMechanism,
    auth_message,
    client_final_bare,
    client_key,
    client_proof,
    parse_server_final,
    parse_server_first,
    salted_password,
    server_key,
    server_signature,
)

_NONCE_BYTES = 24
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


class SaslCaller(Protocol):
    """One authentication, from the caller's side. Make a new one for each."""

    mechanism: str

    def first(self) -> bytes:
        """The first token."""
        ...

    def answered(self, token: bytes) -> bytes | None:
        """The token that follows this answer; None if the exchange has ended well. Raises SaslError."""
        ...


class PlainCaller:
    """PLAIN (RFC 4616): name and password as they are. Use it over TLS only."""

    mechanism = PLAIN

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password}".encode()

    def answered(self, token: bytes) -> bytes | None:
        return None


class ScramPasswords:
    """Derives a user's keys, and keeps the last ones for the user's next connection."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password
        self._last: tuple[bytes, int, bytes] | None = None

    def salted(self, salt: bytes, iterations: int) -> bytes:
        last = self._last
        if last is None or last[:2] != (salt, iterations):
            salted = salted_password(self.mechanism, self._password, salt, iterations)
            last = self._last = (salt, iterations, salted)
        return last[2]


class ScramCaller:
    """SCRAM: proves the password without sending it, and has the server prove that it knows the user.

    Refuses a server that asks for fewer than 4,096 iterations: somebody between both could try out
    passwords with the proof.
    """

    def __init__(self, passwords: ScramPasswords, nonce: str | None = None) -> None:
        self.mechanism = passwords.mechanism.sasl_name
        self._passwords = passwords
        self._first = ClientFirst.of(passwords.user, nonce or secrets.token_urlsafe(_NONCE_BYTES))
        self._expected: bytes | None = None
        """The server's signature, once the proof is sent."""

    def first(self) -> bytes:
        return self._first.encode()

    def answered(self, token: bytes) -> bytes | None:
        if self._expected is not None:
            if not hmac.compare_digest(parse_server_final(token), self._expected):
                raise SaslError("it has not proved that it knows this user's credential")
            return None
        return self._prove(token)

    def _prove(self, token: bytes) -> bytes:
        mechanism, mine = self._passwords.mechanism, self._first
        answer = parse_server_first(token)
        if not answer.nonce.startswith(mine.nonce) or len(answer.nonce) == len(mine.nonce):
            raise SaslError("its nonce does not continue this client's")
        if not ITERATIONS_MIN <= answer.iterations <= ITERATIONS_ACCEPTED_MAX:
            raise SaslError(
                f"it asks for {answer.iterations} iterations; from {ITERATIONS_MIN} to "
                f"{ITERATIONS_ACCEPTED_MAX} are accepted"
            )
        salted = self._passwords.salted(answer.salt, answer.iterations)
        bare = client_final_bare(mine.gs2, answer.nonce)
        signed = auth_message(mine.bare, token.decode(), bare)
        self._expected = server_signature(mechanism, server_key(mechanism, salted), signed)
        return f"{bare},p={_base64(client_proof(mechanism, client_key(mechanism, salted), signed))}".encode()


class OAuthBearerCaller:
    """OAUTHBEARER (RFC 7628): a token that somebody else has issued. Use it over TLS only.

    `token` is called once, for a token that is valid now.
    """

    mechanism = OAUTHBEARER

    def __init__(self, token: Callable[[], str], extensions: dict[str, str] | None = None) -> None:
        self._token = token
        self._extensions = extensions or {}

    def first(self) -> bytes:
        token = self._token()
        if not _TOKEN.fullmatch(token):
            raise SaslError(
                "the token to send is not one: expected letters, digits and -._~+/, maybe = at its end"
            )
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()

    def answered(self, token: bytes) -> bytes | None:
        # An answer with text is a refusal, which the next token ends.
        return b"\x01" if token else None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
