"""What applications call: a transaction, from its begin to its end.

with producer.transaction() as t:
    t.send(Message("accounts", key="alice", value="-10"), Message("accounts", key="bob", value="+10"))
    t.send_offsets(offsets, consumer.group_metadata())
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from holdfast_log.clients.arguments import A_TIMEOUT, an_instance, checked
from holdfast_log.clients.errors import (
    ClosedError,
    CommitUnknownError,
    RequestTimeoutError,
    TransactionStateError,
    with_cause,
)
from holdfast_log.clients.fetching.arguments import OFFSETS_TO_COMMIT
from holdfast_log.clients.groups.membership import GroupIdentity
from holdfast_log.clients.message import Message, OffsetAndMetadata
from holdfast_log.clients.sending.engine import SendingEngine
from holdfast_log.clients.sending.queues import Queues
from holdfast_log.clients.sending.responses import BulkResponse, SendResponse
from holdfast_log.clients.transactions.machine import TransactionMachine
from holdfast_log.clients.transactions.requests import OffsetsInTransaction
from holdfast_log.clients.transactions.states import TransactionalEvent, TransactionalState
from holdfast_log.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from holdfast_log.clients.connection.connection import Connection
    from holdfast_log.clients.fence import OwnerFence
    from holdfast_log.clients.settings import Settings

_E, _S = TransactionalEvent, TransactionalState
_ENDING = (_S.COMMITTING, _S.ABORTING)
_A_GROUP = an_instance(GroupIdentity, "what Consumer.group_metadata() returns")


def machine_for(
    settings: Settings, connection: Connection, fence: OwnerFence | None, queues: Queues
) -> TransactionMachine:
    """The machine of a producer with these settings, connection and queues."""
    return TransactionMachine(
        settings["transactional.id"],
        settings["transaction.timeout.ms"],
        queues,
        connection.metadata,
        connection.backoff,
        settings["retry.backoff.ms"],
        fence,
        partial(_adds_itself, connection),
    )


def _adds_itself(connection: Connection, node: int) -> bool | None:
    """Whether a broker adds its partitions to transactions (transaction.version 2); None while the client has
    no connection to it."""
    conversation = connection.conversation(node)
    return None if conversation is None else conversation.has_transactions_2


class SendsMessages(Protocol):
    """A producer, exclusive or not."""

    def send(self, *messages: Message) -> SendResponse: ...

    def send_at(self, expected_offset: int, *messages: Message, **arguments: Any) -> SendResponse: ...

    def send_many(self, topic: str, values: Iterable[Any], **arguments: Any) -> BulkResponse: ...


class ProducerTransactions:
    """The transactions of one producer, for threads of the application. `limit_ms` is the default of all
    timeouts."""

    def __init__(self, engine: SendingEngine, machine: TransactionMachine, limit_ms: int) -> None:
        self._engine = engine
        self._machine = machine
        self._limit_ms = limit_ms
        self._unanswered = 0
        """The number of the transaction whose commit has not ended within the time for it."""

    def init(self, timeout_ms: int | None) -> None:
        """Wait until the coordinator has given an id, and until an end under way is done."""
        limit_ms = self._limit_ms if timeout_ms is None else timeout_ms
        with self._engine.lock:
            self._check("init_transactions()")
            if not self._machine.happen(_E.INIT):
                raise self._machine.refusal("init_transactions()")
            self._await(
                lambda: self._machine.state not in (_S.INITIALIZING, *_ENDING),
                "init_transactions()",
                limit_ms,
            )
            if self._machine.state is not _S.READY:
                raise self._machine.refusal("init_transactions()")

    def begin(self, producer: SendsMessages, timeout_ms: int | None) -> ProducerTransaction:
        """Begin a transaction, after what `init` waits for."""
        self.init(timeout_ms)
        with self._engine.lock:
            if self._machine.state is not _S.READY:  # Another thread was faster.
                raise self._machine.refusal("transaction()")
            self._machine.begin()
            return ProducerTransaction(self, producer, self._machine.number)

    def close(self, timeout_ms: int | None) -> None:
        """Abort what is open, for at most `timeout_ms`; what is being committed is waited for."""
        engine, machine = self._engine, self._machine
        if engine.is_closed or engine.fatal_error is not None or engine.is_own_thread():
            return
        with engine.lock:
            if engine.lock.forked_from is None and (machine.happen(_E.ABORT) or machine.state in _ENDING):
                engine.network.wake()
                limit_ms = self._limit_ms if timeout_ms is None else timeout_ms
                engine.wait_until(lambda: self._has_stopped() or machine.state not in _ENDING, limit_ms)

    # A transaction ------------------------------------------------------------------------------------

    def check(self, number: int, call: str) -> None:
        """Raise what stands in the way of a call on the transaction with this number. Needs the lock."""
        self._check(call)
        if self._machine.number != number or self._machine.state is _S.READY:
            raise TransactionStateError(f"{call}: this transaction has ended: begin another one")

    def is_current(self, number: int) -> bool:
        return self._machine.number == number

    def add_offsets(
        self,
        number: int,
        group: GroupIdentity,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout_ms: int | None,
    ) -> None:
        machine = self._machine
        with self._engine.lock:
            self.check(number, "send_offsets()")
            if machine.state is not _S.IN_TRANSACTION:
                raise machine.reason or machine.refusal("send_offsets()")
            task: OffsetsInTransaction = machine.add_offsets(group, offsets)
            limit_ms = self._limit_ms if timeout_ms is None else timeout_ms
            self._await(lambda: task.is_done, "send_offsets()", limit_ms)
            if task.error is not None:
                raise task.error

    def commit(self, number: int, timeout_ms: int | None) -> None:
        machine = self._machine
        with self._engine.lock:
            if number == self._unanswered == machine.committed:
                return  # It ended after the call that did not wait for it.
            if machine.state is _S.FATAL_ERROR and machine.number == number and machine.outcome_is_unknown:
                raise machine.commit_unknown(machine.reason)
            self.check(number, "commit()")
            if not machine.happen(_E.COMMIT):
                raise machine.reason or machine.refusal("commit()")
            self._engine.queues.flushing += 1
            try:
                self._await_end(number, _S.COMMITTING, "commit()", timeout_ms)
            except RequestTimeoutError:
                self._unanswered = number
                raise
            except Exception as error:
                if machine.outcome_is_unknown:
                    raise machine.commit_unknown(error) from error
                raise
            finally:
                self._engine.queues.flushing -= 1
            if machine.state is _S.ABORTABLE_ERROR and machine.number == number:
                assert machine.reason is not None
                raise machine.reason

    def abort(self, number: int, timeout_ms: int | None) -> None:
        machine = self._machine
        with self._engine.lock:
            self.check(number, "abort()")
            if not machine.happen(_E.ABORT):
                raise machine.refusal("abort()")
            self._await_end(number, _S.ABORTING, "abort()", timeout_ms)

    def _await_end(self, number: int, state: TransactionalState, call: str, timeout_ms: int | None) -> None:
        machine = self._machine
        limit_ms = self._limit_ms if timeout_ms is None else timeout_ms
        self._await(lambda: machine.state is not state or machine.number != number, call, limit_ms)

    def leave(self, number: int) -> None:
        """Nobody waits for the end of this transaction any more, or will abort it."""
        with self._engine.lock:
            if self._machine.number == number:
                self._machine.aborts_itself = True

    # Waiting ------------------------------------------------------------------------------------------

    def _check(self, call: str) -> None:
        self._engine.lock.check_may_wait(call)
        if self._engine.fatal_error is not None:
            raise self._engine.fatal_error
        if self._engine.is_closed:
            raise ClosedError("the producer is closed")

    def _has_stopped(self) -> bool:
        return self._engine.fatal_error is not None or self._engine.is_closed

    def _await(self, is_so: Callable[[], bool], call: str, timeout_ms: int) -> None:
        """Wait until something is so. Raises why it will never be, or RequestTimeoutError."""
        engine, machine = self._engine, self._machine
        engine.network.wake()
        engine.wait_until(lambda: is_so() or self._has_stopped(), timeout_ms)
        if is_so() and engine.fatal_error is None:
            return
        if self._has_stopped():
            self._check(call)
        unreached = engine.connection.unreachable(engine.network.now_ms())
        if unreached is not None:
            raise unreached
        raise RequestTimeoutError(
            with_cause(
                f"{call} of transactional.id={machine.transactional_id} has not ended within {timeout_ms} "
                f"ms, and the producer goes on: {machine.waits_for()}",
                machine.last_error,
            )
        )


class ProducerTransaction:
    """A transaction that is open. As a context manager, commits it at the end of the block; an exception in
    the block aborts it, and goes on.

    Whatever this producer sends until the end is part of the transaction, by whichever thread.
    """

    def __init__(self, transactions: ProducerTransactions, producer: SendsMessages, number: int) -> None:
        self._transactions = transactions
        self._producer = producer
        self._number = number
        self._is_ending = False

    def send(self, *messages: Message) -> SendResponse:
        """As `Producer.send`. Raises TransactionStateError if this transaction has ended or must be
        aborted."""
        self._check("send()")
        return self._producer.send(*messages)

    def send_at(self, expected_offset: int, *messages: Message, **arguments: Any) -> SendResponse:
        """As `Producer.send_at`: if the condition does not hold, the transaction cannot be committed."""
        self._check("send_at()")
        return self._producer.send_at(expected_offset, *messages, **arguments)

    def send_many(self, topic: str, values: Any, **arguments: Any) -> BulkResponse:
        """As `Producer.send_many`."""
        self._check("send_many()")
        return self._producer.send_many(topic, values, **arguments)

    def _check(self, call: str) -> None:
        # A plain comparison: whether a transaction is open, the queues say.
        if not self._transactions.is_current(self._number):
            raise TransactionStateError(f"{call}: this transaction has ended: begin another one")

    @checked(offsets=OFFSETS_TO_COMMIT, group=_A_GROUP, timeout_ms=A_TIMEOUT)
    def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group: GroupIdentity,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit offsets of a consumer's group with the transaction: they count if it is committed.

        `group` is what `Consumer.group_metadata()` returns; the consumer needs `enable.auto.commit=false`.
        Each offset is that of the next record to be read. Waits for the group's coordinator, for at most
        `max.block.ms` by default. If the offsets cannot be part of the transaction it has to be aborted:
        raises CommitFailedError if other members have the partitions now, and other errors.
        """
        chosen = {
            key: OffsetAndMetadata(stored) if isinstance(stored, int) else stored
            for key, stored in offsets.items()
        }
        if chosen:
            self._transactions.add_offsets(self._number, group, chosen, timeout_ms)

    @checked(timeout_ms=A_TIMEOUT)
    def commit(self, timeout_ms: int | None = None) -> None:
        """Send what is queued, and make all of it count. Returns once the coordinator has decided so.

        Raises the error of the first message that failed, if one did: then nothing counts, and `abort` comes
        next. Raises ProducerFencedError if another producer has taken over: nothing counts then either. The
        same goes for a transaction that was open for longer than `transaction.timeout.ms`; where the cluster
        has `transaction.version` 2, that raises TransactionAbortedError, and the producer goes on after
        `abort`. Raises CommitUnknownError if the outcome cannot be known any more, and RequestTimeoutError
        after `timeout_ms` (default `max.block.ms`): the producer goes on, and the next call waits for the
        same end.
        """
        self._is_ending = True
        self._transactions.commit(self._number, timeout_ms)

    @checked(timeout_ms=A_TIMEOUT)
    def abort(self, timeout_ms: int | None = None) -> None:
        """Drop what is queued, and have everything that was written left out by readers of committed records.

        Raises ProducerFencedError as `commit` does, and RequestTimeoutError: the producer goes on aborting.
        """
        self._is_ending = True
        self._transactions.abort(self._number, timeout_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None:
            if not self._is_ending:  # Else the block has ended it itself.
                self._commit_or_abort()
        elif not self._is_ending:
            self._abort_for(error)

    def _commit_or_abort(self) -> None:
        try:
            self.commit()
        except (RequestTimeoutError, CommitUnknownError):
            self._transactions.leave(self._number)
            raise  # The end is on its way.
        except Exception as error:
            self._abort_for(error)
            raise

    def _abort_for(self, error: BaseException) -> None:
        """Abort because of an error, which is raised with what goes wrong meanwhile below it."""
        try:
            self.abort()
        except Exception as problem:
            if problem is not error:
                error.add_note(f"while the transaction was aborted: {type(problem).__name__}: {problem}")
