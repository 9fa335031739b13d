"""`Timers`: deadlines without a clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.coordinator.timers import Timers


def due(timers: Timers[str], now_ms: int) -> list[str]:
    keys: list[str] = []
    while (key := timers.pop_due(now_ms)) is not None:
        keys.append(key)
    return keys


def test_deadlines_are_popped_in_order_of_time() -> None:
    timers: Timers[str] = Timers()
    timers.set("late", 30)
    timers.set("early", 10)
    timers.set("middle", 20)
    assert timers.next_ms() == 10
    assert due(timers, 20) == ["early", "middle"]
    assert timers.next_ms() == 30


def test_a_deadline_can_be_moved_both_ways_and_is_popped_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 20)
    timers.set("a", 50)
    timers.set("a", 10)
    assert due(timers, 100) == ["a"]
    assert timers.next_ms() is None


def test_a_cancelled_deadline_is_not_popped() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("never set")
    assert timers.next_ms() is None
    assert due(timers, 100) == []


def test_ten_thousand_cancelled_deadlines_leave_no_memory_behind() -> None:
    timers: Timers[str] = Timers()
    for number in range(10_000):
        timers.set(f"k{number}", 1_000_000)
        timers.cancel(f"k{number}")
    assert len(timers) == 0
    assert len(timers._heap) < 100
    assert len(timers._queued) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from("abcde"), st.one_of(st.none(), st.integers(0, 40)), st.integers(0, 4)),
        max_size=60,
    )
)
def test_timers_agree_with_a_plain_dictionary(steps: list[tuple[str, int | None, int]]) -> None:
    timers: Timers[str] = Timers()
    expected: dict[str, int] = {}
    now_ms = 0
    for key, at_ms, passed_ms in steps:
        if at_ms is None:
            timers.cancel(key)
            expected.pop(key, None)
        else:
            timers.set(key, now_ms + at_ms)
            expected[key] = now_ms + at_ms
        assert timers.next_ms() == min(expected.values(), default=None)
        now_ms += passed_ms
        over = {key for key, deadline_ms in expected.items() if deadline_ms <= now_ms}
        assert set(due(timers, now_ms)) == over
        for key in over:
            del expected[key]
