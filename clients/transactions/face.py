"""The methods of a producer about transactions. What they need is loaded for the first `transactional.id`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from holdfast_log.clients.arguments import A_TIMEOUT, checked
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.sending.engine import SendingEngine
from holdfast_log.clients.sending.queues import Queues
from holdfast_log.clients.settings import Settings

if TYPE_CHECKING:
    from holdfast_log.clients.transactions.machine import TransactionMachine
    from holdfast_log.clients.transactions.transaction import (
        ProducerTransaction,
        ProducerTransactions,
        SendsMessages,
    )


def machine_maker(
    settings: Settings, connection: Connection, fence: OwnerFence | None = None
) -> Callable[[Queues], TransactionMachine] | None:
    """Makes the transactions' machine of a producer for its queues; None without a `transactional.id`."""
    if settings["transactional.id"] is None:
        return None
    from holdfast_log.clients.transactions.transaction import machine_for

    return partial(machine_for, settings, connection, fence)


class TransactionalFace:
    """Holds the transactions of a producer, if it has a `transactional.id`."""

    def __init__(self, engine: SendingEngine, settings: Settings) -> None:
        self._transactions: ProducerTransactions | None = None
        if engine.transactions is not None:
            from holdfast_log.clients.transactions.transaction import ProducerTransactions

            machine = cast("TransactionMachine", engine.transactions)
            self._transactions = ProducerTransactions(engine, machine, settings["max.block.ms"])

    @checked(timeout_ms=A_TIMEOUT)
    def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Take over the `transactional.id`: the producer before is fenced, and what it has open is aborted.

        `transaction` does this too. Call it before positions are read that a transaction of the predecessor
        may still change. Waits for at most `timeout_ms` (default `max.block.ms`). Raises RequestTimeoutError,
        and ConfigError without a `transactional.id`.
        """
        self._transactional("init_transactions()").init(timeout_ms)

    @checked(timeout_ms=A_TIMEOUT)
    def transaction(self, timeout_ms: int | None = None) -> ProducerTransaction:
        """Begin a transaction: everything that is sent until its end becomes visible to readers of committed
        records together, or not at all (KIP-98).

            with producer.transaction() as t:
                t.send(Message("accounts", key="alice", value="-10"))

        At the end of the block it is committed. An exception in the block aborts it, and goes on. Without
        `with`, call its `commit` or `abort`. Waits until the transaction before has ended, for at most
        `timeout_ms` (default `max.block.ms`). Raises ConfigError without a `transactional.id`,
        TransactionStateError if one is open, ProducerFencedError if another producer has taken over.
        """
        return self._transactional("transaction()").begin(cast("SendsMessages", self), timeout_ms)

    def _transactional(self, call: str) -> ProducerTransactions:
        if self._transactions is None:
            raise ConfigError(
                f"{call} needs a producer with a transactional.id: a name that belongs to this process "
                "alone, and is the same after a restart"
            )
        return self._transactions

    def _end_transactions(self, timeout_ms: int | None) -> None:
        """Before the producer closes: abort what is open."""
        if self._transactions is not None:
            self._transactions.close(timeout_ms)
