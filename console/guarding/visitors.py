"""Visitors and those who have logged in: cookies, tokens of forms, sessions with their bounds."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

COOKIE = "holdfast-console"
SESSIONS_MAX = 500
IDLE_S = 30 * 60.0
"""How long somebody may be away before the login ends."""
AGE_MAX_S = 12 * 60 * 60.0
FAILURES_MAX = 5
"""How many wrong logins in a row one address has before it waits."""
FAILURES_PAUSE_S = 30.0
LIVE = "x-holdfast-live"
"""The header of requests that the script sends to renew a page: they do not count as somebody being there."""
_ADDRESSES_MAX = 2_000
_ID_CHARS = 43
"""The length of an id of 32 random bytes."""


@dataclass(slots=True)
class Visitor:
    """Somebody with a browser. `user` is empty for those who have not logged in; `properties` are what their
    clients log in with."""

    id: str
    user: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    since_s: float = 0.0
    seen_s: float = 0.0
    is_new: bool = False


class Visitors:
    """Knows visitors by their cookie. Logins are kept in memory, so they end with the console."""

    def __init__(self, *, is_secure: bool, steady: Callable[[], float] = time.monotonic) -> None:
        self._is_secure = is_secure
        self._steady = steady
        self._secret = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, Visitor] = OrderedDict()
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def of(self, request: Request) -> Visitor:
        """Who sends the request; somebody new if there is no usable cookie."""
        given = request.cookies.get(COOKIE, "")
        known = self._sessions.get(given)
        now_s = self._steady()
        if known is not None:
            if now_s - known.seen_s < IDLE_S and now_s - known.since_s < AGE_MAX_S:
                if LIVE not in request.headers:
                    known.seen_s = now_s
                return known
            del self._sessions[given]
            return self._new()
        return Visitor(given) if _may_be_id(given) else self._new()

    def log_in(self, user: str, properties: Mapping[str, Any]) -> Visitor:
        """A visitor with a new id, which nobody can have known before."""
        now_s = self._steady()
        visitor = Visitor(secrets.token_urlsafe(32), user, properties, now_s, now_s, is_new=True)
        self._sessions[visitor.id] = visitor
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return visitor

    def log_out(self, visitor: Visitor) -> Visitor:
        """Forget a login; the browser becomes somebody new."""
        self._sessions.pop(visitor.id, None)
        return self._new()

    def token(self, visitor: Visitor) -> str:
        """What this visitor's forms carry: no other site can know it."""
        return hmac.new(self._secret, visitor.id.encode(), hashlib.sha256).hexdigest()

    def has_token(self, visitor: Visitor, token: str) -> bool:
        return hmac.compare_digest(self.token(visitor).encode(), token.encode())

    def remember(self, visitor: Visitor, response: Response) -> None:
        """Set the cookie, if the browser does not have it yet. No script and no other site can use it."""
        if visitor.is_new:
            response.set_cookie(
                COOKIE, visitor.id, path="/", secure=self._is_secure, httponly=True, samesite="strict"
            )
            visitor.is_new = False

    # Failed logins ------------------------------------------------------------------------------------

    def wait_s(self, address: str) -> float:
        """How long an address has to wait until it may try to log in again."""
        count, last_s = self._failures.get(address, (0, 0.0))
        return max(0.0, last_s + FAILURES_PAUSE_S - self._steady()) if count >= FAILURES_MAX else 0.0

    def failed(self, address: str) -> None:
        count, _ = self._failures.pop(address, (0, 0.0))
        self._failures[address] = (count + 1, self._steady())
        while len(self._failures) > _ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def succeeded(self, address: str) -> None:
        self._failures.pop(address, None)

    def _new(self) -> Visitor:
        return Visitor(secrets.token_urlsafe(32), is_new=True)


def _may_be_id(given: str) -> bool:
    return (
        len(given) == _ID_CHARS and given.isascii() and all(each.isalnum() or each in "-_" for each in given)
    )
