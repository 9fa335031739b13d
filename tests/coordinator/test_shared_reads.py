"""Reads that several want are carried out once for all of them, and never answer with what is older."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.coordinator import shared_reads
from holdfast_log.coordinator.shared_reads import TOLD_AT_ONCE, SharedReads


class Reader:
    """Counts reads, and ends them when told to."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.begun: list[Deferred[None]] = []
        self.reads = SharedReads(self.clock, self._begin)
        self.told: list[Any] = []

    def _begin(self) -> Deferred[None]:
        self.begun.append(Deferred())
        return self.begun[-1]

    def ask(self, who: object) -> None:
        self.reads.ask().addCallbacks(
            lambda _: self.told.append(who), lambda failure: self.told.append(failure.value)
        )


def test_those_who_ask_during_a_read_share_the_next_one() -> None:
    reader = Reader()
    for who in ("first", "second", "third"):
        reader.ask(who)
    assert len(reader.begun) == 1
    reader.begun[0].callback(None)
    assert reader.told == ["first"] and len(reader.begun) == 2
    reader.ask("fourth")
    reader.begun[1].callback(None)
    assert reader.told == ["first", "second", "third"] and len(reader.begun) == 3
    reader.begun[2].callback(None)
    assert reader.told == ["first", "second", "third", "fourth"] and len(reader.begun) == 3
    reader.ask("fifth")
    assert len(reader.begun) == 4


def test_a_read_that_fails_fails_for_all_who_share_it_and_for_no_other() -> None:
    reader = Reader()
    for who in ("first", "second", "third"):
        reader.ask(who)
    reader.begun[0].callback(None)
    error = OSError("away")
    reader.begun[1].errback(error)
    assert reader.told == ["first", error, error]
    reader.ask("fourth")
    reader.begun[2].callback(None)
    assert reader.told[-1] == "fourth"


def test_a_crowd_is_told_in_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    def told_in_the_first_turn() -> int:
        reader = Reader()
        for number in range(3 * TOLD_AT_ONCE + 1):
            reader.ask(number)
        reader.begun[0].callback(None)
        reader.begun[1].callback(None)
        at_once = len(reader.told) - 1
        reader.clock.pump([0] * 3)
        assert reader.told == list(range(3 * TOLD_AT_ONCE + 1))
        return at_once

    assert told_in_the_first_turn() == TOLD_AT_ONCE
    monkeypatch.setattr(shared_reads, "TOLD_AT_ONCE", 10**9)
    assert told_in_the_first_turn() == 3 * TOLD_AT_ONCE


def test_a_read_that_has_ended_when_it_returns_is_no_longer_under_way() -> None:
    count = 0

    def read() -> Deferred[None]:
        nonlocal count
        count += 1
        ended: Deferred[None] = Deferred()
        ended.callback(None)
        return ended

    reads = SharedReads(Clock(), read)
    assert [reads.ask().called for _ in range(3)] == [True] * 3 and count == 3
