"""The table of a transactional producer's states, cell by cell."""

from __future__ import annotations

import pytest

from holdfast_log.clients.transactions.states import (
    PRODUCER_TRANSITIONS,
    TransactionalEvent,
    TransactionalState,
    after,
)

S, E = TransactionalState, TransactionalEvent
FROM_COORDINATORS = (E.NAMED, E.ENDED, E.ENDED_WITH_GAPS)


def test_every_state_has_a_cell_for_every_event() -> None:
    assert set(PRODUCER_TRANSITIONS) == set(S)
    assert all(set(row) == set(E) for row in PRODUCER_TRANSITIONS.values())


@pytest.mark.parametrize("state", S)
def test_every_state_is_reached_and_left_as_it_should_be(state: TransactionalState) -> None:
    reached = {S.UNINITIALIZED}
    while True:
        further = {after(each, event) for each in reached for event in E} - {None} - reached
        if not further:
            break
        reached |= further  # type: ignore[arg-type]
    assert state in reached
    assert after(state, E.DOOMED) is S.FATAL_ERROR, "a coordinator may refuse the producer at any time"
    if state is S.FATAL_ERROR:
        assert {after(state, event) for event in E} <= {S.FATAL_ERROR, None}


def test_only_an_open_transaction_can_be_committed_and_a_failed_one_only_aborted() -> None:
    assert [state for state in S if after(state, E.COMMIT) is not None] == [S.IN_TRANSACTION, S.COMMITTING]
    assert after(S.ABORTABLE_ERROR, E.ABORT) is S.ABORTING
    assert after(S.COMMITTING, E.ABORT) is None, "the coordinator may have committed it already"
    assert [state for state in S if after(state, E.BEGIN) is not None] == [S.READY]


def test_a_failure_never_leads_to_a_commit() -> None:
    for state in S:
        found = after(state, E.FAILED)
        assert found in (state, S.ABORTABLE_ERROR), state
    assert after(S.COMMITTING, E.FAILED) is S.ABORTABLE_ERROR


def test_answers_of_coordinators_come_only_while_they_are_waited_for() -> None:
    expecting = {E.NAMED: [S.INITIALIZING], E.ENDED: [S.COMMITTING, S.ABORTING]}
    expecting[E.ENDED_WITH_GAPS] = expecting[E.ENDED]
    for event in FROM_COORDINATORS:
        found = [state for state in S if after(state, event) not in (None, S.FATAL_ERROR)]
        assert found == expecting[event], event
