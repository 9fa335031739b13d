"""Rows, the collector of prometheus-client, and the page that is made in turns of the reactor."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.metrics.collector import PART_SAMPLES, RowCollector
from holdfast_log.broker.metrics.page import TURN_S, MetricsPage
from holdfast_log.broker.metrics.row import MetricRow, Sample, counter, counters, gauge, gauges, summary
from holdfast_log.coordinator.repeated_log import RepeatedLog


class SteppingClock(Clock):
    """A clock that moves on by `step_s` whenever it is read, and runs what is due in `turn`."""

    step_s = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.due: list[Callable[[], None]] = []

    def seconds(self) -> float:
        self.rightNow += self.step_s
        return float(self.rightNow)

    def callLater(self, delay: float, callable: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        assert delay == 0
        self.due.append(functools.partial(callable, *args, **kw))

    def turn(self) -> None:
        """One turn of the reactor."""
        due, self.due = self.due, []
        for call in due:
            call()


def page_of(rows: list[MetricRow[Any]], clock: Clock | None = None, part: Any = None) -> MetricsPage:
    clock = clock or Clock()
    registry = CollectorRegistry()
    registry.register(RowCollector(lambda: [(row, part) for row in rows], RepeatedLog(clock)))
    return MetricsPage(registry, clock)


def text_of(done: Deferred[bytes]) -> str:
    found: list[bytes] = []
    done.addCallback(found.append)
    assert found, "the page is not made yet"
    return found[0].decode()


def samples_of(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The samples as an independent reader finds them; none twice."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def test_rows_of_every_kind_are_read_back() -> None:
    rows: list[MetricRow[Any]] = [
        counter("a_total", "A.", lambda part: part + 1),
        gauge("b", 'With "quotes", a \\ and\na line.', lambda part: 2.5),
        counters("c_total", "C.", ("x",), lambda part: [Sample((), 3), Sample(('q"\\\n',), 4)]),
        gauges("d", "D.", ("x", "y"), lambda part: [Sample(("1", "2"), float("inf"))]),
        summary(
            "e", "E.", ("x", "quantile"), lambda part: [Sample(("1", "0.99"), 5), Sample(("1",), 6, "_count")]
        ),
    ]

    found = samples_of(text_of(page_of(rows, part=0).make()))

    assert found == {
        ("a_total", frozenset()): 1,
        ("b", frozenset()): 2.5,
        ("c_total", frozenset()): 3,
        ("c_total", frozenset({("x", 'q"\\\n')})): 4,
        ("d", frozenset({("x", "1"), ("y", "2")})): float("inf"),
        ("e", frozenset({("x", "1"), ("quantile", "0.99")})): 5,
        ("e_count", frozenset({("x", "1")})): 6,
    }


def test_a_metric_that_comes_in_parts_has_one_heading_and_all_samples() -> None:
    count = 3 * PART_SAMPLES + 7
    rows = [
        gauges("many", "Many.", ("n",), lambda part: (Sample((str(n),), n) for n in range(count))),
        gauge("after", "After.", lambda part: 1),
    ]

    text = text_of(page_of(rows).make())

    assert text.count("# TYPE many gauge") == text.count("# HELP many Many.") == 1
    assert len(samples_of(text)) == count + 1


def test_a_long_page_is_made_in_turns_between_which_others_run() -> None:
    clock = SteppingClock()
    clock.step_s = TURN_S / 3
    read: list[int] = []

    def numbers(part: object) -> Iterator[Sample]:
        for number in range(10 * PART_SAMPLES):
            read.append(number)
            yield Sample((str(number),), number)

    done = page_of([gauges("many", "Many.", ("n",), numbers)], clock).make()
    turns = 0
    while not done.called:
        before = len(read)
        clock.turn()
        turns += 1
        assert len(read) - before <= 4 * PART_SAMPLES

    assert turns >= 3
    assert len(samples_of(text_of(done))) == 10 * PART_SAMPLES


def test_who_asks_while_a_page_is_made_gets_the_next_one() -> None:
    clock = SteppingClock()
    clock.step_s = TURN_S
    value = 1
    rows = [gauge(f"g{number}", "G.", lambda part: value) for number in range(3)]
    page = page_of(rows, clock)
    first = page.make()
    value = 2
    second, third = page.make(), page.make()
    while not (second.called and third.called):
        clock.turn()

    assert first.called
    assert set(samples_of(text_of(second)).values()) == set(samples_of(text_of(third)).values()) == {2}


def test_a_row_that_cannot_be_read_is_left_out_and_logged_and_the_others_stay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(part: object) -> float:
        raise KeyError("gone")

    rows = [
        gauge("one", "One.", lambda part: 1),
        gauge("broken", "B.", broken),
        gauge("two", "Two.", lambda part: 2),
    ]
    with caplog.at_level(logging.ERROR):
        found = samples_of(text_of(page_of(rows).make()))

    assert {name for name, _ in found} == {"one", "two"}
    assert "The metric broken cannot be read" in caplog.text


def test_a_page_waits_for_what_is_prepared_and_fails_with_it() -> None:
    clock = Clock()
    prepared: list[Deferred[None]] = []
    registry = CollectorRegistry()
    registry.register(RowCollector(lambda: [(gauge("g", "G.", lambda part: 1), None)], RepeatedLog(clock)))

    def prepare() -> Deferred[None]:
        prepared.append(Deferred())
        return prepared[-1]

    page = MetricsPage(registry, clock, prepare)
    first, second = page.make(), page.make()
    failures: list[Any] = []
    first.addErrback(failures.append)
    assert len(prepared) == 1 and not first.called
    prepared[0].errback(RuntimeError("no"))
    assert len(failures) == 1 and len(prepared) == 2
    prepared[1].callback(None)

    assert samples_of(text_of(second)) == {("g", frozenset()): 1}
