"""`Alarm`: one timer that is set again and again."""

from __future__ import annotations

import pytest
from twisted.internet.task import Clock

from holdfast_log.coordinator.alarm import Alarm


class Bell:
    """An alarm, and the times at which it rang."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.alarm = Alarm(self.clock, self._ring)
        self.rang_s: list[float] = []
        self.again_after_s: float | None = None
        """The delay for which the alarm is set again when it rings."""

    def _ring(self) -> None:
        assert not self.alarm.is_set
        self.rang_s.append(self.clock.seconds())
        if self.again_after_s is not None:
            self.alarm.set(self.again_after_s)


@pytest.fixture
def bell() -> Bell:
    return Bell()


def test_it_rings_once(bell: Bell) -> None:
    bell.alarm.set(2)
    assert (bell.alarm.is_set, bell.alarm.due_s) == (True, 2)
    bell.clock.pump([1, 1, 5])
    assert bell.rang_s == [2]
    assert (bell.alarm.is_set, bell.alarm.due_s) == (False, None)


@pytest.mark.parametrize("moved_to_s", [1, 5])
def test_only_the_last_delay_counts(bell: Bell, moved_to_s: float) -> None:
    bell.alarm.set(3)
    bell.alarm.set(moved_to_s)
    assert bell.alarm.due_s == moved_to_s
    bell.clock.pump([1] * 9)
    assert bell.rang_s == [moved_to_s]


def test_a_cancelled_alarm_does_not_ring_until_it_is_set_again(bell: Bell) -> None:
    bell.alarm.set(1)
    bell.alarm.cancel()
    assert not bell.alarm.is_set
    bell.clock.advance(5)
    bell.alarm.cancel()
    assert bell.rang_s == []
    bell.alarm.set(1)
    bell.clock.advance(1)
    assert bell.rang_s == [6]


def test_it_can_be_set_again_while_it_rings(bell: Bell) -> None:
    bell.again_after_s = 2
    bell.alarm.set(1)
    bell.clock.pump([1] * 6)
    assert bell.rang_s == [1, 3, 5]
    bell.alarm.cancel()
    assert bell.clock.getDelayedCalls() == []


def test_a_delay_of_zero_rings_in_a_later_turn(bell: Bell) -> None:
    bell.alarm.set(0)
    assert bell.rang_s == []
    bell.clock.advance(0)
    assert bell.rang_s == [0]


def test_an_alarm_that_has_ended_does_not_ring(bell: Bell) -> None:
    bell.alarm.set(1)
    bell.alarm.end()
    bell.clock.advance(5)
    assert bell.rang_s == []
    assert bell.clock.getDelayedCalls() == []
