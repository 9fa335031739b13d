"""Every cell of a member's transition table, and every way in which a heartbeat moves a member."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.groups.consumer_assignment import (
    NEXT,
    NO_PARTITIONS,
    CurrentAssignment,
    IdPartition,
    MemberEvent,
    MemberState,
    Partitions,
    reconciled,
)

S, V, L, A, G = MemberState
TOPIC = UUID(int=7)
MOVES = {
    MemberEvent.MUST_REVOKE: V,
    MemberEvent.MUST_WAIT: L,
    MemberEvent.COMPLETE: S,
    MemberEvent.GOES_AWAY: A,
    MemberEvent.COMES_BACK: S,
    MemberEvent.ENDS: G,
}


def parts(*numbers: int) -> Partitions:
    return frozenset(IdPartition(TOPIC, number) for number in numbers)


def anybody(_: IdPartition) -> bool:
    return True


def nobody(_: IdPartition) -> bool:
    return False


@pytest.mark.parametrize("state", MemberState)
@pytest.mark.parametrize("event", MemberEvent)
def test_every_cell_of_the_table(state: MemberState, event: MemberEvent) -> None:
    current = CurrentAssignment(3, 2, state, parts(1))
    is_possible = state in (S, V, L) or (state is A and event in (MemberEvent.COMES_BACK, MemberEvent.ENDS))
    if is_possible:
        assert current.after(event) == CurrentAssignment(3, 2, MOVES[event], parts(1))
    else:
        assert event not in NEXT[state]
        with pytest.raises(KeyError):
            current.after(event)


# Rows: state and partitions before; target; what the member says; whether the rest is free;
# then state, epoch, assigned and revoking after. The member is in epoch 3, its target in epoch 4.
HEARTBEATS = [
    # It has its target
    (S, (1,), (), (1,), (1,), True, S, 4, (1,), ()),
    # It has to give up 2, and has not said that it has
    (S, (1, 2), (), (1,), (1, 2), True, V, 3, (1,), (2,)),
    (S, (1, 2), (), (1,), None, True, V, 3, (1,), (2,)),
    # It has given up 2 already
    (S, (1, 2), (), (1,), (1,), True, S, 4, (1,), ()),
    # It gets 3
    (S, (1,), (), (1, 3), (1,), True, S, 4, (1, 3), ()),
    # It would get 3, which another member holds
    (S, (1,), (), (1, 3), (1,), False, L, 4, (1,), ()),
    # It gives up before it gets
    (S, (1, 2), (), (1, 3), (1, 2), True, V, 3, (1,), (2,)),
    # It is still to give up 2
    (V, (1,), (2,), (1,), (1, 2), True, V, 3, (1,), (2,)),
    (V, (1,), (2,), (1,), None, True, V, 3, (1,), (2,)),
    # It has given up 2
    (V, (1,), (2,), (1,), (1,), True, S, 4, (1,), ()),
    (V, (1,), (2,), (1, 3), (1,), True, S, 4, (1, 3), ()),
    (V, (1,), (2,), (1, 3), (1,), False, L, 4, (1,), ()),
    # It has given up 2, and another target wants 1 too
    (V, (1,), (2,), (), (1,), True, V, 3, (), (1,)),
    # It has given up 2, and another target gives it back
    (V, (1,), (2,), (1, 2), (1,), True, S, 4, (1, 2), ()),
    # What it waits for is free now, or not yet
    (L, (1,), (), (1, 3), (1,), True, S, 4, (1, 3), ()),
    (L, (1,), (), (1, 3), None, True, S, 4, (1, 3), ()),
    (L, (1,), (), (1, 3), (1,), False, L, 4, (1,), ()),
    # It waits, and another target wants 1
    (L, (1,), (), (3,), (1,), True, V, 3, (), (1,)),
]


@pytest.mark.parametrize("row", HEARTBEATS)
def test_a_heartbeat_moves_a_member_towards_its_target(row: tuple[object, ...]) -> None:
    state, assigned, revoking, target, owned, is_free, then, epoch, kept, lost = row
    before = CurrentAssignment(3, 2, state, parts(*assigned), parts(*revoking))  # type: ignore[arg-type, misc]
    after = reconciled(
        before,
        parts(*target),  # type: ignore[misc]
        4,
        None if owned is None else parts(*owned),  # type: ignore[misc]
        anybody if is_free else nobody,
    )
    previous = 3 if epoch == 4 else 2
    assert after == CurrentAssignment(epoch, previous, then, parts(*kept), parts(*lost))  # type: ignore[arg-type, misc]


def test_a_stable_member_in_the_targets_epoch_stays() -> None:
    current = CurrentAssignment(4, 3, S, parts(1))
    assert reconciled(current, parts(1), 4, None, nobody) is current


def test_a_member_that_waits_keeps_its_previous_epoch_for_lost_answers() -> None:
    current = CurrentAssignment(4, 3, L, parts(1))
    assert reconciled(current, parts(1, 2), 4, None, nobody) is current
    assert reconciled(current, parts(1, 2), 4, None, anybody) == CurrentAssignment(4, 3, S, parts(1, 2))


PARTS = st.frozensets(st.integers(0, 5).map(lambda number: IdPartition(TOPIC, number)))


@given(
    state=st.sampled_from((S, V, L)),
    assigned=PARTS,
    revoking=PARTS,
    target=PARTS,
    owned=st.none() | PARTS,
    free=PARTS,
)
def test_a_member_never_gets_what_another_holds_and_never_loses_what_it_has_not_given_up(
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
    target: Partitions,
    owned: Partitions | None,
    free: Partitions,
) -> None:
    before = CurrentAssignment(3, 2, state, assigned - revoking, revoking if state is V else NO_PARTITIONS)
    after = reconciled(before, target, 4, owned, free.__contains__)
    assert after.assigned - before.assigned <= free & target
    given_up = before.held - after.held
    assert not given_up or (owned is not None and owned.isdisjoint(given_up))
    if after.state is S:
        assert after.assigned == target
