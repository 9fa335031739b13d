"""Calls from kazoo's thread: made on the reactor's, in order, some in each turn."""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.coordinator.zookeeper import call_queue
from holdfast_log.coordinator.zookeeper.call_queue import ReactorCallQueue

CALLS = 1_234


def calls_by_turn(act: Callable[[ReactorCallQueue, list[int]], None]) -> tuple[list[int], list[int]]:
    """The calls that were made, and how many had been made after each turn of the reactor."""
    due: list[Callable[[], None]] = []
    made: list[int] = []
    queue = ReactorCallQueue(due.append)
    act(queue, made)
    after = []
    while due:
        some, due[:] = list(due), []
        for each in some:
            each()
        after.append(len(made))
    return made, after


def fail(number: int) -> None:
    raise ValueError(number)


def test_calls_are_made_some_at_a_time_and_in_order() -> None:
    def act(queue: ReactorCallQueue, made: list[int]) -> None:
        for number in range(CALLS):
            queue(made.append, number)

    made, after = calls_by_turn(act)
    assert made == list(range(CALLS))
    turns = -(-CALLS // call_queue._CALLS_AT_ONCE)
    assert turns > 20
    assert after == [min(CALLS, (turn + 1) * call_queue._CALLS_AT_ONCE) for turn in range(turns)]


def test_a_call_that_another_makes_and_one_behind_one_that_fails_are_made() -> None:
    def act(queue: ReactorCallQueue, made: list[int]) -> None:
        def more() -> None:
            queue(made.append, 3)

        queue(made.append, 1)
        queue(more)
        queue(fail, 0)
        queue(made.append, 2)

    assert calls_by_turn(act) == ([1, 2, 3], [2, 3])
