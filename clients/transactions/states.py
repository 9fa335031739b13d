"""The states of a transactional producer, and the one table of what each event does in each of them.

As in KIP-98, with an error that only ends the transaction beside one that ends the producer (KIP-360,
KIP-691, KIP-1050).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeAlias


class TransactionalState(enum.Enum):
    """The value says what the producer is doing, for errors."""

    UNINITIALIZED = "has not asked for its producer id yet"
    INITIALIZING = "waits for its producer id"
    READY = "has no transaction open"
    IN_TRANSACTION = "has a transaction open"
    COMMITTING = "is committing a transaction"
    ABORTING = "is aborting a transaction"
    ABORTABLE_ERROR = "has a transaction open that can only be aborted"
    FATAL_ERROR = "can do nothing any more"


class TransactionalEvent(enum.Enum):
    """What happens to a transactional producer. The value of a call of the application is its name."""

    INIT = "init_transactions()"
    BEGIN = "transaction()"
    COMMIT = "commit()"
    ABORT = "abort()"
    NAMED = "the coordinator has given an id and an epoch"
    ENDED = "the coordinator has ended the transaction, or there was nothing to end"
    ENDED_WITH_GAPS = "as ENDED, and something of it may still arrive, so that a new epoch is needed"
    FAILED = "a record, an offset or a partition cannot be part of the transaction"
    DOOMED = "a coordinator refuses this producer for good"


REFUSED = None
ProducerCell: TypeAlias = TransactionalState | None
"""The next state; REFUSED for what cannot happen, or what the application may not call."""

_S, _E = TransactionalState, TransactionalEvent

PRODUCER_TRANSITIONS: Mapping[TransactionalState, Mapping[TransactionalEvent, ProducerCell]] = {
    _S.UNINITIALIZED: {
        _E.INIT: _S.INITIALIZING,
        _E.BEGIN: REFUSED,
        _E.COMMIT: REFUSED,
        _E.ABORT: REFUSED,
        _E.NAMED: REFUSED,
        _E.ENDED: REFUSED,
        _E.ENDED_WITH_GAPS: REFUSED,
        _E.FAILED: _S.UNINITIALIZED,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.INITIALIZING: {
        _E.INIT: _S.INITIALIZING,
        _E.BEGIN: REFUSED,
        _E.COMMIT: REFUSED,
        _E.ABORT: REFUSED,
        _E.NAMED: _S.READY,
        _E.ENDED: REFUSED,
        _E.ENDED_WITH_GAPS: REFUSED,
        _E.FAILED: _S.INITIALIZING,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.READY: {
        _E.INIT: _S.READY,
        _E.BEGIN: _S.IN_TRANSACTION,
        _E.COMMIT: REFUSED,
        _E.ABORT: REFUSED,
        _E.NAMED: REFUSED,
        _E.ENDED: REFUSED,
        _E.ENDED_WITH_GAPS: REFUSED,
        _E.FAILED: _S.READY,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.IN_TRANSACTION: {
        _E.INIT: REFUSED,
        _E.BEGIN: REFUSED,
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: _S.ABORTING,
        _E.NAMED: REFUSED,
        _E.ENDED: REFUSED,
        _E.ENDED_WITH_GAPS: REFUSED,
        _E.FAILED: _S.ABORTABLE_ERROR,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.COMMITTING: {
        _E.INIT: _S.COMMITTING,
        _E.BEGIN: REFUSED,
        _E.COMMIT: _S.COMMITTING,
        _E.ABORT: REFUSED,
        _E.NAMED: REFUSED,
        _E.ENDED: _S.READY,
        _E.ENDED_WITH_GAPS: _S.INITIALIZING,
        _E.FAILED: _S.ABORTABLE_ERROR,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.ABORTING: {
        _E.INIT: _S.ABORTING,
        _E.BEGIN: REFUSED,
        _E.COMMIT: REFUSED,
        _E.ABORT: _S.ABORTING,
        _E.NAMED: REFUSED,
        _E.ENDED: _S.READY,
        _E.ENDED_WITH_GAPS: _S.INITIALIZING,
        _E.FAILED: _S.ABORTING,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.ABORTABLE_ERROR: {
        _E.INIT: REFUSED,
        _E.BEGIN: REFUSED,
        _E.COMMIT: REFUSED,
        _E.ABORT: _S.ABORTING,
        _E.NAMED: REFUSED,
        _E.ENDED: REFUSED,
        _E.ENDED_WITH_GAPS: REFUSED,
        _E.FAILED: _S.ABORTABLE_ERROR,
        _E.DOOMED: _S.FATAL_ERROR,
    },
    _S.FATAL_ERROR: {
        _E.INIT: REFUSED,
        _E.BEGIN: REFUSED,
        _E.COMMIT: REFUSED,
        _E.ABORT: REFUSED,
        _E.NAMED: _S.FATAL_ERROR,
        _E.ENDED: _S.FATAL_ERROR,
        _E.ENDED_WITH_GAPS: _S.FATAL_ERROR,
        _E.FAILED: _S.FATAL_ERROR,
        _E.DOOMED: _S.FATAL_ERROR,
    },
}
"""The transition table, of every state and event."""


def after(state: TransactionalState, event: TransactionalEvent) -> ProducerCell:
    return PRODUCER_TRANSITIONS[state][event]
