"""Garbage is found soon, and nobody waits for a walk over many objects, however many clients make."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.process import collecting
from holdfast_log.broker.process.collecting import (
    LOOK_MS,
    PERIOD_MS,
    THRESHOLDS,
    WALKED_MAX,
    WHOLE_MS,
    Collecting,
)

YOUNG, MIDDLE, _ = THRESHOLDS


class FakeCollector:
    """Objects by their number: the frozen ones, and those of Python's three generations."""

    def __init__(self, objects: int) -> None:
        self.frozen = 0
        self.generations = [0, 0, objects]
        self.counts = [0, 0, 0]
        self.walked: list[int] = []
        self.thresholds: tuple[int, ...] = (700, 10, 10)

    def come(self, objects: int) -> None:
        """Have Python make objects, and walk as its thresholds say."""
        for _ in range(objects):
            self.generations[0] += 1
            self.counts[0] += 1
            if self.counts[0] > self.thresholds[0]:
                self.collect(1 if self.counts[1] > self.thresholds[1] else 0)

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        self.thresholds = (young, middle, old)

    def get_count(self) -> tuple[int, int, int]:
        young, middle, old = self.counts
        return young, middle, old

    def collect(self, generation: int = 2) -> int:
        self.walked.append(sum(self.generations[: generation + 1]))
        self.generations[min(generation + 1, 2)] += sum(self.generations[: generation + 1])
        if generation == 2:
            self.generations[2] = self.walked[-1]
        self.generations[: min(generation + 1, 2)] = [0] * min(generation + 1, 2)
        self.counts[: generation + 1] = [0] * (generation + 1)
        if generation < 2:
            self.counts[generation + 1] += 1
        return 0

    def freeze(self) -> None:
        self.frozen += sum(self.generations)
        self.generations, self.counts = [0, 0, 0], [0, 0, 0]

    def unfreeze(self) -> None:
        self.generations[2] += self.frozen
        self.frozen = 0


def begun(objects: int) -> tuple[Clock, FakeCollector]:
    clock, collector = Clock(), FakeCollector(objects)
    Collecting(clock, collector).begin()
    return clock, collector


def test_what_lives_when_the_broker_begins_is_walked_once() -> None:
    clock, collector = begun(3_000_000)
    assert collector.thresholds == THRESHOLDS
    for _ in range(3):
        collector.come(YOUNG)
        clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [3_000_000, YOUNG, YOUNG, YOUNG]


def test_no_walk_goes_over_many_objects() -> None:
    clock, collector = begun(3_000_000)
    for objects in (YOUNG, 30_000, 510_000, 10_000, 0, 200_000):
        collector.come(objects)
        clock.advance(LOOK_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    first, *later = collector.walked
    assert first == 3_000_000 and max(later) <= WALKED_MAX, sorted(later)[-3:]
    assert sum(collector.generations) <= WALKED_MAX and collector.frozen >= 3_700_000


def test_of_very_many_new_objects_those_that_two_walks_have_left_are_frozen() -> None:
    clock, collector = begun(0)
    collector.come(100_000)
    assert collector.generations[2] > 80_000
    clock.advance(LOOK_MS / 1000)
    assert collector.generations == [0, 0, 0]


def test_few_new_objects_stay_for_the_next_walk() -> None:
    clock, collector = begun(0)
    collector.come(YOUNG)
    clock.advance(LOOK_MS / 1000)
    assert collector.generations == [YOUNG, 0, 0] and not collector.frozen


def test_everything_is_walked_once_a_day_and_frozen_again() -> None:
    clock, collector = begun(3_000_000)
    collector.come(100_000)
    # The periods between are those of an idle broker.
    clock.pump([PERIOD_MS / 1000, WHOLE_MS / 1000 - 2 * PERIOD_MS / 1000, 0])
    assert max(collector.walked[1:]) <= WALKED_MAX
    clock.advance(PERIOD_MS / 1000)
    assert sum(walked > WALKED_MAX for walked in collector.walked[1:]) == 1
    assert 3_100_000 in collector.walked and collector.frozen == 3_100_000


def walk_all(self: Collecting) -> None:
    self._collector.collect()
    self._collector.freeze()


@pytest.mark.parametrize(
    ("where", "name", "value", "check"),
    [
        (collecting, "THRESHOLDS", (20_000, 5, 1_000_000), test_no_walk_goes_over_many_objects),
        (Collecting, "_walk_new", walk_all, test_no_walk_goes_over_many_objects),
        (
            Collecting, "_look", lambda self: None,
            test_of_very_many_new_objects_those_that_two_walks_have_left_are_frozen,
        ),
    ],
)  # fmt: skip
def test_a_walk_over_many_is_missed(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, value: Any, check: Callable[[], None]
) -> None:
    monkeypatch.setattr(where, name, value)
    with pytest.raises(AssertionError):
        check()


class Node:
    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.fixture
def thawed() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_a_cycle_that_was_frozen_is_found_within_a_day() -> None:
    clock = Clock()
    Collecting(clock).begin()
    first, second = Node(), Node()
    first.other, second.other = second, first
    gone = weakref.ref(first)
    clock.advance(PERIOD_MS / 1000)
    del first, second
    clock.advance(PERIOD_MS / 1000)
    assert gone() is not None
    clock.advance(WHOLE_MS / 1000)
    assert gone() is None


@pytest.mark.usefixtures("thawed")
def test_a_cycle_of_new_objects_is_found_within_a_period() -> None:
    clock = Clock()
    Collecting(clock).begin()
    first, second = Node(), Node()
    first.other, second.other = second, first
    gone = weakref.ref(first)
    del first, second
    clock.advance(PERIOD_MS / 1000)
    assert gone() is None
