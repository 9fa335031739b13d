"""Offsets of a transaction that ends while its coordinator is asked are kept out of the group."""

from __future__ import annotations

from holdfast_log.broker.transactions.group_guards import GroupGuards


def test_a_transaction_without_a_marker_may_be_open() -> None:
    guards = GroupGuards()
    assert guards.end(guards.begin(0, 7))


def test_a_marker_that_comes_in_between_closes_the_transaction() -> None:
    guards = GroupGuards()
    first, second = guards.begin(0, 7), guards.begin(0, 7)
    guards.markers_applied(0, 7, 0, True)
    later = guards.begin(0, 7)
    assert not guards.end(first)
    assert not guards.end(second)
    assert guards.end(later), "a question asked after the marker"


def test_markers_of_other_partitions_and_producers_close_nothing() -> None:
    guards = GroupGuards()
    check = guards.begin(0, 7)
    guards.markers_applied(1, 7, 0, True)
    guards.markers_applied(0, 8, 0, False)
    assert guards.end(check)


def test_a_check_that_has_ended_leaves_nothing_behind() -> None:
    guards = GroupGuards()
    check = guards.begin(0, 7)
    guards.end(check)
    guards.markers_applied(0, 7, 0, True)
    assert not check.has_ended
    assert guards.end(check), "twice does no harm"


def test_each_listener_is_told_of_each_marker() -> None:
    guards = GroupGuards()
    first: list[tuple[int, int, int, bool]] = []
    second: list[tuple[int, int, int, bool]] = []
    guards.add_marker_listener(lambda *marker: first.append(marker))
    guards.add_marker_listener(lambda *marker: second.append(marker))
    guards.markers_applied(3, 7, 2, False)
    assert first == second == [(3, 7, 2, False)]
