"""PLAIN (RFC 4616): users and passwords from the broker's settings."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from holdfast_log.broker.security.sasl.outcomes import Identified, SaslRefused

_USER_OPTION = "user_"
_WRONG = "Authentication failed: Invalid username or password"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """The passwords by user, from the options `user_<name>="<password>"` of a login module."""
    return {
        name.removeprefix(_USER_OPTION): password
        for name, password in options.items()
        if name.startswith(_USER_OPTION) and name != _USER_OPTION
    }


class PlainServer:
    """One authentication by name and password. Takes the same time whether the user exists or not."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users

    def evaluate(self, token: bytes) -> Identified:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise SaslRefused(
                "Authentication failed: Invalid SASL/PLAIN response: expected 3 tokens",
                f"a token of PLAIN has three parts, this one has {len(parts)}",
            )
        try:
            authzid, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslRefused(_WRONG, "the token is not UTF-8") from None
        if not user or not password:
            what = "username" if not user else "password"
            raise SaslRefused(f"Authentication failed: {what} not specified")
        expected = self._users.get(user, "")
        is_right = hmac.compare_digest(_hashed(password), _hashed(expected))
        if not is_right or not expected:
            raise SaslRefused(_WRONG, f"wrong password, or no such user: {user[:100]!r}")
        if authzid not in ("", user):
            raise SaslRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Identified(user)


def _hashed(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
