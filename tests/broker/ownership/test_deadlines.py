"""Deadlines of sessions in the ownership table."""

from __future__ import annotations

from holdfast_log.broker.ownership.deadlines import OwnerDeadline
from tests.broker.ownership.machine import NAME, P0, START_MS, Machine

ANNA, BEN = OwnerDeadline(P0, "app", 1), OwnerDeadline(NAME, "app", 1)


def test_an_owners_session_is_checked_at_the_earliest_of_its_deadlines() -> None:
    """A later deadline does not replace an earlier one: a ping extends no session."""
    state = Machine().table._state
    for at_ms in (20, 10, 30):
        state.watch(ANNA, START_MS + at_ms)
    state.watch(BEN, START_MS + 15)
    assert [state.deadlines.deadline_ms(each) for each in (ANNA, BEN)] == [START_MS + 10, START_MS + 15]


def test_a_cancelled_deadline_can_be_set_to_a_later_time() -> None:
    state = Machine().table._state
    state.watch(ANNA, START_MS + 10)
    state.deadlines.cancel(ANNA)
    assert state.deadlines.next_ms() is None
    state.watch(ANNA, START_MS + 15)
    assert state.deadlines.next_ms() == START_MS + 15


def test_repeated_resumes_leave_no_deadlines_behind() -> None:
    """A session may last an hour, in which one deadline for each event would add up to millions."""
    machine = Machine()
    anna, ben = machine.client("anna"), machine.client("ben")
    for _ in range(200):
        anna.claim(P0, 0)
        anna.reconnect()
        assert anna.resume(P0).error_code == 0
        assert ben.claim(P0, -1, wait_ms=-1).position == 1
        ben.release(P0, -1)
    assert len(machine.table._state.deadlines._heap) < 100
