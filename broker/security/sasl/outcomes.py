"""What a mechanism makes of a client's token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from twisted.internet.defer import Deferred

from holdfast_log.protocol.sasl.scram import ScramCredential


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on: the client has to answer this token."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Identified:
    """The client has proved to be this user. `expires_ms` is the time of day at which the proof ends; None:
    never. `credential` is what the proof was compared with, if that can change while the broker runs."""

    user: str
    token: bytes = b""
    expires_ms: int | None = None
    credential: ScramCredential | None = None


class SaslRefused(Exception):
    """The client is refused. The text is for the client, and tells nothing about users; `reason` is for the
    broker's log."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


SaslOutcome: TypeAlias = Challenge | Identified


class SaslServer(Protocol):
    """One authentication by one mechanism, from the server's side."""

    def evaluate(self, token: bytes) -> SaslOutcome | Deferred[SaslOutcome]:
        """What follows the client's token. Raises SaslRefused, or the Deferred fails with it."""
        ...
