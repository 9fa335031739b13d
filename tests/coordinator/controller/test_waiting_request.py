"""Requests to the controller that wait, and what they are answered when their time is up."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.coordinator.controller import waiting_request
from holdfast_log.coordinator.controller.waiting_request import TimeLimits, WaitingRequest


def answered_in_order(clock: Clock, limits: TimeLimits) -> list[str]:
    """Three requests of two topics whose time is up at once; others have their turn after each."""
    order: list[str] = []

    def note(results: dict[Any, Any], name: str) -> None:
        order.append(f"{name} {results}")
        clock.callLater(0, order.append, "others")

    for name in ("first", "second", "third"):
        request = WaitingRequest(limits, ["a", "b"], 1_000, lambda key: "late")
        request.answer("a", "in time")
        request.done.addCallback(note, name)
    clock.advance(1)
    return order


def test_of_requests_whose_time_is_up_one_is_answered_a_turn() -> None:
    clock = Clock()
    results = {"a": "in time", "b": "late"}
    expected = [f"first {results}", "others", f"second {results}", "others", f"third {results}", "others"]
    assert answered_in_order(clock, TimeLimits(clock)) == expected


def test_an_answer_of_all_in_one_turn_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TimeLimits, "reached", lambda self, request: request.time_out(2))
    clock = Clock()
    assert answered_in_order(clock, TimeLimits(clock))[1] != "others"


def test_a_result_that_comes_before_the_turn_counts() -> None:
    clock = Clock()
    limits = TimeLimits(clock)
    done: list[dict[Any, Any]] = []
    first = WaitingRequest(limits, ["a"], 1_000, lambda key: "late")
    second = WaitingRequest(limits, ["b"], 1_000, lambda key: "late")
    first.done.addCallback(lambda results: second.answer("b", "in time"))
    second.done.addCallback(done.append)
    clock.advance(1)
    assert done == [{"b": "in time"}]


def late_parts_by_turn(clock: Clock, parts: int) -> list[int]:
    """How many parts of a request are late in each turn after its time is up; one is answered in time."""
    late, turns = list[int](), list[int]()
    done: list[dict[Any, Any]] = []
    request = WaitingRequest(TimeLimits(clock), range(parts), 1_000, lambda key: late.append(key) or "late")
    request.answer_at_timeout(7, "in time")
    request.done.addCallback(done.append)
    clock.rightNow += 1
    while not done:
        before = len(late)
        for call in [each for each in clock.calls if each.time <= clock.rightNow]:
            clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)
        turns.append(len(late) - before)
    assert list(done[0]) == list(range(parts)) and done[0].pop(7) == "in time"
    assert set(done[0].values()) == {"late"}
    return turns


def test_a_request_of_many_parts_is_late_in_several_turns() -> None:
    assert late_parts_by_turn(Clock(), 1_000) == [0, 199, 200, 200, 200, 200]


def test_all_parts_that_are_late_in_one_turn_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_request, "_LATE_AT_ONCE", 1 << 60)
    assert late_parts_by_turn(Clock(), 1_000) == [0, 999]


def test_requests_whose_time_is_up_later_are_answered_too() -> None:
    clock = Clock()
    limits = TimeLimits(clock)
    done: list[dict[Any, Any]] = []
    for timeout_ms in (0, 500, -1):
        WaitingRequest(limits, ["a"], timeout_ms, lambda key: "late").done.addCallback(done.append)
    clock.advance(0)
    assert done == [{"a": "late"}] * 2
    clock.advance(1)
    assert done == [{"a": "late"}] * 3
