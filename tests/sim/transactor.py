"""Simulated transactional producers: one process with a transactional id, which writes one transaction after
the other to partitions of a topic, sometimes with the offset of a group (KIP-98).

It works as Kafka's clients do. It asks again what a broker refuses for the time being, and aborts what it
could not write. Then it goes on with the next epoch: it asks for one (KIP-360), or each end of a transaction
gives it one, and the leaders of partitions add them to the transaction (KIP-890). A process that is fenced
ends. Others, at the whim of `transaction_life`, die, sleep, or are fenced by the next process with their id.

A producer may write for an owner (`landlord`). Then each transaction writes to the owner's partition too, by
the fence of the grant that the owner had when it began, and names that grant when it commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from holdfast_log.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from holdfast_log.protocol.messages.end_txn import EndTxnRequest, PartitionOwnedInTransaction
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.sim.client import RETRY_S, Surroundings
from tests.sim.history import TopicPartition
from tests.sim.landlord import Landlord, Tenure
from tests.sim.plan import TransactionsPlan
from tests.sim.transaction_client import FENCED, OF_GROUP, REPEATED
from tests.sim.transaction_history import Epoch, Fate, TransactionHistory, TransactionTold
from tests.sim.transactional_writer import ABORTABLE, TransactionalWriter

_COMMIT_SHARE = 0.75
_OFFSET_SHARE = 0.4
_SLOW_SHARE = 0.15
_SLOW_FOR_OWNERS_SHARE = 0.35
"""The share of transactions that sleep in the middle, for up to twice their timeout."""
_BATCHES_MAX = 5
_INIT_AFTER_ERROR_SHARE = 0.5
_STRAGGLER_SHARE = 0.2
_LIVES_ON_SHARE = 0.3
"""The share of batches after which a process that is to die in a transaction goes on."""


@dataclass(frozen=True, slots=True)
class _Protocol:
    """Versions of requests: with the first ones a producer names the partitions of a transaction itself, and
    goes on with its epoch (KIP-98); with the others neither (KIP-890)."""

    end: int
    offsets: int
    produce: int | None


_BY_NAMES = _Protocol(end=3, offsets=3, produce=None)
_BY_EPOCHS = _Protocol(end=5, offsets=5, produce=12)


class Transactor(TransactionalWriter):
    """One process. It makes transactions while it `is_making`, until it `is_over`. `bumps`: each end of a
    transaction gives it an epoch. It writes for a `landlord` if there is one."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        transactional_id: str,
        plan: TransactionsPlan,
        told: TransactionHistory,
        *,
        bumps: bool = False,
        landlord: Landlord | None = None,
    ) -> None:
        super().__init__(around, name, transactional_id, told)
        self.is_making = True
        self.is_over = False
        """Whether another process has taken over, or the coordinator has given the producer up."""
        self.is_working = True
        """Whether it is in the middle of something."""
        self.dies_open = False
        """Whether it dies in the middle of its next transaction."""
        self._plan = plan
        self._bumps = bumps
        self._protocol = _BY_EPOCHS if bumps else _BY_NAMES
        self.produce_version = self._protocol.produce
        self._landlord = landlord
        self.owned = None if landlord is None else landlord.told
        self._read_up_to: Tenure | None = None
        self._epoch: Epoch | None = None
        self._must_renew = False
        self._inits_before = 0

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
                await self._perhaps_transact(self._epoch)
            self.is_working = False
            await self.sleep(self._plan.pause_s * self.rng.uniform(0.2, 1.8))

    async def _perhaps_die(self) -> None:
        """End the process here, with the transaction open."""
        if not self.dies_open or self.rng.random() < _LIVES_ON_SHARE:
            return
        self.world.trace(self.name, "dies in the middle of a transaction")
        self.is_over = True
        self.process.kill()
        await Deferred()  # Nothing comes after that.

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
            self.told.inits_asked[tid] += 1
            error, answer = await self.ask_own(request, 4, lambda row: row.error_code)
            if error is not ErrorCode.REQUEST_TIMED_OUT:
                # What is not answered may be carried out at any time, also after later requests.
                self.told.inits_done[tid] += 1
            if error == ErrorCode.NONE and answer is not None:
                epoch = Epoch(self.name, answer.producer_id, answer.producer_epoch)
                self._go_on(self.told.given(tid, epoch))
                self._inits_before, self._must_renew = self.told.inits_done[tid], False
                return
            if is_renewal and error in FENCED:
                self.is_over = True
                return
            if error not in REPEATED:
                self.history.violation(f"{self.name} got {error.name} for its producer id")
            await self.sleep(RETRY_S)

    def _go_on(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self.sequences.clear()

    def _may_be_late(self, began_s: float) -> bool:
        """Whether a transaction may have timed out."""
        lasted_s = self.world.seconds() - began_s
        return self.told.may_time_out_early or lasted_s * 1000 >= self._plan.timeout_ms

    def _fenced(self, told: TransactionTold, began_s: float) -> None:
        """This producer is refused for good: another one has its transactional id, or it was too slow."""
        self.is_over = True
        tid, lasted_s = self.transactional_id, self.world.seconds() - began_s
        # Its own answer may have come late, after that of its successor.
        is_replaced = self.told.inits_asked[tid] > self._inits_before or told.epoch.fenced_s is not None
        # One with an epoch for each transaction goes on after a time-out: it may repeat the abort.
        if not is_replaced and (self._bumps or not self._may_be_late(began_s)):
            self.history.violation(
                f"{self.name} was fenced in {told}, {lasted_s:.3f} s after it began, by nobody: the "
                f"timeout is {self._plan.timeout_ms} ms"
            )

    # A transaction

    async def _perhaps_transact(self, epoch: Epoch) -> None:
        topic = self.topics.get(self._plan.topic)
        if topic is None:
            self.refresh()
            return
        known = [(self._plan.topic, number) for number in topic.leaders]
        places = self.rng.sample(known, self.rng.randint(1, len(known)))
        tenure = None
        if self._landlord is not None:
            tenure = self._landlord.tenure()
            if tenure is None or not await self._has_read_up_to(tenure):
                return
            places = [self._landlord.at, *places[1:]]
        await self._transact(epoch, places, tenure)

    async def _has_read_up_to(self, tenure: Tenure) -> bool:
        """Whether everything before the fence of a grant is decided, as its owner has to know before it
        begins. What another owner has open there must end by then."""
        known = self._read_up_to
        if known is not None and known.grant.incarnation == tenure.grant.incarnation:
            return True
        stable = await self.end_of(tenure.grant.place.at, isolation_level=1)
        if stable is None or stable < tenure.grant.fence_offset:
            return False
        self._read_up_to = tenure
        return True

    async def _transact(self, epoch: Epoch, places: list[TopicPartition], tenure: Tenure | None) -> None:
        began_s = self.world.seconds()
        told = self.told.begun(self.transactional_id, epoch, tenure)
        error = await self._write(told, epoch, places)
        if error is ErrorCode.INVALID_PRODUCER_EPOCH and self._bumps:
            # Perhaps its time was over: the end of the transaction tells, and gives the next epoch.
            error = ErrorCode.TRANSACTION_ABORTABLE
        if error in FENCED:
            self._fenced(told, began_s)
            return
        is_commit = error is ErrorCode.NONE and self.rng.random() < _COMMIT_SHARE
        if error is not ErrorCode.NONE and not self._bumps:
            # Something may still be on its way: the next transaction needs an epoch of its own.
            self._must_renew = True
            if self.rng.random() < _INIT_AFTER_ERROR_SHARE:
                # To ask for the next epoch aborts what is open.
                told.fate = Fate.ABORTED
                return
        await self._end(told, epoch, began_s, is_commit=is_commit)

    async def _write(self, told: TransactionTold, epoch: Epoch, places: list[TopicPartition]) -> ErrorCode:
        """Add partitions and write to them. NONE if all is written; otherwise why not."""
        if not self._bumps:
            error = await self._add(epoch, places)
            if error is not ErrorCode.NONE:
                return error
        batches = places + self.rng.choices(places, k=self.rng.randint(0, max(0, _BATCHES_MAX - len(places))))
        slow_share = _SLOW_SHARE if told.tenure is None else _SLOW_FOR_OWNERS_SHARE
        sleeps_before = self.rng.randint(1, len(batches)) if self.rng.random() < slow_share else None
        for number, place in enumerate(batches):
            if number == sleeps_before:
                await self._sleep_long()
            error = await self.produce(told, epoch, place)
            if error is not ErrorCode.NONE:
                return error
            await self._perhaps_die()
        if sleeps_before == len(batches):
            await self._sleep_long()
        if self._plan.has_offsets and self.rng.random() < _OFFSET_SHARE:
            error = await self._commit_offset(told, epoch)
            await self._perhaps_die()
            return error
        return ErrorCode.NONE

    def _sleep_long(self) -> Deferred[None]:
        return self.sleep(self.rng.uniform(0.0, 2.0) * self._plan.timeout_ms / 1000)

    async def _add(self, epoch: Epoch, places: list[TopicPartition]) -> ErrorCode:
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        request = AddPartitionsToTxnRequest(
            transactions=[],
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=epoch.producer_id,
            v3_and_below_producer_epoch=epoch.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in topics.items()
            ],
        )

        def error_of(response: Any) -> int:
            topics = response.results_by_topic_v3_and_below
            rows = [row for topic in topics for row in topic.results_by_partition]
            refused = [row.partition_error_code for row in rows if row.partition_error_code]
            real = [code for code in refused if code != ErrorCode.OPERATION_NOT_ATTEMPTED]
            return int((real or refused or [ErrorCode.NONE])[0])

        async def attempt() -> ErrorCode:
            error, _ = await self.ask_own(request, 3, error_of)
            return error

        return await self.patiently(attempt, "the partitions of a transaction")

    async def _commit_offset(self, told: TransactionTold, epoch: Epoch) -> ErrorCode:
        """Commit the number of the transaction as the offset of the group in the first partition."""
        group = group_of(self.transactional_id)
        if not self._bumps:
            error = await self._add_group(epoch, group)
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
            version = self._protocol.offsets
            error, _ = await self.ask(
                OF_GROUP, group, request, version, lambda answer: answer.topics[0].partitions[0].error_code
            )
            return error

        return await self.patiently(commit, "the offsets of a transaction", ABORTABLE)

    async def _add_group(self, epoch: Epoch, group: str) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=epoch.producer_id,
            producer_epoch=epoch.epoch,
            group_id=group,
        )

        async def add() -> ErrorCode:
            error, _ = await self.ask_own(request, 3, lambda row: row.error_code)
            return error

        return await self.patiently(add, "the group of a transaction")

    # Its end

    async def _end(self, told: TransactionTold, epoch: Epoch, began_s: float, *, is_commit: bool) -> None:
        """Commit or abort, and ask until there is an answer."""
        is_uncertain = False
        if is_commit:
            told.asked_s = self.world.seconds()
        while True:
            sent_s = self.world.seconds()
            request = self._end_request(told, epoch, is_commit=is_commit)
            error, answer = await self.ask_own(request, self._protocol.end, lambda row: row.error_code)
            if error is ErrorCode.NONE:
                if is_commit:
                    self.told.committed(told, sent_s)
                else:
                    told.fate = Fate.ABORTED
                if self._bumps and answer is not None:
                    next_one = Epoch(self.name, answer.producer_id, answer.producer_epoch)
                    self._go_on(self.told.went_on(self.transactional_id, epoch, next_one))
                    await self._perhaps_straggle(epoch)
                return
            if is_commit and self._is_refused(error, told, began_s):
                # Nothing of it counts, and never will.
                told.fate, is_commit = Fate.ABORTED, False
                continue
            if error is ErrorCode.INVALID_TXN_STATE and not is_commit and not self._bumps:
                # What was never begun needs no end.
                told.fate = Fate.ABORTED
                return
            if error in FENCED:
                told.fate = Fate.UNKNOWN if is_commit and is_uncertain else Fate.ABORTED
                self._fenced(told, began_s)
                return
            if error not in REPEATED:
                self.history.violation(f"{self.name} got {error.name} for the end of {told}")
                told.fate = Fate.UNKNOWN
                self._must_renew = True
                return
            is_uncertain = True
            await self.sleep(RETRY_S)

    def _is_refused(self, error: ErrorCode, told: TransactionTold, began_s: float) -> bool:
        """Whether a commit was refused for good, to a producer that may go on: its owner has lost the grant,
        or its time was over, which a producer with an epoch for each transaction learns in this way."""
        if error is ErrorCode.OWNERSHIP_FENCED:
            return told.tenure is not None
        return error is ErrorCode.INVALID_TXN_STATE and self._bumps and self._may_be_late(began_s)

    def _end_request(self, told: TransactionTold, epoch: Epoch, *, is_commit: bool) -> EndTxnRequest:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=epoch.producer_id,
            producer_epoch=epoch.epoch,
            committed=is_commit,
        )
        if told.tenure is not None:
            topic, number = told.tenure.grant.place.at
            token = told.tenure.grant.incarnation
            request.owned = [PartitionOwnedInTransaction(topic=topic, partition=number, owner_token=token)]
        return request

    async def _perhaps_straggle(self, ended: Epoch) -> None:
        """Now and then send a batch under the epoch that has just ended, as a connection does that is late:
        it must not become part of the next transaction."""
        if self.rng.random() < _STRAGGLER_SHARE:
            topic = self.topics[self._plan.topic]
            place = (self._plan.topic, self.rng.choice(list(topic.leaders)))
            self.straggle(ended, place)


def group_of(transactional_id: str) -> str:
    """The group whose offsets a transactional id commits."""
    return f"of {transactional_id}"
