"""How simulated transactional producers write batches: plain ones, and for owners by the fences of grants,
some under conditions."""

from __future__ import annotations

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.records import BatchBuilder
from tests.sim.client import NOT_THE_WRITER, PASSING, Surroundings
from tests.sim.history import Batch, Outcome, TopicPartition
from tests.sim.landlord import Tenure
from tests.sim.owner_history import Guard, OwnedBatch, OwnerHistory
from tests.sim.transaction_client import REPEATED, UNCOMMITTED, TransactionClient
from tests.sim.transaction_history import Epoch, TransactionHistory, TransactionTold

_ACKS_TIMEOUT_MS = 3000
_CONDITION_SHARE = 0.4
_GUARD_SHARE = 0.3
_GUARDED = (("t", 0), ("t", 1), ("t", 2))
"""Partitions of a topic that always exists, and that other producers write."""

ABORTABLE = frozenset({ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE})
"""Errors after which a transaction has to be aborted."""
_REFUSED_TO_OWNERS = (
    ABORTABLE | NOT_THE_WRITER | {ErrorCode.OFFSET_MISMATCH, ErrorCode.OPERATION_NOT_ATTEMPTED}
) - {ErrorCode.OWNERSHIP_DETACHED}
_REPEATED_TO_OWNERS = REPEATED | {ErrorCode.OWNERSHIP_DETACHED}


