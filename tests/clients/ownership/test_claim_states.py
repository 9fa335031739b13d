"""Every cell of a claim's transition table: each input in each phase, applied to the real machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.link import Call
from holdfast_log.clients.errors import ConnectionFailedError
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.claim_states import (
    REQUEST_IN,
    STATE_OF,
    ClaimInput,
    ClaimPhase,
    next_phase,
)
from holdfast_log.clients.ownership.events import ENDED
from holdfast_log.protocol.errors import ErrorCode, error_for
from tests.clients.ownership.claim_world import LOG, World

GRID = """
             UNCLAIMED CLAIMING  QUEUED    HELD      DETACHED  RELEASING PROBING   LOST REFUSED RELEASED
SENT         CLAIMING  CLAIMING  QUEUED    HELD      DETACHED  RELEASING PROBING   -    -       -
GRANTED      -         HELD      HELD      HELD      HELD      RELEASING RELEASING -    -       -
QUEUED       -         QUEUED    QUEUED    QUEUED    QUEUED    RELEASING RELEASING -    -       -
TIMED_OUT    -         QUEUED    CLAIMING  HELD      DETACHED  RELEASING RELEASED  -    -       -
NOT_CLAIMED  -         UNCLAIMED -         -         -         -         -         -    -       -
MOVED        -         CLAIMING  CLAIMING  DETACHED  DETACHED  RELEASING PROBING   -    -       -
BUSY         -         CLAIMING  QUEUED    HELD      DETACHED  RELEASING PROBING   -    -       -
FENCED       -         LOST      LOST      LOST      LOST      RELEASED  -         -    -       -
UNKNOWN      -         REFUSED   REFUSED   -         -         PROBING   RELEASED  -    -       -
CUT          -         CLAIMING  CLAIMING  DETACHED  DETACHED  RELEASING PROBING   -    -       -
DOUBTED      UNCLAIMED CLAIMING  QUEUED    DETACHED  DETACHED  RELEASING PROBING   LOST REFUSED RELEASED
FAILED       REFUSED   REFUSED   REFUSED   LOST      LOST      RELEASED  RELEASED  LOST REFUSED RELEASED
WAIT_EXPIRED REFUSED   REFUSED   -         -         -         -         -         -    -       -
RELEASE      RELEASED  RELEASING RELEASING RELEASING RELEASING RELEASING PROBING   LOST REFUSED RELEASED
RELEASED     -         -         -         -         -         RELEASED  RELEASED  -    -       -
ABANDON      RELEASED  RELEASED  RELEASED  RELEASED  RELEASED  RELEASED  RELEASED  LOST REFUSED RELEASED
"""
WAIT_MS = 500


class Claim:
    """One claim, and its call in flight."""

    def __init__(self, *, has_grant: bool) -> None:
        self.has_grant = has_grant
        self.world = World(wait_ms=FOR_EVER if has_grant else WAIT_MS)
        self.under_way: Call | None = None

    @property
    def phase(self) -> ClaimPhase:
        return self.world.claim.phase

    def send(self) -> Call:
        """The call in flight, or else the next one, sent when it is due."""
        if self.under_way is None:
            self.world.now_ms = max(self.world.now_ms, self.world.claim.due_ms)
            self.under_way = self.world.calls()[-1]
        return self.under_way

    def answer(self, error: ErrorCode = ErrorCode.NONE, **fields: int) -> None:
        call, self.under_way = self.send(), None
        self.world.answer(call, error, **fields)

    def lose(self) -> None:
        """End the call in flight without an answer."""
        call, self.under_way = self.send(), None
        self.world.lose(call, ConnectionFailedError("cut"))

    def grant(self) -> None:
        self.answer(generation=1, incarnation=7, fence_offset=40)


# How to get into a phase --------------------------------------------------------------------------------


def to_unclaimed(claim: Claim) -> None:
    claim.world.lines.leaders[LOG] = NO_NODE


def to_claiming(claim: Claim) -> None:
    if claim.has_grant:
        to_queued(claim)
        claim.world.lines.connect(1)
    claim.send()


def to_queued(claim: Claim) -> None:
    if claim.has_grant:
        claim.grant()
    claim.answer(ErrorCode.CLAIM_QUEUED, position=1)


def to_held(claim: Claim) -> None:
    claim.grant()


def to_detached(claim: Claim) -> None:
    claim.grant()
    claim.world.claim.doubt()


def to_releasing(claim: Claim) -> None:
    (to_held if claim.has_grant else to_queued)(claim)
    claim.world.claims.release()


def to_probing(claim: Claim) -> None:
    to_releasing(claim)
    claim.answer(ErrorCode.OWNERSHIP_FENCED)


def to_lost(claim: Claim) -> None:
    claim.grant()
    claim.answer(ErrorCode.OWNERSHIP_FENCED)


def to_refused(claim: Claim) -> None:
    claim.answer(ErrorCode.UNKNOWN_SERVER_ERROR)


def to_released(claim: Claim) -> None:
    claim.world.claim.abandon()


REACH: dict[ClaimPhase, Callable[[Claim], None]] = {
    ClaimPhase.UNCLAIMED: to_unclaimed,
    ClaimPhase.CLAIMING: to_claiming,
    ClaimPhase.QUEUED: to_queued,
    ClaimPhase.HELD: to_held,
    ClaimPhase.DETACHED: to_detached,
    ClaimPhase.RELEASING: to_releasing,
    ClaimPhase.PROBING: to_probing,
    ClaimPhase.LOST: to_lost,
    ClaimPhase.REFUSED: to_refused,
    ClaimPhase.RELEASED: to_released,
}


# What can happen ----------------------------------------------------------------------------------------


def send_again(claim: Claim) -> None:
    if claim.under_way is not None:
        claim.lose()
    claim.world.lines.leaders[LOG] = 1
    claim.send()


def let_the_wait_expire(claim: Claim) -> None:
    if claim.under_way is not None:
        claim.lose()
    assert claim.world.calls() == []
    claim.world.now_ms += WAIT_MS
    assert claim.world.calls() == []


APPLY: dict[ClaimInput, Callable[[Claim], None]] = {
    ClaimInput.SENT: send_again,
    ClaimInput.GRANTED: Claim.grant,
    ClaimInput.QUEUED: lambda claim: claim.answer(ErrorCode.CLAIM_QUEUED, position=2),
    ClaimInput.TIMED_OUT: lambda claim: claim.answer(ErrorCode.REQUEST_TIMED_OUT),
    ClaimInput.NOT_CLAIMED: lambda claim: claim.answer(ErrorCode.OPERATION_NOT_ATTEMPTED),
    ClaimInput.MOVED: lambda claim: claim.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ClaimInput.BUSY: lambda claim: claim.answer(ErrorCode.NOT_ENOUGH_REPLICAS),
    ClaimInput.FENCED: lambda claim: claim.answer(ErrorCode.OWNERSHIP_FENCED),
    ClaimInput.UNKNOWN: lambda claim: claim.answer(ErrorCode.OWNERSHIP_FENCED),
    ClaimInput.CUT: Claim.lose,
    ClaimInput.DOUBTED: lambda claim: claim.world.claim.doubt(),
    ClaimInput.FAILED: lambda claim: claim.world.claim.fail(error_for(ErrorCode.UNKNOWN_SERVER_ERROR)),
    ClaimInput.WAIT_EXPIRED: let_the_wait_expire,
    ClaimInput.RELEASE: lambda claim: claim.world.claim.release(),
    ClaimInput.RELEASED: Claim.answer,
    ClaimInput.ABANDON: lambda claim: claim.world.claim.abandon(),
}


def cells() -> dict[tuple[ClaimPhase, ClaimInput], ClaimPhase | None]:
    head, *rows = (line.split() for line in GRID.strip().splitlines())
    return {
        (ClaimPhase[phase], ClaimInput[row[0]]): None if after == "-" else ClaimPhase[after]
        for row in rows
        for phase, after in zip(head, row[1:], strict=True)
    }


CELLS = cells()
LISTED = [cell for cell, after in CELLS.items() if after is not None]
UNLISTED = [cell for cell, after in CELLS.items() if after is None]


def name_of(cell: tuple[ClaimPhase, ClaimInput]) -> str:
    return f"{cell[1].name} when {cell[0].name}"


def test_the_grid_has_every_phase_and_every_input() -> None:
    assert set(CELLS) == {(phase, happened) for phase in ClaimPhase for happened in ClaimInput}


@pytest.mark.parametrize("cell", LISTED, ids=name_of)
def test_a_listed_input_moves_the_claim_as_the_grid_says(cell: tuple[ClaimPhase, ClaimInput]) -> None:
    phase, happened = cell
    claim = Claim(has_grant=happened is ClaimInput.FENCED)
    REACH[phase](claim)
    assert claim.phase is phase

    APPLY[happened](claim)

    assert claim.phase is CELLS[cell] is next_phase(*cell)
    assert claim.world.claim.state is STATE_OF[claim.phase]
    assert claim.world.claim.has_ended == (claim.phase not in REQUEST_IN)


@pytest.mark.parametrize("cell", UNLISTED, ids=name_of)
def test_an_unlisted_input_is_a_programming_error(cell: tuple[ClaimPhase, ClaimInput]) -> None:
    with pytest.raises(AssertionError, match=name_of(cell).split()[0]):
        next_phase(*cell)


@pytest.mark.parametrize("phase", ClaimPhase, ids=lambda phase: phase.name)
def test_a_claim_that_has_ended_sends_nothing_and_stays_as_it_is(phase: ClaimPhase) -> None:
    has_ended = STATE_OF[phase] in ENDED
    after = {next_phase(*cell) for cell in LISTED if cell[0] is phase}

    assert has_ended == (phase not in REQUEST_IN)
    assert has_ended == (after == {phase})
