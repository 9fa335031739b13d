"""What all logs of a broker together remember of producers: a stranger that fills it loses its own."""

from __future__ import annotations

import gc

import pytest

from holdfast_log.broker.log.append_ids import NamedAppend
from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.producer_totals import ProducerTotals, RemembersProducers, TotalLimits
from tests.broker.log.test_introductions import known, write
from tests.models.batches import START_MS


def logs(count: int, limits: TotalLimits) -> list[ProducerStates]:
    """The states of so many logs of one broker."""
    totals = ProducerTotals(limits, UNKNOWN_SOURCE)
    states = [ProducerStates() for _ in range(count)]
    for state in states:
        state.use_totals(totals)
    return states


def remembered(states: list[ProducerStates]) -> int:
    return sum(len(state) for state in states)


def name(states: ProducerStates, number: int, producer_id: int) -> None:
    """Remember an append id, as `remember_id` does."""
    assert states.totals is not None
    states.totals.append_id_comes()
    append_id = number.to_bytes(16, "big")
    states.append_ids.add(append_id, NamedAppend(number, 0, START_MS, producer_id))


def test_one_source_over_all_partitions_has_a_bound_and_takes_places_from_itself_only() -> None:
    states = logs(40, TotalLimits(producers=10_000, producers_per_source=1_000))
    for number, state in enumerate(states):
        write(state, "honest", number)
    for producer_id in range(1_000, 1_200):
        for state in states:
            write(state, "stranger", producer_id, now_ms=producer_id)
    assert remembered(states) <= 1_000 + 40
    assert [number for number, state in enumerate(states) if state.get(number) is None] == []
    # A source that is full still begins new producers: they are the ones it keeps.
    assert all(state.get(1_199) is not None for state in states)


def test_many_sources_together_have_a_bound_and_an_honest_one_with_few_keeps_its_own() -> None:
    states = logs(20, TotalLimits(producers=2_000, producers_per_source=1_000))
    for number, state in enumerate(states):
        write(state, "honest", number)
    for stranger in range(50):
        for producer_id in range(10):
            for state in states:
                write(state, f"stranger {stranger}", 1_000 + 10 * stranger + producer_id, now_ms=stranger)
    assert remembered(states) <= 2_000
    assert [number for number, state in enumerate(states) if state.get(number) is None] == []


def test_replicas_that_know_no_sources_have_a_bound_too() -> None:
    states = logs(10, TotalLimits(producers=500, producers_per_source=100))
    for producer_id in range(300):
        for state in states:
            write(state, UNKNOWN_SOURCE, producer_id, now_ms=producer_id)
    assert 400 <= remembered(states) <= 500
    assert all(max(known(state)) == 299 for state in states)


def test_logs_that_are_gone_do_not_count() -> None:
    states = logs(10, TotalLimits(producers=100, producers_per_source=100))
    for state in states:
        write(state, "one", *range(10))
    del states[2:], state
    gc.collect()
    write(states[0], "two", *range(100, 160))
    assert remembered(states) == 80


def test_a_log_that_is_opened_with_too_many_producers_forgets_some() -> None:
    full = ProducerStates()
    write(full, UNKNOWN_SOURCE, *range(500))
    small = ProducerStates()
    write(small, "honest", 7)
    totals = ProducerTotals(TotalLimits(producers=100), UNKNOWN_SOURCE)
    small.use_totals(totals)
    full.use_totals(totals)
    assert len(full) <= 100
    assert known(small) == [7]


def test_append_ids_of_all_logs_have_a_bound_and_a_writer_with_few_keeps_its_own_or_is_told() -> None:
    states = logs(10, TotalLimits(append_ids=1_000))
    for number in range(20):
        name(states[0], number, producer_id=1)
    for number in range(100, 1_000):
        for state in states[1:]:
            name(state, number, producer_id=number % 7)
    assert sum(state.id_count for state in states) <= 1_000
    assert states[0].id_count == 20
    assert states[0].append_ids.known_from == 0
    for state in states[1:]:
        # An append whose id was forgotten is refused as unknown, not written twice.
        forgotten = [
            number
            for number in range(100, 1_000)
            if state.append_ids.find(number.to_bytes(16, "big")) is None
        ]
        assert forgotten and max(forgotten) < state.append_ids.known_from


def test_within_one_log_the_producer_with_the_most_append_ids_gives_up_its_oldest() -> None:
    (state,) = logs(1, TotalLimits(append_ids=100))
    for number in range(10):
        name(state, number, producer_id=1)
    for number in range(10, 1_000):
        name(state, number, producer_id=2)
    kept = [number for number in range(1_000) if state.append_ids.find(number.to_bytes(16, "big"))]
    assert kept[:10] == list(range(10))
    assert kept[10:] == list(range(1_000 - len(kept) + 10, 1_000))


class Counted(ProducerStates):
    """Counts how often it is asked what it remembers."""

    asked = 0

    @property
    def producer_count(self) -> int:
        Counted.asked += 1
        return super().producer_count


def test_each_of_very_many_logs_is_counted_once_when_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counted, "asked", 0)
    totals = ProducerTotals(TotalLimits(), UNKNOWN_SOURCE)
    states = [Counted() for _ in range(200)]
    for state in states:
        state.use_totals(totals)
    assert Counted.asked == len(states)


def test_counting_all_logs_for_each_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def adopt(self: ProducerTotals, state: RemembersProducers) -> None:
        self._states[state] = None
        self._keep_producers()

    monkeypatch.setattr(ProducerTotals, "adopt", adopt)
    with pytest.raises(AssertionError):
        test_each_of_very_many_logs_is_counted_once_when_it_is_opened(monkeypatch)
