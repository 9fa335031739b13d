"""Walks every cell of the transition table, on the machine itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from holdfast_log.coordinator.transactions.epochs import ProducerName
from holdfast_log.coordinator.transactions.states import (
    TRANSITIONS,
    TransactionEvent,
    TransactionState,
    outcome,
)
from holdfast_log.protocol.errors import ErrorCode
from tests.coordinator.transactions.world import A0, ID, TIMEOUT_MS, Coordinator

_S, _E = TransactionState, TransactionEvent

CELLS = [(state, event) for state in TransactionState for event in TransactionEvent]
_WEEK_MS = 7 * 24 * 60 * 60 * 1_000

_STEPS_TO: Mapping[TransactionState, tuple[TransactionEvent, ...]] = {
    _S.EMPTY: (),
    _S.ONGOING: (_E.ADD,),
    _S.PREPARE_COMMIT: (_E.ADD, _E.COMMIT),
    _S.PREPARE_ABORT: (_E.ADD, _E.ABORT),
    _S.COMPLETE_COMMIT: (_E.ADD, _E.COMMIT, _E.MARKED),
    _S.COMPLETE_ABORT: (_E.ADD, _E.ABORT, _E.MARKED),
    _S.DEAD: (_E.EXPIRE,),
}


def test_the_table_has_every_cell() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
    assert all(set(row) == set(TransactionEvent) for row in TRANSITIONS.values())


def _cause(world: Coordinator, event: TransactionEvent, producer: ProducerName) -> ErrorCode:
    """The error with which the event was answered; NONE for one that is no request."""
    requests: Mapping[TransactionEvent, Callable[[], ErrorCode]] = {
        _E.INIT: lambda: world.init().error,
        _E.ADD: lambda: world.add(producer).error,
        _E.COMMIT: lambda: world.end(producer).error,
        _E.ABORT: lambda: world.end(producer, is_commit=False).error,
        _E.COMMIT_NEXT: lambda: world.end(producer, bumps=True).error,
        _E.ABORT_NEXT: lambda: world.end(producer, is_commit=False, bumps=True).error,
    }
    if event in requests:
        return requests[event]()
    match event:
        case _E.MARKED if world.markers:
            world.mark()
        case _E.TIME_OUT:
            world.tick(TIMEOUT_MS + 1)
        case _E.EXPIRE:
            world.tick(_WEEK_MS + 1)
    return ErrorCode.NONE


@pytest.mark.parametrize(("state", "event"), CELLS, ids=lambda each: each.name)
def test_every_cell_is_what_the_machine_does(state: TransactionState, event: TransactionEvent) -> None:
    if state is _S.PREPARE_EPOCH_FENCE:
        # It lasts for a part of one event: no other event meets it.
        expected = _S.PREPARE_ABORT if event is _E.FENCED else outcome(state, event)
        assert outcome(state, event) is expected
        return
    world = Coordinator()
    producer = world.producer()
    for step in _STEPS_TO[state]:
        assert _cause(world, step, producer) is ErrorCode.NONE
    if state is _S.DEAD:
        assert ID not in world.shard.transactions, "a dead id is forgotten"
        if event is _E.INIT:
            assert world.init().error is ErrorCode.NONE, "an id that was forgotten begins anew"
        else:
            cell = outcome(state, event)
            assert _cause(world, event, producer) is cell
        return
    assert world[ID].state is state
    if event in (_E.TIME_OUT, _E.EXPIRE) and state is _S.ONGOING:
        assert outcome(state, _E.TIME_OUT) is _S.PREPARE_EPOCH_FENCE
        _cause(world, event, producer)
        assert world[ID].state is _S.PREPARE_ABORT, "an open transaction ends before its id expires"
        return
    error = _cause(world, event, producer)
    cell = outcome(state, event)
    # A producer without epochs of transaction.version 2 is not told from one that repeats its request.
    if state.is_ending and event in (_E.COMMIT_NEXT, _E.ABORT_NEXT):
        assert cell is ErrorCode.PRODUCER_FENCED
        assert error is ErrorCode.PRODUCER_FENCED
        assert world[ID].state is state
    elif isinstance(cell, ErrorCode):
        assert error is cell
        assert world[ID].state is state
    elif cell is _S.PREPARE_EPOCH_FENCE:
        assert error is ErrorCode.CONCURRENT_TRANSACTIONS
        assert world[ID].state is _S.PREPARE_ABORT
    elif cell is _S.DEAD:
        assert ID not in world.shard.transactions
    else:
        assert error is ErrorCode.NONE
        assert world[ID].state is cell


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_producer_with_its_next_epoch_waits_for_the_markers_of_the_last_one(is_commit: bool) -> None:
    """The cells of PREPARE_COMMIT and PREPARE_ABORT are for other producers than that of the transaction."""
    world = Coordinator()
    producer = world.producer()
    world.add(producer, A0, client_version=2)
    world.end(producer, is_commit=is_commit, bumps=True)
    later = ProducerName(producer.producer_id, producer.epoch + 1)
    answer = world.end(later, is_commit=is_commit, bumps=True)
    assert answer.error is ErrorCode.CONCURRENT_TRANSACTIONS
    much_later = ProducerName(producer.producer_id, producer.epoch + 2)
    assert world.end(much_later, is_commit=is_commit, bumps=True).error is ErrorCode.PRODUCER_FENCED
