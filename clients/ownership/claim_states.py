"""The phases of one claim and the transition table between them.

`clients.ownership.claim` turns answers, broken connections and the clock into inputs, and performs what each
transition calls for. Only `next_phase` reads the table. An input that the table does not list for a phase is
a bug in this client: every answer of a broker maps to a listed input.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from holdfast_log.clients.ownership.claim_requests import RequestKind
from holdfast_log.clients.ownership.events import ClaimState


class ClaimPhase(enum.Enum):
    """Where the client stands with one resource. Finer than ClaimState, which applications see."""

    UNCLAIMED = enum.auto()
    """No broker has this claim: none was sent, or the last one certainly got nothing."""
    CLAIMING = enum.auto()
    """A claim was sent. The broker may have granted or queued it even if no answer came."""
    QUEUED = enum.auto()
    """Another owner has the resource, or the grant is not committed yet."""
    HELD = enum.auto()
    """Granted on a connection that stood when the answer came."""
    DETACHED = enum.auto()
    """Granted on a connection that has broken, or by a broker that no longer decides: to be resumed."""
    RELEASING = enum.auto()
    """To be released; a grant or a place in the queue may exist."""
    PROBING = enum.auto()
    """To be released, but the broker knew of no grant: it may have granted the claim in between."""
    LOST = enum.auto()
    REFUSED = enum.auto()
    RELEASED = enum.auto()


class ClaimInput(enum.Enum):
    """What can happen to a claim."""

    SENT = enum.auto()
    """A request about it was sent."""
    GRANTED = enum.auto()
    """The broker answers that this owner has the resource."""
    QUEUED = enum.auto()
    """The broker answers that the claim waits in its queue."""
    TIMED_OUT = enum.auto()
    """The broker answers that its own time ran out: for the commit of a grant, or in the queue."""
    NOT_CLAIMED = enum.auto()
    """The broker answers that the claim got nothing, and it may be sent again."""
    MOVED = enum.auto()
    """The broker answers that it does not decide, or not on this connection."""
    BUSY = enum.auto()
    """The broker answers with any other temporary error."""
    FENCED = enum.auto()
    """The broker answers that the grant is no longer in force."""
    UNKNOWN = enum.auto()
    """The broker answers a claim without a grant as if it were fenced."""
    CUT = enum.auto()
    """The answer did not come, or the connection has broken, or another broker decides now."""
    DOUBTED = enum.auto()
    """The broker refused a record because it does not know the sender as owner."""
    FAILED = enum.auto()
    """A permanent error."""
    WAIT_EXPIRED = enum.auto()
    """The application's `wait_ms` has passed by the client's clock."""
    RELEASE = enum.auto()
    """The application releases the resource."""
    RELEASED = enum.auto()
    """The broker answers that nothing is left to release."""
    ABANDON = enum.auto()
    """The client stops asking: its connection closes, or a session timeout has passed since RELEASE."""


_P = ClaimPhase
_I = ClaimInput
_AFTER_THE_END = {_I.DOUBTED, _I.FAILED, _I.RELEASE, _I.ABANDON}
"""Inputs that may still reach a claim that has ended; its phase stays the same."""

TRANSITIONS: Mapping[ClaimPhase, Mapping[ClaimInput, ClaimPhase]] = {
    _P.UNCLAIMED: {
        _I.SENT: _P.CLAIMING,
        _I.DOUBTED: _P.UNCLAIMED,
        _I.FAILED: _P.REFUSED,
        _I.WAIT_EXPIRED: _P.REFUSED,
        _I.RELEASE: _P.RELEASED,
        _I.ABANDON: _P.RELEASED,
    },
    _P.CLAIMING: {
        _I.SENT: _P.CLAIMING,
        _I.GRANTED: _P.HELD,
        _I.QUEUED: _P.QUEUED,
        _I.TIMED_OUT: _P.QUEUED,  # The grant or the place in the queue stands: a renewal finds out which.
        _I.NOT_CLAIMED: _P.UNCLAIMED,
        _I.MOVED: _P.CLAIMING,
        _I.BUSY: _P.CLAIMING,
        _I.FENCED: _P.LOST,
        _I.UNKNOWN: _P.REFUSED,
        _I.CUT: _P.CLAIMING,
        _I.DOUBTED: _P.CLAIMING,
        _I.FAILED: _P.REFUSED,
        _I.WAIT_EXPIRED: _P.REFUSED,
        _I.RELEASE: _P.RELEASING,
        _I.ABANDON: _P.RELEASED,
    },
    _P.QUEUED: {
        _I.SENT: _P.QUEUED,
        _I.GRANTED: _P.HELD,
        _I.QUEUED: _P.QUEUED,
        _I.TIMED_OUT: _P.CLAIMING,  # Out of the queue by the broker's clock; the client's clock decides.
        _I.MOVED: _P.CLAIMING,  # The place in the queue is gone.
        _I.BUSY: _P.QUEUED,
        _I.FENCED: _P.LOST,
        _I.UNKNOWN: _P.REFUSED,
        _I.CUT: _P.CLAIMING,
        _I.DOUBTED: _P.QUEUED,
        _I.FAILED: _P.REFUSED,
        _I.RELEASE: _P.RELEASING,
        _I.ABANDON: _P.RELEASED,
    },
    _P.HELD: {
        _I.SENT: _P.HELD,
        _I.GRANTED: _P.HELD,
        _I.QUEUED: _P.QUEUED,
        _I.TIMED_OUT: _P.HELD,
        _I.MOVED: _P.DETACHED,
        _I.BUSY: _P.HELD,
        _I.FENCED: _P.LOST,
        _I.CUT: _P.DETACHED,
        _I.DOUBTED: _P.DETACHED,
        _I.FAILED: _P.LOST,
        _I.RELEASE: _P.RELEASING,
        _I.ABANDON: _P.RELEASED,
    },
    _P.DETACHED: {
        _I.SENT: _P.DETACHED,
        _I.GRANTED: _P.HELD,
        _I.QUEUED: _P.QUEUED,
        _I.TIMED_OUT: _P.DETACHED,
        _I.MOVED: _P.DETACHED,
        _I.BUSY: _P.DETACHED,
        _I.FENCED: _P.LOST,
        _I.CUT: _P.DETACHED,
        _I.DOUBTED: _P.DETACHED,
        _I.FAILED: _P.LOST,
        _I.RELEASE: _P.RELEASING,
        _I.ABANDON: _P.RELEASED,
    },
    _P.RELEASING: {
        _I.SENT: _P.RELEASING,
        _I.GRANTED: _P.RELEASING,  # The answer to the claim came late: now there is a grant to release.
        _I.QUEUED: _P.RELEASING,
        _I.TIMED_OUT: _P.RELEASING,
        _I.MOVED: _P.RELEASING,
        _I.BUSY: _P.RELEASING,
        _I.FENCED: _P.RELEASED,
        _I.UNKNOWN: _P.PROBING,
        _I.CUT: _P.RELEASING,
        _I.DOUBTED: _P.RELEASING,
        _I.FAILED: _P.RELEASED,
        _I.RELEASE: _P.RELEASING,
        _I.RELEASED: _P.RELEASED,
        _I.ABANDON: _P.RELEASED,
    },
    _P.PROBING: {
        _I.SENT: _P.PROBING,
        _I.GRANTED: _P.RELEASING,
        _I.QUEUED: _P.RELEASING,
        _I.TIMED_OUT: _P.RELEASED,  # Neither in the queue nor granted.
        _I.MOVED: _P.PROBING,
        _I.BUSY: _P.PROBING,
        _I.UNKNOWN: _P.RELEASED,
        _I.CUT: _P.PROBING,
        _I.DOUBTED: _P.PROBING,
        _I.FAILED: _P.RELEASED,
        _I.RELEASE: _P.PROBING,
        _I.RELEASED: _P.RELEASED,
        _I.ABANDON: _P.RELEASED,
    },
    _P.LOST: dict.fromkeys(_AFTER_THE_END, _P.LOST),
    _P.REFUSED: dict.fromkeys(_AFTER_THE_END, _P.REFUSED),
    _P.RELEASED: dict.fromkeys(_AFTER_THE_END, _P.RELEASED),
}

STATE_OF: Mapping[ClaimPhase, ClaimState] = {
    _P.UNCLAIMED: ClaimState.CLAIMING,
    _P.CLAIMING: ClaimState.CLAIMING,
    _P.QUEUED: ClaimState.QUEUED,
    _P.HELD: ClaimState.HELD,
    _P.DETACHED: ClaimState.DETACHED,
    _P.RELEASING: ClaimState.RELEASING,
    _P.PROBING: ClaimState.RELEASING,
    _P.LOST: ClaimState.LOST,
    _P.REFUSED: ClaimState.REFUSED,
    _P.RELEASED: ClaimState.RELEASED,
}
"""The state that an application sees in each phase."""

REQUEST_IN: Mapping[ClaimPhase, RequestKind] = {
    _P.UNCLAIMED: RequestKind.CLAIM,
    _P.CLAIMING: RequestKind.CLAIM,
    _P.QUEUED: RequestKind.RENEW,
    _P.HELD: RequestKind.RENEW,
    _P.DETACHED: RequestKind.RESUME,
    _P.RELEASING: RequestKind.RELEASE,
    _P.PROBING: RequestKind.PROBE,
}
"""The request that a claim has to send in each phase; none after the end."""


def next_phase(phase: ClaimPhase, happened: ClaimInput) -> ClaimPhase:
    """The phase after an input. An input that is not listed is a programming error: AssertionError."""
    after = TRANSITIONS[phase].get(happened)
    assert after is not None, f"{happened.name} cannot happen to a claim that is {phase.name}"
    return after
