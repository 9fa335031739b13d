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
    """Objects by their number: all that live, and those that are frozen."""

    def __init__(self, objects: int) -> None:
        self.objects = objects
        self.frozen = 0
        self.walked: list[int] = []
        self.thresholds: tuple[int, ...] = ()
        self.middle_walks = 0

    def set_threshold(self, young: int, middle: int, old: int, /) -> None:
        self.thresholds = (young, middle, old)

    def get_count(self) -> tuple[int, int, int]:
        return 0, 0, self.middle_walks

    def collect(self) -> int:
        self.middle_walks = 0
        self.walked.append(self.objects - self.frozen)
        return 0

    def freeze(self) -> None:
        self.frozen = self.objects

    def unfreeze(self) -> None:
        self.frozen = 0

    def get_freeze_count(self) -> int:
        return self.frozen


def test_each_period_walks_what_is_new() -> None:
    clock, collector = Clock(), FakeCollector(300_000)
    Collecting(clock, collector).begin()
    assert collector.thresholds == THRESHOLDS
    for _ in range(3):
        collector.objects += 1000
        clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [300_000, 1000, 1000, 1000]


def test_all_are_walked_when_they_have_become_twice_as_many() -> None:
    clock, collector = Clock(), FakeCollector(300_000)
    Collecting(clock, collector).begin()
    for _ in range(4):
        collector.objects += 100_000
        clock.advance(PERIOD_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    collector.objects += 50_000
    clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [300_000, 100_000, 100_000, 100_000, 100_000, 700_000, 50_000]


def test_few_objects_are_not_walked_again() -> None:
    clock, collector = Clock(), FakeCollector(10_000)
    Collecting(clock, collector).begin()
    collector.objects = 100_000
    clock.advance(PERIOD_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    assert collector.walked == [10_000, 90_000, 0]


def test_very_many_new_objects_are_walked_before_the_period_ends() -> None:
    clock, collector = Clock(), FakeCollector(300_000)
    Collecting(clock, collector).begin()
    for come in (30_000, 210_000, 10_000):
        collector.objects += come
        collector.middle_walks += come // 100_000
        clock.advance(LOOK_MS / 1000)
    assert collector.walked == [300_000, 240_000]


def test_a_walk_of_very_many_at_the_end_of_a_period_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "MIDDLE_WALKS_MAX", 1_000)
    with pytest.raises(AssertionError):
        test_very_many_new_objects_are_walked_before_the_period_ends()


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
    clock = Clock()
    collecting = Collecting(clock)
    collecting.begin()
    first, second = Node(), Node()
    first.other, second.other = second, first
    gone = weakref.ref(first)
    clock.advance(PERIOD_MS / 1000)  # The cycle is in use, and is frozen.
    del first, second
    assert gone() is not None
    clock.advance(PERIOD_MS / 1000)
    assert gone() is not None
    collecting._frozen = 0  # As if there were far more objects than before.
    kept = [[] for _ in range(200_001)]  # type: ignore[var-annotated]
    clock.advance(PERIOD_MS / 1000)
    clock.advance(PERIOD_MS / 1000)
    assert gone() is None and kept
