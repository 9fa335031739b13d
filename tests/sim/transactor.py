"""Simulated transactional producers: one process with a transactional id, which writes one transaction after
the other to partitions of a topic, sometimes with the offset of a group (KIP-98).

It works as Kafka's clients do. It asks again what a broker refuses for the time being, aborts what it could
not write, and goes on with the next epoch then (KIP-360). A process that is fenced ends. Others, at the whim
of `transaction_life`, die, sleep, or are fenced by the next process with their id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from holdfast_log.protocol.records import BatchBuilder
from tests.sim.client import PASSING, RETRY_S, Client, Surroundings
from tests.sim.history import Batch, Outcome, TopicPartition
from tests.sim.plan import TransactionsPlan
from tests.sim.transaction_history import Epoch, Fate, TransactionHistory, TransactionTold

R = TypeVar("R", bound=Response)

OF_GROUP, OF_TRANSACTION = 0, 1
"""Kinds of coordinators."""
_ACKS_TIMEOUT_MS = 3000
_PATIENCE_S = 6.0
"""How long a transaction tries to write one batch, or to add partitions, before it is aborted."""
_COMMIT_SHARE = 0.75
_OFFSET_SHARE = 0.4
_SLOW_SHARE = 0.15
"""The share of transactions that sleep in the middle, for up to twice their timeout."""
_BATCHES_MAX = 5

FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
_REPEATED = PASSING | _MOVED | {ErrorCode.CONCURRENT_TRANSACTIONS}


class Transactor(Client):
    """One process. It makes transactions while it `is_making`, until it `is_over`."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        transactional_id: str,
        plan: TransactionsPlan,
        told: TransactionHistory,
    ) -> None:
        super().__init__(around, name)
        self.transactional_id = transactional_id
        self.is_making = True
        self.is_over = False
        """Whether another process has taken over, or the coordinator has given the producer up."""
        self.is_working = True
        """Whether it is in the middle of something."""
        self._plan = plan
        self._told = told
        self._epoch: Epoch | None = None
        self._must_renew = False
        self._sequences: dict[TopicPartition, int] = {}
        self._homes: dict[int, Address] = {}
        self._inits_before = 0
        self._batches = 0

    def begin(self) -> None:
        super().begin()
        ensureDeferred(self._live()).addErrback(self._failed)

    @property
    def is_idle(self) -> bool:
        return self.is_over or (not self.is_making and not self.is_working)

    def _failed(self, failure: Failure) -> None:
        self.world.problem(self.name, failure.getTraceback())

    async def _live(self) -> None:
        while not self.is_over:
            if self._epoch is None or self._must_renew:
                await self._init()
            elif self.is_making:
                self.is_working = True
                await self._transact(self._epoch)
            self.is_working = False
            await self._sleep(self._plan.pause_s * self.rng.uniform(0.2, 1.8))

    # Requests

    def _sleep(self, seconds: float) -> Deferred[None]:
        slept: Deferred[None] = Deferred()
        self.later(seconds, slept.callback, None)
        return slept

    async def _call(self, address: Address, request: Request[R], version: int | None = None) -> R | None:
        """The answer to a request; None if there is none."""
        try:
            answer = await self.send(address, request, version)
        except Exception:
            self.refresh()
            return None
        self.history.operations += 1
        return answer

    async def _home(self, kind: int, key: str) -> Address | None:
        home = self._homes.get(kind)
        if home is None:
            answer = await self._call(self.anyone(), FindCoordinatorRequest(key=key, key_type=kind), 3)
            if answer is None or answer.error_code != ErrorCode.NONE:
                return None
            home = self._homes[kind] = Address(answer.host, answer.port)
        return home

    async def _ask(
        self,
        kind: int,
        key: str,
        request: Request[R],
        version: int,
        error_of: Callable[[R], int],
    ) -> tuple[ErrorCode, R | None]:
        """Ask a coordinator once. REQUEST_TIMED_OUT stands for no answer."""
        home = await self._home(kind, key)
        if home is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, None
        answer = await self._call(home, request, version)
        error = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(error_of(answer))
        if answer is None or error in _MOVED:
            self._homes.pop(kind, None)
        return error, answer

    def _ask_own(
        self, request: Request[R], version: int, error_of: Callable[[R], int]
    ) -> Any:  # A coroutine of what `_ask` returns.
        return self._ask(OF_TRANSACTION, self.transactional_id, request, version, error_of)

    # The epoch

    async def _init(self) -> None:
        """Get an epoch: the first one, or the one after the present (KIP-360)."""
        tid = self.transactional_id
        while True:
            before, is_renewal = self._epoch, self._epoch is not None
            request = InitProducerIdRequest(
                transactional_id=tid,
                transaction_timeout_ms=self._plan.timeout_ms,
                producer_id=before.producer_id if before is not None else -1,
                producer_epoch=before.epoch if before is not None else -1,
            )
            inits = self._told.inits[tid] = self._told.inits.get(tid, 0) + 1
            error, answer = await self._ask_own(request, 4, lambda row: row.error_code)
            if error == ErrorCode.NONE:
                epoch = Epoch(self.name, answer.producer_id, answer.producer_epoch)
                self._epoch = self._told.given(tid, epoch)
                self._inits_before, self._must_renew = inits, False
                self._sequences.clear()
                return
            if error == ErrorCode.REQUEST_TIMED_OUT or error in _MOVED:
                self._told.lost_inits[tid] = self._told.lost_inits.get(tid, 0) + 1
            if is_renewal and error in FENCED:
                self.is_over = True
                return
            if error not in _REPEATED:
                self.history.violation(f"{self.name} got {error.name} for its producer id")
            await self._sleep(RETRY_S)

    def _fenced(self, told: TransactionTold, began_s: float) -> None:
        """This producer is refused for good: another one has its transactional id, or it was too slow."""
        self.is_over = True
        tid, lasted_s = self.transactional_id, self.world.seconds() - began_s
        is_replaced = self._told.inits[tid] > self._inits_before or self._told.lost_inits.get(tid, 0)
        is_late = self._told.may_time_out_early or lasted_s * 1000 >= self._plan.timeout_ms
        if not is_replaced and not is_late:
            self.history.violation(
                f"{self.name} was fenced in {told}, {lasted_s:.3f} s after it began, by nobody: the "
                f"timeout is {self._plan.timeout_ms} ms"
            )

    # A transaction

    async def _transact(self, epoch: Epoch) -> None:
        topic = self.topics.get(self._plan.topic)
        if topic is None:
            self.refresh()
            return
        began_s = self.world.seconds()
        told = self._told.begun(self.transactional_id, epoch)
        known = [(self._plan.topic, number) for number in topic.leaders]
        places = self.rng.sample(known, self.rng.randint(1, len(known)))
        error = await self._write(told, epoch, places)
        if error in FENCED:
            self._fenced(told, began_s)
            return
        is_commit = error is ErrorCode.NONE and self.rng.random() < _COMMIT_SHARE
        if error is not ErrorCode.NONE:
            # Something may still be on its way: the next transaction needs an epoch of its own.
            self._must_renew = True
            if self.rng.random() < 0.5:
                # To ask for the next epoch aborts what is open.
                told.fate = Fate.ABORTED
                return
        await self._end(told, epoch, began_s, is_commit=is_commit)

    async def _write(self, told: TransactionTold, epoch: Epoch, places: list[TopicPartition]) -> ErrorCode:
        """Add partitions and write to them. NONE if all is written; otherwise why not."""
        error = await self._add(epoch, places)
        if error is not ErrorCode.NONE:
            return error
        if self.rng.random() < _SLOW_SHARE:
            await self._sleep(self.rng.uniform(0.0, 2.0) * self._plan.timeout_ms / 1000)
        for place in places + self.rng.choices(places, k=self.rng.randint(0, _BATCHES_MAX - len(places))):
            error = await self._produce(told, epoch, place)
            if error is not ErrorCode.NONE:
                return error
        if self._plan.has_offsets and self.rng.random() < _OFFSET_SHARE:
            return await self._commit_offset(told, epoch)
        return ErrorCode.NONE

    async def _patiently(self, attempt: Callable[[], Any], what: str, abortable: frozenset[Any]) -> ErrorCode:
        """Try something until it succeeds, is refused for good, or has taken too long (REQUEST_TIMED_OUT)."""
        until_s = self.world.seconds() + _PATIENCE_S
        while True:
            error: ErrorCode = await attempt()
            if error is ErrorCode.NONE or error in FENCED or error in abortable:
                return error
            if error not in _REPEATED:
                self.history.violation(f"{self.name} got {error.name} for {what}")
                return error
            if self.world.seconds() > until_s:
                return ErrorCode.REQUEST_TIMED_OUT
            await self._sleep(RETRY_S)

    async def _add(self, epoch: Epoch, places: list[TopicPartition]) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=epoch.producer_id,
            v3_and_below_producer_epoch=epoch.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=self._plan.topic, partitions=[number for _, number in places])
            ],
        )

        def error_of(response: Any) -> int:
            topics = response.results_by_topic_v3_and_below
            rows = [row for topic in topics for row in topic.results_by_partition]
            refused = [row.partition_error_code for row in rows if row.partition_error_code]
            real = [code for code in refused if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
            return (real or refused or [ErrorCode.NONE])[0]

        async def attempt() -> ErrorCode:
            error, _ = await self._ask_own(request, 3, error_of)
            return error

        return await self._patiently(attempt, "the partitions of a transaction", frozenset())

    async def _produce(self, told: TransactionTold, epoch: Epoch, at: TopicPartition) -> ErrorCode:
        number, self._batches = self._batches, self._batches + 1
        count = self.rng.randint(1, 3)
        values = [
            f"{self.name}/{told.number}/{at[0]}-{at[1]}/{number}.{index} ".encode()
            + bytes(self.rng.randrange(120))
            for index in range(count)
        ]
        batch = Batch(
            self.name, at, number, values, -1, True, self.world.seconds(),
            topic_id=self.topics[at[0]].topic_id,
        )  # fmt: skip
        self._told.writes(told, batch)
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = sequence + count
        builder = BatchBuilder()
        for value in values:
            builder.append(self.process.clock.date_ms(), None, value)
        encoded = builder.build(
            producer_id=epoch.producer_id, producer_epoch=epoch.epoch, base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip
        data = PartitionProduceData(index=at[1], records=encoded)
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=_ACKS_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=at[0], partition_data=[data])],
        )

        async def attempt() -> ErrorCode:
            leader = self.leader_of(at)
            if leader is None:
                self.refresh()
                return ErrorCode.LEADER_NOT_AVAILABLE
            batch.sends += 1
            answer = await self._call(leader[0], request)
            if answer is None:
                return ErrorCode.REQUEST_TIMED_OUT
            row = answer.responses[0].partition_responses[0]
            error = ErrorCode(row.error_code)
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                batch.outcome = Outcome.ACKED
                batch.offset = row.base_offset if error is ErrorCode.NONE else None
                self.history.acknowledged(batch, encoded)
                return ErrorCode.NONE
            if error in PASSING:
                self.refresh()
            return error

        error = await self._patiently(attempt, str(batch), _ABORTABLE)
        if error is not ErrorCode.NONE:
            batch.outcome = Outcome.UNKNOWN
        return error

    async def _commit_offset(self, told: TransactionTold, epoch: Epoch) -> ErrorCode:
        """Commit the number of the transaction as the offset of the group in the first partition."""
        group = group_of(self.transactional_id)
        added = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=epoch.producer_id,
            producer_epoch=epoch.epoch,
            group_id=group,
        )

        async def add() -> ErrorCode:
            error, _ = await self._ask_own(added, 3, lambda row: row.error_code)
            return error

        error = await self._patiently(add, "the group of a transaction", frozenset())
        if error is not ErrorCode.NONE:
            return error
        told.offset = told.number
        row = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=told.number, committed_metadata=str(told)
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=epoch.producer_id,
            producer_epoch=epoch.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self._plan.topic, partitions=[row])],
        )

        async def commit() -> ErrorCode:
            error, _ = await self._ask(
                OF_GROUP, group, request, 3, lambda answer: answer.topics[0].partitions[0].error_code
            )
            return error

        return await self._patiently(commit, "the offsets of a transaction", _ABORTABLE)

    async def _end(self, told: TransactionTold, epoch: Epoch, began_s: float, *, is_commit: bool) -> None:
        """Commit or abort, and ask until there is an answer."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=epoch.producer_id,
            producer_epoch=epoch.epoch,
            committed=is_commit,
        )
        is_uncertain = False
        if is_commit:
            told.asked_s = self.world.seconds()
        while True:
            sent_s = self.world.seconds()
            error, _ = await self._ask_own(request, 3, lambda row: row.error_code)
            if error is ErrorCode.NONE and is_commit:
                self._told.committed(told, sent_s)
                return
            # What was never begun needs no end.
            if error is ErrorCode.NONE or (error is ErrorCode.INVALID_TXN_STATE and not is_commit):
                told.fate = Fate.ABORTED
                return
            if error in FENCED:
                told.fate = Fate.UNKNOWN if is_commit and is_uncertain else Fate.ABORTED
                self._fenced(told, began_s)
                return
            if error not in _REPEATED:
                self.history.violation(f"{self.name} got {error.name} for the end of {told}")
                told.fate = Fate.UNKNOWN
                self._must_renew = True
                return
            is_uncertain = True
            await self._sleep(RETRY_S)


def group_of(transactional_id: str) -> str:
    """The group whose offsets a transactional id commits."""
    return f"of {transactional_id}"
