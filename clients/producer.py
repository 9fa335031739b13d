"""The producer: `send` queues a message and returns at once; a background thread sends it.

    with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
        response = producer.send(Message("flights", key="UA", value=b"..."))
        print(response.result().offset)

After the client rewrite, "Proposed Producer API". Any number of threads may share a producer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from holdfast_log.clients.arguments import (
    A_FUNCTION,
    A_TIMEOUT,
    FOR_SIMULATIONS,
    PROPERTIES,
    checked,
    optional,
)
from holdfast_log.clients.config import Properties, producer_settings, required_acks
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ConfigError
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.sending.arguments import A_FENCE
from holdfast_log.clients.sending.engine import SendingEngine, producer_connection
from holdfast_log.clients.sending.message_sender import MessageSender, Serializer, to_bytes
from holdfast_log.clients.sending.partitioner import Partitioner, by_key
from holdfast_log.clients.sending.producer_face import ProducerFace
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


class Producer(ProducerFace, TransactionalFace, MessageSender):
    """Sends messages. `properties` are Kafka's, from a dict or a properties file.

    The thread that calls `send` serializes; the background thread encodes and compresses. `partitioner` gets
    the serialized key. The background thread calls `on_event` for what happens (`clients.feedback.events`).
    With `is_threaded` false, for simulations, there is no such thread: the caller runs the loop by `turn`,
    and methods that wait run it too. Raises ConfigError.

    With a `fence`, which the owner of partitions has given to this process, messages are written for that
    owner, and to its partitions only: a message for another one fails with ValueError. When the owner's grant
    has ended, messages fail with ProducerFencedError, and every later `send` raises it. Needs acks=all.

    With a `transactional.id` it sends in transactions only: see `transaction`.
    """

    # A MessageSender, rather than the owner of one, to spare each message a call.

    @checked(
        properties=PROPERTIES,
        key_serializer=A_FUNCTION,
        value_serializer=A_FUNCTION,
        partitioner=A_FUNCTION,
        on_event=optional(A_FUNCTION),
        fence=A_FENCE,
        **FOR_SIMULATIONS,
    )
    def __init__(
        self,
        properties: Properties,
        *,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        is_threaded: bool = True,
        on_event: OnEvent | None = None,
        fence: OwnerFence | None = None,
    ) -> None:
        self.settings = producer_settings(properties)
        if fence is not None and required_acks(self.settings) != -1:
            raise ConfigError(f"acks={self.settings['acks']}: a producer with a fence needs acks=all")
        connection = producer_connection(self.settings, network, rng, on_event)
        transactions = machine_maker(self.settings, connection, fence)
        engine = SendingEngine(self.settings, connection, partitioner, fence=fence, transactions=transactions)
        ProducerFace.__init__(self, engine)
        TransactionalFace.__init__(self, engine, self.settings)
        MessageSender.__init__(
            self,
            engine,
            key_serializer,
            value_serializer,
            is_idempotent=self.settings["enable.idempotence"],
        )
        if is_threaded:
            engine.start(self)

    @checked(timeout_ms=A_TIMEOUT)
    def close(self, timeout_ms: int | None = None) -> None:
        """Send what is queued, for at most `timeout_ms`, then stop. An open transaction is aborted first.

        Messages not acknowledged by then fail with ClosedError. Raises UndeliveredError as `flush` does. May
        be called again. In a callback it stops without sending if `timeout_ms` is 0, and otherwise raises
        InsideCallbackError.
        """
        self._end_transactions(timeout_ms)
        super().close(timeout_ms)