class TransactionalWriter(TransactionClient):
    """A process with a transactional id, and the sequences of its present epoch."""

    produce_version: int | None = None

    def __init__(
        self, around: Surroundings, name: str, transactional_id: str, told: TransactionHistory
    ) -> None:
        super().__init__(around, name, transactional_id)
        self.told = told
        self.owned: OwnerHistory | None = None
        """What owners were told, for a producer that writes for one."""
        self.sequences: dict[TopicPartition, int] = {}
        self._batches = 0

    async def produce(self, told: TransactionTold, epoch: Epoch, at: TopicPartition) -> ErrorCode:
        """Write a batch of a transaction."""
        batch = self._made(at, f"{told.number}")
        self.told.writes(told, batch)
        sequence = self.sequences.get(at, 0)
        self.sequences[at] = sequence + len(batch.values)
        encoded = self._encoded(batch, epoch, sequence)
        tenure = told.tenure
        if tenure is not None and tenure.grant.place.at == at:
            return await self._produce_owned(batch, encoded, tenure)
        request = self._request(batch, PartitionProduceData(index=at[1], records=encoded))

        async def attempt() -> ErrorCode:
            answer = await self._sent(batch, request)
            if answer is None:
                return ErrorCode.REQUEST_TIMED_OUT
            return self._settle(batch, answer.responses[0].partition_responses[0], encoded)

        return self._after(batch, await self.patiently(attempt, str(batch), ABORTABLE))

    def straggle(self, ended: Epoch, at: TopicPartition) -> None:
        """Send a batch under an epoch that has ended, and wait for nothing."""
        leader = self.leader_of(at)
        if leader is None:
            return
        batch = self._made(at, "late")
        batch.outcome = Outcome.UNKNOWN
        batch.sends = 1
        self.told.straggles(batch)
        data = PartitionProduceData(index=at[1], records=self._encoded(batch, ended, 0))
        request = self._request(batch, data)
        self.send(leader[0], request, self.produce_version).addErrback(lambda failure: None)

    # A batch

    def _made(self, at: TopicPartition, what: str) -> Batch:
        number, self._batches = self._batches, self._batches + 1
        values = [
            f"{self.name}/{what}/{at[0]}-{at[1]}/{number}.{index} ".encode() + bytes(self.rng.randrange(120))
            for index in range(self.rng.randint(1, 3))
        ]
        return Batch(
            self.name, at, number, values, -1, True, self.world.seconds(),
            topic_id=self.topics[at[0]].topic_id,
        )  # fmt: skip

    def _encoded(self, batch: Batch, epoch: Epoch, sequence: int) -> bytearray:
        builder = BatchBuilder()
        for value in batch.values:
            builder.append(self.process.clock.date_ms(), None, value)
        return builder.build(
            producer_id=epoch.producer_id, producer_epoch=epoch.epoch, base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip

    def _request(self, batch: Batch, *data: PartitionProduceData) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=_ACKS_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=batch.at[0], partition_data=list(data))],
        )

    async def _sent(self, batch: Batch, request: ProduceRequest) -> ProduceResponse | None:
        leader = self.leader_of(batch.at)
        if leader is None:
            self.refresh()
            return None
        batch.sends += 1
        return await self.call(leader[0], request, self.produce_version)

    def _settle(self, batch: Batch, row: PartitionProduceResponse, encoded: bytearray) -> ErrorCode:
        error = ErrorCode(row.error_code)
        if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.outcome = Outcome.ACKED
            batch.offset = row.base_offset if error is ErrorCode.NONE else None
            self.history.acknowledged(batch, encoded)
            return ErrorCode.NONE
        if error in PASSING:
            self.refresh()
        return error

    @staticmethod
    def _after(batch: Batch, error: ErrorCode) -> ErrorCode:
        if error is not ErrorCode.NONE:
            batch.outcome = Outcome.UNKNOWN
        return error

    # A batch for an owner

    async def _produce_owned(self, batch: Batch, encoded: bytearray, tenure: Tenure) -> ErrorCode:
        """Write a batch by the fence of a grant, perhaps under the condition that the log ends where it did,
        and that another partition of the same leader does too."""
        assert self.owned is not None
        expected = None
        if self.rng.random() < _CONDITION_SHARE:
            expected = await self.end_of(batch.at, UNCOMMITTED)
        guard = await self._guard(batch.at)
        owned = OwnedBatch(batch, tenure.grant, expected, is_late=tenure.is_known_to_have_ended)
        self.owned.batches.append(owned)
        data = PartitionProduceData(
            index=batch.at[1],
            records=encoded,
            expected_offset=-1 if expected is None else expected,
            owner_token=tenure.grant.incarnation,
            owner_secret=tenure.secret,
        )
        request = self._request(batch, data)
        if guard is not None:
            condition = PartitionProduceData(index=guard.at[1], records=None, expected_offset=guard.expected)
            request.topic_data.append(TopicProduceData(name=guard.at[0], partition_data=[condition]))

        async def attempt() -> ErrorCode:
            answer = await self._sent(batch, request)
            if answer is None:
                return ErrorCode.REQUEST_TIMED_OUT
            return self._settle_owned(owned, guard, answer, encoded)

        error = await self.patiently(attempt, str(batch), _REFUSED_TO_OWNERS, _REPEATED_TO_OWNERS)
        return self._after(batch, error)

    async def _guard(self, at: TopicPartition) -> Guard | None:
        """A condition on another partition of the same leader."""
        leader = self.leader_of(at)
        if leader is None or self.rng.random() >= _GUARD_SHARE:
            return None
        led = [each for each in _GUARDED if (self.leader_of(each) or (None,))[0] == leader[0]]
        if not led or self.owned is None:
            return None
        guarded = self.rng.choice(led)
        end = await self.end_of(guarded, UNCOMMITTED)
        return None if end is None else Guard(guarded, end, self.owned.known_end(guarded))

    def _settle_owned(
        self, owned: OwnedBatch, guard: Guard | None, answer: ProduceResponse, encoded: bytearray
    ) -> ErrorCode:
        assert self.owned is not None
        rows = {
            (topic.name, row.index): row for topic in answer.responses for row in topic.partition_responses
        }
        batch, own = owned.batch, rows[owned.batch.at]
        if guard is not None:
            self._judge_guard(owned, guard, rows[guard.at], own)
        self.owned.fence_refused(owned.grant, own.error_code, self.world.seconds())
        error = self._settle(batch, own, encoded)
        if error is ErrorCode.NONE:
            self.owned.was_appended(owned)
        if error is ErrorCode.PRODUCER_FENCED:
            # Of the grant: a producer's late epoch has another word in this answer.
            return ErrorCode.OWNERSHIP_FENCED
        return error

    def _judge_guard(
        self, owned: OwnedBatch, guard: Guard, row: PartitionProduceResponse, own: PartitionProduceResponse
    ) -> None:
        assert self.owned is not None
        if row.error_code == ErrorCode.NONE:
            self.owned.guard_held(owned, guard)
        may_be_appended = own.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        if row.error_code == ErrorCode.OFFSET_MISMATCH and may_be_appended and owned.batch.sends == 1:
            self.owned.guard_ignored(owned, guard)
