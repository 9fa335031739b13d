"""Log lines that clients can provoke are bounded: one line per cause and interval, and a count."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.task import Clock

from holdfast_log.coordinator.repeated_log import RepeatedLog

LOGGER = logging.getLogger("tests.repeated")


def test_one_line_is_logged_at_once_and_one_with_the_count_after_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    log = RepeatedLog(clock, interval_s=10)
    for number in range(44_833):
        log.warning(LOGGER, "requests of unknown APIs", "request %d", number)
    assert caplog.messages == ["request 0"]

    clock.advance(10)

    assert caplog.messages[1:] == [
        "Not logged one by one in the last 10 s, requests of unknown APIs: 44832 more, "
        "the last: request 44832"
    ]


def test_a_lasting_cause_gets_one_line_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = RepeatedLog(clock, interval_s=10)
    for _ in range(1000):
        log.warning(LOGGER, "a cause", "it happened")
        clock.advance(0.1)
    assert 10 <= len(caplog.messages) <= 11


def test_another_cause_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    log = RepeatedLog(Clock())
    log.warning(LOGGER, "one", "first")
    log.warning(LOGGER, "two", "second")
    assert caplog.messages == ["first", "second"]


def test_a_cause_that_was_quiet_for_an_interval_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = RepeatedLog(clock, interval_s=10)
    log.warning(LOGGER, "a cause", "first")
    clock.advance(10)
    log.warning(LOGGER, "a cause", "second")
    clock.advance(100)
    assert caplog.messages == ["first", "second"]
    assert clock.getDelayedCalls() == []


def test_the_number_of_causes_is_bounded_and_old_ones_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    log = RepeatedLog(clock, interval_s=10, causes_max=3)
    for number in range(50):
        log.warning(LOGGER, f"cause {number}", "cause %d", number)
    assert caplog.messages == ["cause 0", "cause 1", "cause 2", "cause 3"]
    assert len(log) <= 4

    clock.advance(30)
    log.warning(LOGGER, "a new cause", "a new one")

    assert caplog.messages[4:] == [
        "Not logged one by one in the last 10 s, other causes: 46 more, the last: cause 49",
        "a new one",
    ]
    assert len(log) <= 4


def test_an_error_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    RepeatedLog(Clock()).error(LOGGER, "a cause", "it failed", exc_info=ValueError("because"))
    assert "ValueError: because" in caplog.text
