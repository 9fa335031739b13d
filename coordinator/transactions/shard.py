"""The transaction coordinator as a pure machine: one shard for each partition of `__transaction_state`.

Requests, deadlines and the news that partitions have a marker go in; each returns one `TransactionResult` of
records, markers and answers. `states.TRANSITIONS` says what each event does in each state, `epochs` who may
cause it.

State changes in memory at once, so that later requests see it; no answer and no marker is sent before the
records that it depends on are committed. If the log refuses a result's records, the transactional ids return
to what they were (`refused`). What is in the log a new coordinator finishes: `loaded` returns the markers of
every transaction whose end is decided.

The shard uses no clock, network or log. Times are ms since the epoch and must not decrease.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from holdfast_log.coordinator.shards.effects import (
    OversizedRecords,
    ProducerStamp,
    RecordsRefused,
    RequestToken,
)
from holdfast_log.coordinator.timers import Timers
from holdfast_log.coordinator.transactions.effects import (
    MarkersToWrite,
    PartitionsAnswer,
    ProducerAnswer,
    ProducerIdWanted,
    TransactionAnswer,
    TransactionResult,
    TransactionsAnswer,
    success,
)
from holdfast_log.coordinator.transactions.epochs import (
    BUMPING_VERSION,
    EPOCH_MAX,
    NextEpoch,
    ProducerName,
    after_end,
    event_of_end,
    is_exhausted,
    is_next,
    may_init,
    next_epoch,
)
from holdfast_log.coordinator.transactions.memory import NO_SOURCE, ShardMemory, TransactionMemory, price
from holdfast_log.coordinator.transactions.records import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    decode_transaction,
    decode_transaction_key,
    transaction_record,
)
from holdfast_log.coordinator.transactions.settings import TransactionSettings
from holdfast_log.coordinator.transactions.states import TransactionEvent, TransactionState, outcome
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

_E, _S = TransactionEvent, TransactionState
_FIRST_FLEXIBLE_VERSION = 1
_ID_BYTES_MAX = 2**15 - 1
RETRY_MS = 1_000
"""Pause before a change that the log has refused, and that no client repeats, is tried again, in ms."""
_DUE_PER_TICK = 100
"""Deadlines handled in one event."""


class TransactionShard:
    """The transactional ids of one partition of `__transaction_state`; `memory` counts those of all."""

    def __init__(self, settings: TransactionSettings, memory: TransactionMemory | None = None) -> None:
        self._settings = settings
        self._memory = ShardMemory(settings, memory or TransactionMemory())
        self._transactions: dict[str, Transaction] = {}
        self._timers: Timers[str] = Timers()

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """What is known, by transactional id; read only."""
        return self._transactions

    # The log

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Restore one record. Keys of unknown versions are skipped. Raises `MalformedRecord`."""
        transactional_id = decode_transaction_key(key)
        if transactional_id is not None:
            self._put(transactional_id, None if value is None else decode_transaction(value))

    def replay_open(self, stamp: ProducerStamp, key: bytes, value: bytes | None) -> None:
        """No transaction writes to `__transaction_state`: such records count for nothing."""

    def loaded(self, now_ms: int) -> TransactionResult:
        """All records have been replayed: go on with the transactions whose end is decided."""
        result = TransactionResult()
        for transactional_id, transaction in self._transactions.items():
            self._set_deadline(transactional_id, transaction)
            if transaction.state.is_ending:
                result.claims.append(_markers(transactional_id, transaction))
        return result

    def refused(self, result: TransactionResult, error: ErrorCode, now_ms: int) -> TransactionResult:
        """The log refused the records of `result`: nothing has happened."""
        undone = TransactionResult()
        for request, _ in result.replies:
            undone.reply(request, RecordsRefused(error))
        for transactional_id, before in result.before.items():
            self._put(transactional_id, before)
            if before is not None:
                self._set_deadline(transactional_id, before, now_ms + RETRY_MS)
        return undone

    def too_large(self, result: TransactionResult) -> OversizedRecords:
        return OversizedRecords(", ".join(result.before), ErrorCode.UNKNOWN_SERVER_ERROR)

    def closed(self, error: ErrorCode) -> TransactionResult:
        """No request waits in this shard."""
        return TransactionResult()

    def close(self) -> None:
        self._memory.close()

    # Time

    def next_deadline_ms(self) -> int | None:
        return self._timers.next_ms()

    def tick(self, now_ms: int) -> TransactionResult:
        """Abort transactions that are open for too long, forget ids that are not used, repeat what the log
        has refused."""
        result = TransactionResult()
        for _ in range(_DUE_PER_TICK):
            transactional_id = self._timers.pop_due(now_ms)
            if transactional_id is None:
                break
            transaction = self._transactions.get(transactional_id)
            if transaction is None:
                continue
            if transaction.state.is_ending and not transaction.partitions:
                self._complete(result, transactional_id, transaction, now_ms)
            elif outcome(transaction.state, _E.TIME_OUT) is _S.PREPARE_EPOCH_FENCE:
                self._fence(result, transactional_id, transaction, now_ms, may_go_on=True)
            elif outcome(transaction.state, _E.EXPIRE) is _S.DEAD:
                self._store(result, transactional_id, None)
        return result

    # Requests

    def init_producer_id(
        self,
        request: RequestToken,
        transactional_id: str,
        timeout_ms: int,
        *,
        now_ms: int,
        expected: ProducerName | None = None,
        new_producer_id: int | None = None,
        source: str = NO_SOURCE,
    ) -> TransactionResult:
        """InitProducerId with a transactional id. `expected` is what the producer says to have; answered with
        `ProducerIdWanted` if that needs a `new_producer_id`. The memory of the id counts to its `source`."""
        result = TransactionResult()
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            result.reply(request, ProducerAnswer(ErrorCode.INVALID_TRANSACTION_TIMEOUT))
            return result
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            self._create(result, request, transactional_id, timeout_ms, new_producer_id, now_ms, source)
            return result
        if not may_init(transaction, expected):
            result.reply(request, ProducerAnswer(ErrorCode.PRODUCER_FENCED))
            return result
        match outcome(transaction.state, _E.INIT):
            case ErrorCode() as error:
                result.reply(request, ProducerAnswer(error))
            case _S.PREPARE_EPOCH_FENCE:
                # The producer asks again, and gets the epoch after this one, once the transaction is aborted.
                self._fence(result, transactional_id, transaction, now_ms)
                result.reply(request, ProducerAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
            case state:
                found = next_epoch(transaction, expected, new_producer_id)
                if isinstance(found, NextEpoch):
                    self._memory.adopt(transactional_id, transaction, source)
                    renewed = replace(_renewed(transaction, found, timeout_ms, now_ms), state=state)
                    self._store(result, transactional_id, renewed)
                    result.reply(request, success(ProducerName(found.producer_id, found.epoch)))
                elif found is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    result.reply(request, ProducerIdWanted())
                else:
                    result.reply(request, ProducerAnswer(found))
        return result

    def add_partitions(
        self,
        request: RequestToken,
        transactional_id: str,
        producer: ProducerName,
        partitions: Collection[TopicPartition],
        *,
        now_ms: int,
        client_version: int = 0,
    ) -> TransactionResult:
        """AddPartitionsToTxn and AddOffsetsToTxn: the transaction is about to write to `partitions`."""
        result = TransactionResult()
        transaction = self._transactions.get(transactional_id)
        error = _check_producer(transaction, producer)
        if transaction is None or error is not ErrorCode.NONE:
            result.reply(request, PartitionsAnswer(error))
            return result
        match outcome(transaction.state, _E.ADD):
            case ErrorCode() as error:
                result.reply(request, PartitionsAnswer(error))
                return result
            case state:
                is_begun = transaction.state is state
        if is_begun and transaction.partitions.issuperset(partitions):
            result.reply(request, PartitionsAnswer(ErrorCode.NONE))
            return result
        known = transaction.partitions if is_begun else frozenset()
        added = replace(
            transaction,
            state=state,
            partitions=known.union(partitions),
            started_ms=transaction.started_ms if is_begun else now_ms,
            updated_ms=now_ms,
            client_version=client_version,
        )
        grown = price(transactional_id, added) - price(transactional_id, transaction)
        if self._are_too_many(added.partitions) or not self._memory.has_room(transactional_id, grown):
            result.reply(request, PartitionsAnswer(ErrorCode.POLICY_VIOLATION))
            return result
        self._store(result, transactional_id, added)
        result.reply(request, PartitionsAnswer(ErrorCode.NONE))
        return result

    def verify_partitions(
        self,
        request: RequestToken,
        transactional_id: str,
        producer: ProducerName,
        partitions: Iterable[TopicPartition],
    ) -> TransactionResult:
        """Answers TRANSACTION_ABORTABLE for each partition that the open transaction lacks (KIP-890)."""
        result = TransactionResult()
        transaction = self._transactions.get(transactional_id)
        error = _check_producer(transaction, producer)
        if transaction is None or error is not ErrorCode.NONE:
            result.reply(request, PartitionsAnswer(error))
        elif transaction.state.is_ending:
            result.reply(request, PartitionsAnswer(ErrorCode.CONCURRENT_TRANSACTIONS))
        else:
            lacking = [each for each in partitions if each not in transaction.partitions]
            errors = dict.fromkeys(lacking, ErrorCode.TRANSACTION_ABORTABLE)
            result.reply(request, PartitionsAnswer(ErrorCode.NONE, errors))
        return result

    def end(
        self,
        request: RequestToken,
        transactional_id: str,
        producer: ProducerName,
        *,
        is_commit: bool,
        now_ms: int,
        bumps: bool = False,
        new_producer_id: int | None = None,
    ) -> TransactionResult:
        """EndTxn. `bumps`: the producer goes on with the epoch in the answer (from version 5 on)."""
        result = TransactionResult()
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            result.reply(request, ProducerAnswer(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
            return result
        event = event_of_end(transaction, producer, is_commit=is_commit, bumps=bumps)
        if isinstance(event, ErrorCode):
            result.reply(request, ProducerAnswer(event))
            return result
        match outcome(transaction.state, event):
            case ErrorCode.NONE:
                result.reply(request, success(after_end(transaction)))
            case ErrorCode() as error:
                result.reply(request, ProducerAnswer(error))
            case _ if bumps and is_exhausted(transaction.producer_epoch) and new_producer_id is None:
                result.reply(request, ProducerIdWanted())
            case state:
                ended = replace(
                    transaction,
                    state=state,
                    updated_ms=now_ms,
                    started_ms=transaction.started_ms if transaction.partitions else now_ms,
                    client_version=BUMPING_VERSION if bumps else transaction.client_version,
                )
                if bumps:
                    ended = _bumped(ended, new_producer_id)
                self._store(result, transactional_id, ended)
                result.claims.append(_markers(transactional_id, ended))
                result.reply(request, success(after_end(ended)))
        return result

    def describe(self, request: RequestToken, transactional_id: str) -> TransactionResult:
        """DescribeTransactions, one transactional id at a time."""
        result = TransactionResult()
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            result.reply(request, TransactionAnswer(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND))
        else:
            result.reply(request, TransactionAnswer(ErrorCode.NONE, transaction))
        return result

    def list(self, request: RequestToken, now_ms: int) -> TransactionResult:
        """ListTransactions: all that are known, as they are now. The handler chooses among them, a few at a
        time: there may be many."""
        result = TransactionResult()
        known = self._transactions
        # Two lists: a pair for each of many ids takes five times as long.
        result.reply(request, TransactionsAnswer([*known], [*known.values()], now_ms))
        return result

    # Markers

    def marked(
        self, written: MarkersToWrite, partitions: Collection[TopicPartition], now_ms: int
    ) -> TransactionResult:
        """Partitions have the marker, or do not exist any more."""
        result = TransactionResult()
        transactional_id = written.transactional_id
        transaction = self._transactions.get(transactional_id)
        if (
            transaction is None
            or not transaction.state.is_ending
            or transaction.producer_id != written.producer_id
            or transaction.producer_epoch != written.producer_epoch
        ):
            return result
        transaction = replace(transaction, partitions=transaction.partitions.difference(partitions))
        self._put(transactional_id, transaction)
        if not transaction.partitions:
            self._complete(result, transactional_id, transaction, now_ms)
        return result

    # Changes

    def _are_too_many(self, partitions: frozenset[TopicPartition]) -> bool:
        return len(partitions) > self._settings.partitions_max

    def _create(
        self,
        result: TransactionResult,
        request: RequestToken,
        transactional_id: str,
        timeout_ms: int,
        new_producer_id: int | None,
        now_ms: int,
        source: str,
    ) -> None:
        if len(transactional_id.encode()) > _ID_BYTES_MAX:
            result.reply(request, ProducerAnswer(ErrorCode.INVALID_REQUEST))
        elif new_producer_id is None:
            result.reply(request, ProducerIdWanted())
        else:
            created = Transaction(new_producer_id, 0, timeout_ms, _S.EMPTY, frozenset(), now_ms)
            if not self._memory.has_room(transactional_id, price(transactional_id, created), source):
                result.reply(request, ProducerAnswer(ErrorCode.POLICY_VIOLATION))
                return
            self._memory.adopt(transactional_id, None, source)
            self._store(result, transactional_id, created)
            result.reply(request, success(ProducerName(new_producer_id, 0)))

    def _fence(
        self,
        result: TransactionResult,
        transactional_id: str,
        transaction: Transaction,
        now_ms: int,
        *,
        may_go_on: bool = False,
    ) -> None:
        """Abort an open transaction under the next epoch. No producer gets it, unless its own one `may_go_on`
        and gets a new epoch with each end: then its abort counts as a repetition of this one (KIP-890)."""
        epoch = transaction.producer_epoch + 1
        state = outcome(_S.PREPARE_EPOCH_FENCE, _E.FENCED)
        assert isinstance(state, TransactionState)
        aborted = replace(
            transaction,
            state=state,
            producer_epoch=epoch,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            client_version=transaction.client_version if may_go_on and epoch < EPOCH_MAX else 0,
            updated_ms=now_ms,
        )
        self._store(result, transactional_id, aborted)
        result.claims.append(_markers(transactional_id, aborted))

    def _complete(
        self, result: TransactionResult, transactional_id: str, transaction: Transaction, now_ms: int
    ) -> None:
        """All partitions have the marker."""
        state = outcome(transaction.state, _E.MARKED)
        assert isinstance(state, TransactionState)
        completed = replace(transaction, state=state, updated_ms=now_ms)
        if transaction.client_version >= BUMPING_VERSION:
            producer = after_end(transaction)
            completed = replace(
                completed,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                previous_producer_id=transaction.producer_id,
                next_producer_id=NO_PRODUCER_ID,
                last_producer_epoch=transaction.producer_epoch,
            )
        self._store(result, transactional_id, completed)

    def _store(
        self, result: TransactionResult, transactional_id: str, transaction: Transaction | None
    ) -> None:
        """Change a transactional id, with a record; None: forget it."""
        result.before.setdefault(transactional_id, self._transactions.get(transactional_id))
        self._put(transactional_id, transaction)
        self._timers.cancel(transactional_id)
        if transaction is not None:
            self._set_deadline(transactional_id, transaction)
        result.records.append(
            transaction_record(
                transactional_id,
                transaction,
                is_flexible=self._settings.version >= _FIRST_FLEXIBLE_VERSION,
            )
        )

    def _put(self, transactional_id: str, transaction: Transaction | None) -> None:
        """Change a transactional id without a record."""
        before = self._transactions.get(transactional_id)
        self._memory.changed(transactional_id, before, transaction)
        if transaction is not None:
            self._transactions[transactional_id] = transaction
        elif before is not None:
            del self._transactions[transactional_id]
            self._timers.cancel(transactional_id)

    def _set_deadline(self, transactional_id: str, transaction: Transaction, not_before_ms: int = 0) -> None:
        if outcome(transaction.state, _E.TIME_OUT) is _S.PREPARE_EPOCH_FENCE:
            due_ms = transaction.started_ms + transaction.timeout_ms
        elif outcome(transaction.state, _E.EXPIRE) is _S.DEAD:
            due_ms = transaction.updated_ms + self._settings.id_expiration_ms
        elif not transaction.partitions and not_before_ms:
            due_ms = not_before_ms  # The log has refused the record that completes it.
        else:
            return
        self._timers.set(transactional_id, max(due_ms, not_before_ms))


def _check_producer(transaction: Transaction | None, producer: ProducerName) -> ErrorCode:
    if transaction is not None and is_next(transaction, producer):
        return ErrorCode.NONE
    if transaction is None or transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if transaction.producer_epoch != producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def _renewed(transaction: Transaction, epoch: NextEpoch, timeout_ms: int, now_ms: int) -> Transaction:
    """What a producer begins with that has asked for its id."""
    return Transaction(
        epoch.producer_id,
        epoch.epoch,
        timeout_ms,
        transaction.state,
        frozenset(),
        now_ms,
        previous_producer_id=transaction.producer_id,
        last_producer_epoch=epoch.last_epoch,
    )


def _bumped(ended: Transaction, new_producer_id: int | None) -> Transaction:
    """The transaction under its producer's next epoch, with which the markers fence the one before."""
    next_producer_id = NO_PRODUCER_ID
    if is_exhausted(ended.producer_epoch) and new_producer_id is not None:
        next_producer_id = new_producer_id
    return replace(
        ended,
        producer_epoch=ended.producer_epoch + 1,
        last_producer_epoch=ended.producer_epoch,
        next_producer_id=next_producer_id,
    )


def _markers(transactional_id: str, transaction: Transaction) -> MarkersToWrite:
    return MarkersToWrite(
        transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state is _S.PREPARE_COMMIT,
        transaction.partitions,
    )
