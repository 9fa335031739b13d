"""The states of a connection to a SASL listener, and what each event does in each of them. Pure.

A client chooses a mechanism (SaslHandshake), exchanges tokens, and may then send any request. It may
authenticate again on the same connection (KIP-368). SaslHandshake of version 0 is followed by raw tokens:
frames without headers. What Kafka does not expect in a state ends the connection without an answer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple


class SaslState(enum.Enum):
    """Where a connection is in its authentication."""

    NEW = "waits for a handshake"
    TOKENS = "exchanges tokens"
    RAW_TOKENS = "exchanges tokens without headers"
    AUTHENTICATED = "is authenticated"
    RENEWING = "authenticates again"
    FAILED = "has failed"


class SaslEvent(enum.Enum):
    """What the client sends, and what becomes of its tokens."""

    VERSIONS = enum.auto()
    """ApiVersions."""
    HANDSHAKE = enum.auto()
    """SaslHandshake of a mechanism that the client may use."""
    RAW_HANDSHAKE = enum.auto()
    """The same in version 0."""
    BAD_HANDSHAKE = enum.auto()
    """SaslHandshake of another mechanism: one that is not enabled, or not the one before."""
    HASTY_HANDSHAKE = enum.auto()
    """SaslHandshake less than a second after the last authentication."""
    TOKEN = enum.auto()
    """SaslAuthenticate, or a frame while tokens are raw."""
    REQUEST = enum.auto()
    """Any other request."""
    LATE_REQUEST = enum.auto()
    """Any request but SaslHandshake, after the end of the session."""
    CHALLENGED = enum.auto()
    """The mechanism wants another token."""
    ACCEPTED = enum.auto()
    """The mechanism knows who the client is."""
    REFUSED = enum.auto()
    """The mechanism refuses the client."""
    TIMED_OUT = enum.auto()
    """The authentication has taken too long."""


class SaslAction(enum.Enum):
    """What to do about an event."""

    HANDLE = enum.auto()
    """Handle the request as on any other listener."""
    BEGIN = enum.auto()
    """Answer the handshake, and begin with its mechanism."""
    EVALUATE = enum.auto()
    """Give the token to the mechanism."""
    CHALLENGE = enum.auto()
    """Answer with the mechanism's token."""
    ADMIT = enum.auto()
    """Answer, and let the client do what its principal may."""
    FAIL = enum.auto()
    """Answer with the reason, later, and close the connection."""
    DECLINE = enum.auto()
    """Answer ILLEGAL_SASL_STATE; the connection stays."""
    CLOSE = enum.auto()
    """Close the connection without an answer."""
    NOTHING = enum.auto()


class Cell(NamedTuple):
    action: SaslAction
    next: SaslState


_S, _A = SaslState, SaslAction
_CLOSED = Cell(_A.CLOSE, _S.FAILED)
_FAILED = Cell(_A.FAIL, _S.FAILED)


def _waiting_for_tokens(state: SaslState) -> dict[SaslEvent, Cell]:
    return {
        SaslEvent.VERSIONS: _CLOSED,
        SaslEvent.HANDSHAKE: _CLOSED,
        SaslEvent.RAW_HANDSHAKE: _CLOSED,
        SaslEvent.BAD_HANDSHAKE: _CLOSED,
        SaslEvent.HASTY_HANDSHAKE: _CLOSED,
        SaslEvent.TOKEN: Cell(_A.EVALUATE, state),
        SaslEvent.REQUEST: _CLOSED,
        SaslEvent.LATE_REQUEST: _CLOSED,
        SaslEvent.CHALLENGED: Cell(_A.CHALLENGE, state),
        SaslEvent.ACCEPTED: Cell(_A.ADMIT, _S.AUTHENTICATED),
        SaslEvent.REFUSED: _FAILED,
        SaslEvent.TIMED_OUT: _CLOSED,
    }


TABLE: Mapping[SaslState, Mapping[SaslEvent, Cell]] = {
    _S.NEW: {
        SaslEvent.VERSIONS: Cell(_A.HANDLE, _S.NEW),
        SaslEvent.HANDSHAKE: Cell(_A.BEGIN, _S.TOKENS),
        SaslEvent.RAW_HANDSHAKE: Cell(_A.BEGIN, _S.RAW_TOKENS),
        SaslEvent.BAD_HANDSHAKE: _FAILED,
        SaslEvent.HASTY_HANDSHAKE: _CLOSED,
        SaslEvent.TOKEN: _CLOSED,
        SaslEvent.REQUEST: _CLOSED,
        SaslEvent.LATE_REQUEST: _CLOSED,
        SaslEvent.CHALLENGED: _CLOSED,
        SaslEvent.ACCEPTED: _CLOSED,
        SaslEvent.REFUSED: _FAILED,
        SaslEvent.TIMED_OUT: _CLOSED,
    },
    _S.TOKENS: _waiting_for_tokens(_S.TOKENS),
    _S.RAW_TOKENS: _waiting_for_tokens(_S.RAW_TOKENS),
    _S.AUTHENTICATED: {
        SaslEvent.VERSIONS: Cell(_A.HANDLE, _S.AUTHENTICATED),
        SaslEvent.HANDSHAKE: Cell(_A.BEGIN, _S.RENEWING),
        SaslEvent.RAW_HANDSHAKE: Cell(_A.DECLINE, _S.AUTHENTICATED),
        SaslEvent.BAD_HANDSHAKE: _FAILED,
        SaslEvent.HASTY_HANDSHAKE: Cell(_A.DECLINE, _S.AUTHENTICATED),
        SaslEvent.TOKEN: Cell(_A.DECLINE, _S.AUTHENTICATED),
        SaslEvent.REQUEST: Cell(_A.HANDLE, _S.AUTHENTICATED),
        SaslEvent.LATE_REQUEST: _CLOSED,
        SaslEvent.CHALLENGED: _CLOSED,
        SaslEvent.ACCEPTED: _CLOSED,
        SaslEvent.REFUSED: _FAILED,
        SaslEvent.TIMED_OUT: Cell(_A.NOTHING, _S.AUTHENTICATED),
    },
    _S.RENEWING: _waiting_for_tokens(_S.RENEWING),
    _S.FAILED: {event: Cell(_A.NOTHING, _S.FAILED) for event in SaslEvent},
}
"""For each state and event: what to do, and the state after it."""


class SaslMachine:
    """The state of one connection."""

    def __init__(self) -> None:
        self.state = SaslState.NEW

    def on(self, event: SaslEvent) -> SaslAction:
        """What to do about an event."""
        action, self.state = TABLE[self.state][event]
        return action
