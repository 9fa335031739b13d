"""What the record of a query allows a task, and how it changes."""

from __future__ import annotations

import pytest

from holdfast_log.pipeline.sink.line import LineCounts, SinkError
from holdfast_log.pipeline.sink.state import (
    DEPOSED_MAX,
    QueryState,
    QueryTakenOverError,
    Run,
    TaskReport,
    TopicState,
    admit,
    committed,
    with_topic,
)

FIRST, SECOND = Run("run-1", "host-1", 1000), Run("run-2", "host-2", 2000)


def report(batch: int, run: Run = FIRST, **ends: int) -> TaskReport:
    at = {("t", int(name.removeprefix("p"))): end for name, end in ends.items()}
    return TaskReport("q", batch, run.id, LineCounts(rows=5, conflicts=1), at)


def test_the_first_task_of_a_query_makes_its_record() -> None:
    admission = admit(None, "q", 0, FIRST)

    assert admission.is_new
    assert not admission.is_committed
    assert admission.state == QueryState("q", FIRST)


def test_a_run_that_is_known_goes_on_and_one_that_is_not_takes_over() -> None:
    state = QueryState("q", FIRST, batch=4)

    assert not admit(state, "q", 5, FIRST).is_new
    after = admit(state, "q", 5, SECOND)
    assert after.is_new
    assert (after.state.run, after.state.deposed, after.state.batch) == (SECOND, ("run-1",), 4)


def test_a_run_that_another_has_taken_over_from_is_refused_and_told_which() -> None:
    state = admit(QueryState("q", FIRST), "q", 5, SECOND).state

    with pytest.raises(QueryTakenOverError, match=r"run run-2 on host host-2 has taken over"):
        admit(state, "q", 5, FIRST)
    with pytest.raises(QueryTakenOverError, match="run-2"):
        committed(state, 5, [report(5)], {})


def test_a_committed_micro_batch_is_not_written_again() -> None:
    state = QueryState("q", FIRST, batch=4)

    for run in (FIRST, SECOND):
        for batch in (3, 4):
            admission = admit(state, "q", batch, run)
            assert admission.is_committed
            assert not admission.is_new


def test_the_runs_of_the_past_are_bounded() -> None:
    state = QueryState("q", FIRST)
    for number in range(DEPOSED_MAX + 5):
        state = admit(state, "q", 0, Run(f"later-{number}")).state

    assert len(state.deposed) == DEPOSED_MAX
    assert "run-1" not in state.deposed


def test_a_commit_moves_the_starts_and_adds_up_the_counts() -> None:
    state = with_topic(QueryState("q", FIRST, 6), "t", TopicState("1f", 2, (10, 20)))

    after = committed(state, 7, [report(7, p0=15), report(7, p0=12, p1=18)], {"t": 3})

    assert after is not None
    assert after.topics["t"] == TopicState("1f", 3, (15, 20, 0))
    assert (after.batch, after.totals.rows, after.totals.conflicts) == (7, 10, 2)
    assert committed(after, 7, [report(7, p0=99)], {"t": 3}) is None


def test_the_number_of_partitions_never_falls() -> None:
    state = with_topic(QueryState("q", FIRST), "t", TopicState("1f", 2, (10, 20)))

    after = committed(state, 0, [report(0)], {})

    assert after is not None
    assert after.topics["t"].count == 2


def test_a_record_survives_its_encoding() -> None:
    state = with_topic(QueryState("q", SECOND, 3, ("run-1",)), "t", TopicState("1f", 2, (10, 20)))

    assert QueryState.decode(state.encode()) == state
    with pytest.raises(SinkError, match="another version of Holdfast"):
        QueryState.decode(b'{"version": 99, "query": "q"}')
