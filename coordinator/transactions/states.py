"""The states of a transactional id, and the one table of what each event does in each of them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias

from holdfast_log.protocol.errors import ErrorCode


class TransactionState(enum.Enum):
    """The value is Kafka's number in the records of `__transaction_state`; `title` is its name in answers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")

    @property
    def is_ending(self) -> bool:
        """Whether the end is decided, and partitions may still lack its marker."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


BY_TITLE: Mapping[str, TransactionState] = {state.title: state for state in TransactionState}


class TransactionEvent(enum.Enum):
    """What may happen to a transactional id, once producer id and epoch of a request have been checked."""

    INIT = "a producer asks for its id and epoch"
    ADD = "partitions or a group are added"
    COMMIT = "the producer commits, or repeats that"
    ABORT = "the producer aborts, or repeats that"
    COMMIT_NEXT = "a producer whose epoch ends with each transaction commits, for the first time"
    ABORT_NEXT = "a producer whose epoch ends with each transaction aborts, for the first time"
    TIME_OUT = "the transaction has been open for too long"
    FENCED = "the epoch of the transaction's producer has been raised"
    MARKED = "all partitions have the marker"
    EXPIRE = "the transactional id has not been used for long"


TransactionCell: TypeAlias = "TransactionState | ErrorCode"
"""The next state, or the error that refuses the event. NONE: a success, with nothing to do."""

_S, _E = TransactionState, TransactionEvent
_NOTHING = ErrorCode.NONE
_WAIT = ErrorCode.CONCURRENT_TRANSACTIONS
_WRONG = ErrorCode.INVALID_TXN_STATE
_FENCED = ErrorCode.PRODUCER_FENCED
_UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING

_IDLE: Mapping[TransactionEvent, TransactionCell] = {
    _E.INIT: _S.EMPTY,
    _E.ADD: _S.ONGOING,
    _E.COMMIT: _WRONG,
    _E.ABORT: _WRONG,
    _E.COMMIT_NEXT: _WRONG,
    _E.ABORT_NEXT: _S.PREPARE_ABORT,
    _E.TIME_OUT: _NOTHING,
    _E.FENCED: _NOTHING,
    _E.MARKED: _NOTHING,
    _E.EXPIRE: _S.DEAD,
}
_ENDING: Mapping[TransactionEvent, TransactionCell] = {
    _E.INIT: _WAIT,
    _E.ADD: _WAIT,
    _E.COMMIT: _WRONG,
    _E.ABORT: _WRONG,
    _E.COMMIT_NEXT: _FENCED,
    _E.ABORT_NEXT: _FENCED,
    _E.TIME_OUT: _NOTHING,
    _E.FENCED: _NOTHING,
    _E.EXPIRE: _NOTHING,
}

TRANSITIONS: Mapping[TransactionState, Mapping[TransactionEvent, TransactionCell]] = {
    _S.EMPTY: _IDLE,
    _S.ONGOING: {
        _E.INIT: _S.PREPARE_EPOCH_FENCE,
        _E.ADD: _S.ONGOING,
        _E.COMMIT: _S.PREPARE_COMMIT,
        _E.ABORT: _S.PREPARE_ABORT,
        _E.COMMIT_NEXT: _S.PREPARE_COMMIT,
        _E.ABORT_NEXT: _S.PREPARE_ABORT,
        _E.TIME_OUT: _S.PREPARE_EPOCH_FENCE,
        _E.FENCED: _NOTHING,
        _E.MARKED: _NOTHING,
        _E.EXPIRE: _NOTHING,
    },
    _S.PREPARE_COMMIT: {**_ENDING, _E.COMMIT: _WAIT, _E.MARKED: _S.COMPLETE_COMMIT},
    _S.PREPARE_ABORT: {**_ENDING, _E.ABORT: _WAIT, _E.MARKED: _S.COMPLETE_ABORT},
    _S.COMPLETE_COMMIT: {**_IDLE, _E.COMMIT: _NOTHING},
    _S.COMPLETE_ABORT: {**_IDLE, _E.ABORT: _NOTHING},
    # Lasts for the rest of the event that begins it: the id leaves it with one record, of PREPARE_ABORT.
    _S.PREPARE_EPOCH_FENCE: {
        _E.INIT: _WAIT,
        _E.ADD: _WAIT,
        _E.COMMIT: _WAIT,
        _E.ABORT: _WAIT,
        _E.COMMIT_NEXT: _WAIT,
        _E.ABORT_NEXT: _WAIT,
        _E.TIME_OUT: _NOTHING,
        _E.FENCED: _S.PREPARE_ABORT,
        _E.MARKED: _NOTHING,
        _E.EXPIRE: _NOTHING,
    },
    # A tombstone is written and the id forgotten.
    _S.DEAD: {
        _E.INIT: _UNKNOWN,
        _E.ADD: _UNKNOWN,
        _E.COMMIT: _UNKNOWN,
        _E.ABORT: _UNKNOWN,
        _E.COMMIT_NEXT: _UNKNOWN,
        _E.ABORT_NEXT: _UNKNOWN,
        _E.TIME_OUT: _NOTHING,
        _E.FENCED: _NOTHING,
        _E.MARKED: _NOTHING,
        _E.EXPIRE: _NOTHING,
    },
}
"""The transition table, of every state and event."""


def outcome(state: TransactionState, event: TransactionEvent) -> TransactionCell:
    return TRANSITIONS[state][event]
