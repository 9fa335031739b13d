"""Garbage is found soon, and nobody waits for a walk over all objects because clients have sent much."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from twisted.internet.task import Clock

from holdfast_log.broker.process import collecting
from holdfast_log.broker.process.collecting import LOOK_MS, PERIOD_MS, THRESHOLDS, Collecting


class FakeCollector:
    """Objects by their number: all that live, those that are frozen, and those that are not the youngest any
    more. Each takes two blocks."""

    def __init__(self, objects: int) -> None:
        self.objects = objects
        self.frozen = 0
        self.old = 0
        self.walked: list[int] = []
        self.thresholds: tuple[int, ...] = ()
        self.middle_walks = 0

    def come(self, objects: int) -> None:
        """Have Python walk each 100,000 of them as the youngest."""
        self.objects += objects
        self.middle_walks += objects // 100_000
        self.old += objects // 100_000 * 100_000

    def count_blocks(self) -> int:
        return 2 * self.objects

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        self.thresholds = (young, middle, old)

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.middle_walks

    def collect(self, generation: int = 2) -> int:
        self.walked.append(self.objects - self.frozen - (self.old if generation < 2 else 0))
        return 0

    def freeze(self) -> None:
        self.frozen = self.objects
        self.middle_walks = self.old = 0

    def unfreeze(self) -> None:
        self.frozen = 0


def begun(objects: int) -> tuple[Clock, FakeCollector]:
    clock, collector = Clock(), FakeCollector(objects)
    Collecting(clock, collector, collector.count_blocks).begin()
    return clock, collector


def test_each_period_walks_what_is_new() -> None:
    clock, collector = begun(3_000_000)
    assert collector.thresholds == THRESHOLDS
    for _ in range(3):
        collector.come(1000)
        clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [3_000_000, 1000, 1000, 1000]


def test_all_are_walked_when_twice_as_much_is_allocated() -> None:
    clock, collector = begun(1_200_000)
    for _ in range(13):
        collector.come(95_000)
        clock.advance(PERIOD_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    collector.come(50_000)
    clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [1_200_000, *[95_000] * 12, 2_435_000, 0, 50_000]


def test_few_objects_are_not_walked_again() -> None:
    clock, collector = begun(10_000)
    collector.come(90_000)
    clock.advance(PERIOD_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [10_000, 90_000, 0]


def test_of_very_many_new_objects_only_those_are_walked_that_python_has_not_walked() -> None:
    clock, collector = begun(3_000_000)
    for objects in (30_000, 510_000, 10_000):
        collector.come(objects)
        clock.advance(LOOK_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [3_000_000, 40_000, 10_000]


@pytest.mark.parametrize(("name", "value"), [("MIDDLE_WALKS_MAX", 1_000), ("MIDDLE", 2)])
def test_a_walk_of_very_many_is_missed(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    monkeypatch.setattr(collecting, name, value)
    with pytest.raises(AssertionError):
        test_of_very_many_new_objects_only_those_are_walked_that_python_has_not_walked()


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
def test_pythons_own_collector_finds_cycles_of_new_objects_and_later_of_frozen_ones() -> None:
    clock, blocks = Clock(), 0
    Collecting(clock, count_blocks=lambda: blocks).begin()
    first, second = Node(), Node()
    first.other, second.other = second, first
    gone = weakref.ref(first)
    clock.advance(PERIOD_MS / 1000)  # The cycle is in use, and is frozen.
    del first, second
    assert gone() is not None
    clock.advance(PERIOD_MS / 1000)
    assert gone() is not None
    blocks = 2_000_001
    clock.advance(PERIOD_MS / 1000)
    assert gone() is None
