"""The turns of the reactor are counted: how many, how long, and the longest for as long as observers need."""

from __future__ import annotations

import gc

from holdfast_log.broker.metrics.turn_times import SLOW_S, WINDOW_S, TurnTimes


class Turns:
    """Turn times on a clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.times = TurnTimes(lambda: self.now_s)

    def take(self, turn_s: float) -> None:
        """What the reactor does after a turn."""
        self.now_s += turn_s
        if turn_s > self.times.noted_s:
            self.times.note(turn_s)


def test_the_longest_turn_stays_for_a_minute_and_goes_after_two() -> None:
    turns = Turns()
    turns.take(0.3)
    turns.take(0.2)
    assert turns.times.longest_s == 0.3
    turns.now_s += 0.9 * WINDOW_S
    assert turns.times.longest_s == 0.3
    turns.now_s += 0.2 * WINDOW_S
    assert turns.times.longest_s == 0.3
    turns.take(0.1)
    turns.now_s += WINDOW_S
    assert turns.times.longest_s == 0.1
    turns.now_s += 3 * WINDOW_S
    assert turns.times.longest_s == 0.0


def test_every_slow_turn_is_counted_also_after_a_longer_one() -> None:
    turns = Turns()
    for turn_s in (0.2, 0.06, 0.051, SLOW_S - 0.01, 0.001):
        turns.take(turn_s)
    assert turns.times.slow == 3


def test_two_observers_see_the_same() -> None:
    turns = Turns()
    turns.take(0.3)
    assert turns.times.longest_s == turns.times.longest_s == 0.3


def test_collections_are_counted() -> None:
    times = TurnTimes(lambda: 5.0)
    times.watch_collections()
    try:
        gc.collect()
        assert times.collections >= 1
    finally:
        gc.callbacks.remove(times._collection)
    counted = times.collections
    gc.collect()
    assert times.collections == counted
