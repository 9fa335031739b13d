"""Who is looked after when, and that nothing piles up meanwhile."""

from __future__ import annotations

from broker.ownership.deadlines import Deadlines, OfOwner
from tests.broker.ownership.machine import NAME, P0, Machine

ANNA, BEN = OfOwner(P0, "app", 1), OfOwner(NAME, "app", 1)


def due(deadlines: Deadlines, now_ms: int) -> list[OfOwner]:
    found = []
    while (watched := deadlines.pop_due(now_ms)) is not None:
        assert isinstance(watched, OfOwner)
        found.append(watched)
    return found


def test_those_whose_time_has_come_are_told_in_their_order() -> None:
    deadlines = Deadlines()
    deadlines.add(20, ANNA)
    deadlines.add(10, BEN)
    assert (deadlines.next_ms, due(deadlines, 9), due(deadlines, 20)) == (10, [], [BEN, ANNA])
    assert deadlines.next_ms is None


def test_each_is_looked_after_once_at_the_earliest_time() -> None:
    deadlines = Deadlines()
    for at_ms in (20, 10, 30):
        deadlines.add(at_ms, ANNA)
    assert (due(deadlines, 10), due(deadlines, 30)) == ([ANNA], [])


def test_who_is_gone_is_not_looked_after() -> None:
    deadlines = Deadlines()
    deadlines.add(10, ANNA)
    deadlines.discard(ANNA)
    deadlines.discard(BEN)
    assert (deadlines.next_ms, due(deadlines, 10)) == (None, [])
    deadlines.add(15, ANNA)
    assert due(deadlines, 15) == [ANNA]


def test_an_owner_that_comes_and_goes_leaves_nothing_behind() -> None:
    """Sessions may last an hour: what is kept of each until then would be millions."""
    machine = Machine()
    anna, ben = machine.client("anna"), machine.client("ben")
    for _ in range(200):
        anna.claim(P0, 0)
        anna.reconnect()
        assert anna.resume(P0).error_code == 0
        assert ben.claim(P0, -1, wait_ms=-1).position == 1
        ben.release(P0, -1)
    assert len(machine.table.state.deadlines) < 100
