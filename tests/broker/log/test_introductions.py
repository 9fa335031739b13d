"""Which producer a log forgets when it has too many: one of the source that introduced the most."""

from __future__ import annotations

from holdfast_log.broker.log.introductions import UNKNOWN_SOURCE
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.log.snapshots import SMALL_STATE, SNAPSHOT_INTERVAL_MS, SnapshotPace
from tests.broker.log.test_producer_state import header


def write(states: ProducerStates, source: str, *producer_ids: int, now_ms: int = 0) -> None:
    for producer_id in producer_ids:
        states.introduce(producer_id, source, now_ms)
        states.update(header(0, producer_id=producer_id), 0, now_ms)


def known(states: ProducerStates) -> list[int]:
    return sorted(entry.producer_id for entry in states.entries())


def test_a_source_of_many_ids_evicts_no_producer_of_another() -> None:
    states = ProducerStates(max_producers=10)
    write(states, "honest", 1, 2)
    write(states, "stranger", *range(100, 300), now_ms=1)
    assert known(states) == [1, 2, *range(292, 300)]


def test_many_sources_of_a_few_ids_take_places_from_one_of_many() -> None:
    states = ProducerStates(max_producers=10)
    write(states, "stranger", *range(100, 110))
    for number in range(5):
        write(states, f"honest {number}", number, now_ms=number)
    assert known(states) == [0, 1, 2, 3, 4, 105, 106, 107, 108, 109]


def test_a_source_keeps_its_producers_that_still_write() -> None:
    states = ProducerStates(max_producers=3)
    write(states, "one", 1, 2, 3)
    write(states, "one", 1, now_ms=5)
    write(states, "one", 4, now_ms=6)
    assert known(states) == [1, 3, 4]


def test_one_source_may_introduce_only_so_many() -> None:
    states = ProducerStates(max_producers=100, max_per_source=4)
    write(states, "stranger", *range(10))
    write(states, "honest", 50)
    assert known(states) == [6, 7, 8, 9, 50]


def test_producers_of_a_snapshot_have_an_unknown_source_without_a_bound_of_its_own() -> None:
    states = ProducerStates()
    write(states, "one", 1, 2, 3, 4, 5)
    restored = ProducerStates(max_producers=5, max_per_source=2)
    restored.restore(states.encode(), 5)
    assert known(restored) == [1, 2, 3, 4, 5]
    assert restored.introductions.count(UNKNOWN_SOURCE) == 5
    write(restored, "stranger", 10, 11, 12, now_ms=1)
    assert known(restored) == [3, 4, 5, 11, 12]


def test_what_expires_is_forgotten_here_too() -> None:
    states = ProducerStates(expiration_ms=10)
    write(states, "one", 1, 2)
    states.expire(10)
    assert states.introductions.count("one") == 0
    states.clear(0)
    write(states, "one", 3)
    assert states.introductions.count("one") == 1


def test_a_large_state_is_written_at_most_once_in_an_interval() -> None:
    states = ProducerStates()
    pace = SnapshotPace()
    assert [pace.is_due(states, now_ms) for now_ms in (0, 1, 2)] == [True] * 3
    write(states, "one", *range(SMALL_STATE + 1))
    due = [pace.is_due(states, now_ms) for now_ms in (5, SNAPSHOT_INTERVAL_MS + 1, SNAPSHOT_INTERVAL_MS + 2)]
    assert due == [False, False, True]
    assert pace.is_due(states, 0)  # The time of day was set back.
