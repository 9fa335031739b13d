"""Simulated writers: each claims a partition, and writes while it believes that it is the single writer.

A rash writer sends its batches on a new connection before its ownership is resumed, and once more after a
broker answered that it is fenced. The broker must refuse these batches.

A conditional writer gives its appends ids, and another process may repeat them.

Under some grants another process sends the batches, with the grant's fence; also once more after a broker
answered that the grant has ended for good. Now and then a writer forges a fence: it knows the incarnation of
another's grant, and not the secret.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.ownership import Access, HeldResource, LossReason, RenewRequest
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.records import APPEND_ID_HEADER, APPEND_ID_SIZE, BatchBuilder
from tests.sim.claimant import TIMEOUT_MS
from tests.sim.client import NOT_THE_WRITER, Surroundings
from tests.sim.fence_user import FenceUser
from tests.sim.history import Batch, Outcome, TopicPartition
from tests.sim.owner_history import Guard, OwnedBatch, OwnerHistory, Told
from tests.sim.repeater import Repeater
from tests.sim.tenant import OFTEN_BREAK_SHARE, SILENT, Tenant

_IN_FLIGHT_MAX = 3
_RARE_WRITE_SHARE = 0.1
_SOON_LEAVE_SHARE = 0.2
_NAMED_SHARE = 0.8
_FENCE_SHARE = 0.4
_FORGE_SHARE = 0.02
_POOL_RENEWS_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class WriterHabits:
    """How a writer writes. `is_conditional`: it states the expected end of the log. `guards`: other
    partitions whose expected end it may add as a condition. `may_be_rash`: it may send batches without
    ownership, because the broker refuses them even if the partition has no owner. `writes_rarely`: it skips
    most opportunities to write. `leaves_soon`: it keeps the partition only briefly. `breaks_often`: its
    connections break often."""

    is_conditional: bool
    guards: Sequence[TopicPartition] = ()
    may_be_rash: bool = False
    writes_rarely: bool = False
    leaves_soon: bool = False
    breaks_often: bool = False


@dataclass(slots=True)
class _Sent:
    """A batch with its sequence, sent or waiting to be sent."""

    owned: OwnedBatch
    data: bytearray
    is_under_way: bool = False
    sent_s: float = 0.0
    """When it was last sent, in simulated seconds."""


class Owner(Tenant):
    """A client that claims a partition and writes while it owns it."""

    def __init__(
        self, around: Surroundings, name: str, at: TopicPartition, told: OwnerHistory, habits: WriterHabits
    ) -> None:
        super().__init__(around, name, at, told)
        self._habits = habits
        if habits.leaves_soon:
            self.leave_share = _SOON_LEAVE_SHARE
        if habits.breaks_often:
            self.break_share = OFTEN_BREAK_SHARE
        self._is_rash = habits.may_be_rash and self.rng.random() < 0.5
        self._expected = 0
        self._ends: dict[TopicPartition, int] = {}
        """Last known end offsets of other partitions."""
        self._producer_id: tuple[int, int] | None = None
        self._sequence = 0
        self._made = 0
        self._queue: deque[_Sent] = deque()
        self._id_rng = around.world.rng(f"{name}: append ids")
        self._repeater = Repeater(around, f"{name}'s repeater", told)

        self._fence_rng = around.world.rng(f"{name}: fences")
        self._pool = FenceUser(around, f"{name}'s pool")
        self._writes_by_fence = False
        """Whether another process sends the batches of the present grant."""
        self._is_loss_final = True

    def begin(self) -> None:
        super().begin()
        if self._habits.is_conditional:
            self._repeater.start()

    @property
    def is_idle(self) -> bool:
        return not self._queue and super().is_idle

    @property
    def is_ready(self) -> bool:
        if self._producer_id is None:
            self._identify()
        return self._producer_id is not None

    def _identify(self) -> None:
        if self._is_asking:
            return
        self._is_asking = True

        def identified(response: InitProducerIdResponse) -> None:
            self._is_asking = False
            if response.error_code == ErrorCode.NONE:
                self._producer_id = (response.producer_id, response.producer_epoch)
                self._sequence = 0

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self.send(self.anyone(), request, 4).addCallbacks(identified, self._unanswered)

    # Gaining and losing the partition

    def has_gained(self, grant: Told) -> None:
        self._expected = max(0, grant.fence_offset)
        self._writes_by_fence = not grant.is_shared and self._fence_rng.random() < _FENCE_SHARE
        self._is_loss_final = True

    def fenced(self, grant: Told, generation: int, reason: LossReason) -> None:
        # The next leader may not know of a loss to silence, and restore the grant.
        self._is_loss_final = reason not in SILENT
        super().fenced(grant, generation, reason)

    def work(self, grant: Told) -> None:
        # Another process may send batches late, and their sequence numbers have an order.
        room = 1 if self._habits.is_conditional or self._writes_by_fence else _IN_FLIGHT_MAX
        is_due = not self._habits.writes_rarely or self.rng.random() < _RARE_WRITE_SHARE
        if is_due and self.is_making and not self.is_leaving and len(self._queue) < room:
            self._make(grant)
        self._pump()
        if self._writes_by_fence and self._fence_rng.random() < _POOL_RENEWS_SHARE:
            self._renew_by_pool(grant)

    def _renew_by_pool(self, grant: Told) -> None:
        """Keep the session by a Renew on a connection to which this owner is not attached."""
        address = self.decider()
        if address is None:
            return
        held = HeldResource(name=self.at[0], partition=self.at[1], incarnation=grant.incarnation)
        request = RenewRequest(
            group=self.group, owner_id=self.owner_id, max_wait_ms=0, resources=[held], secret=self.secret
        )
        self._pool.carry(self, address, request, lambda sent_s, response: None, lambda: None)

    def _resume(self, grant: Told) -> None:
        if self._is_rash and not self._is_asking and self.rng.random() < 0.3:
            self._pump()
        super()._resume(grant)

    def has_lost(self, grant: Told) -> None:
        is_rash = self._is_rash or (self._writes_by_fence and self._is_loss_final)
        if is_rash and self._producer_id is not None:
            self._make(grant, is_late=True)
            self._pump()
        self._give_up()

    def _give_up(self) -> None:
        """Give up all queued batches, with unknown outcome, and the producer id."""
        for sent in self._queue:
            # The repeater may have learned that the append is in the log.
            if sent.owned.batch.outcome is not Outcome.ACKED:
                sent.owned.batch.outcome = Outcome.UNKNOWN
        self._queue.clear()
        self._producer_id = None

    # Writing

    def _make(self, grant: Told, *, is_late: bool = False) -> None:
        assert self._producer_id is not None
        count = self.rng.randint(1, 3)
        name = f"{self.name}/{self.at[0]}-{self.at[1]}/{self._made}"
        values = [f"{name}.{index} under {grant.incarnation}".encode() for index in range(count)]
        batch = Batch(
            self.name, self.at, self._made, values, -1, True, self.world.seconds(),
            topic_id=grant.place.topic_id,
        )  # fmt: skip
        self._made += 1
        now_ms = self.process.clock.date_ms()
        producer_id, epoch = self._producer_id
        append_id = b""
        if self._habits.is_conditional and self._id_rng.random() < _NAMED_SHARE:
            append_id = self._id_rng.randbytes(APPEND_ID_SIZE)
        builder = BatchBuilder()
        for index, value in enumerate(values):
            is_marked = append_id and not index
            builder.append(now_ms, None, value, ((APPEND_ID_HEADER, append_id),) if is_marked else ())
        data = builder.build(
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._sequence,
            has_append_id=bool(append_id),
        )
        self._sequence += count
        expected = self._expected if self._habits.is_conditional else None
        owned = OwnedBatch(batch, grant, expected, is_late=is_late, append_id=append_id)
        self.history.batches.append(batch)
        self.told.batches.append(owned)
        self._queue.append(_Sent(owned, data))

    def _pump(self) -> None:
        address = self.decider()
        if address is None or not (self._is_rash or self._writes_by_fence or self.stands_on(address)):
            return
        for sent in list(self._queue):
            if not sent.is_under_way:
                self._send(address, sent)

    def _send(self, address: Address, sent: _Sent) -> None:
        sent.is_under_way, sent.sent_s = True, self.world.seconds()
        owned = sent.owned
        owned.batch.sends += 1
        owned.is_refused = False
        self._repeater.know(owned, sent.data)
        data = PartitionProduceData(
            index=self.at[1],
            records=sent.data,
            expected_offset=-1 if owned.expected_offset is None else owned.expected_offset,
            expected_topic_id=owned.batch.topic_id,
            append_id=owned.append_id,
            id_unused_before=owned.id_unused_before,
        )
        topics = [TopicProduceData(name=self.at[0], partition_data=[data])]
        guard = self._guard(address)
        if guard is not None:
            guarded = PartitionProduceData(index=guard.at[1], records=None, expected_offset=guard.expected)
            topics.append(TopicProduceData(name=guard.at[0], partition_data=[guarded]))
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
        if self._writes_by_fence:
            data.owner_token, data.owner_secret = owned.grant.incarnation, self.secret
            self._pool.carry(
                self,
                address,
                request,
                lambda sent_s, response: self._answered_to_pool(sent, guard, response),
                lambda: self._not_answered(sent),
            )
            return
        self.send(address, request).addCallbacks(
            lambda response: self._answered(sent, guard, response),
            lambda failure: self._not_answered(sent),
        )

    def _guard(self, address: Address) -> Guard | None:
        """A condition on another partition of the same leader; None if it leads none of `guards`."""
        led = [at for at in self._habits.guards if (self.leader_of(at) or (None,))[0] == address]
        if not led:
            return None
        at = self.rng.choice(led)
        return Guard(at, self._ends.get(at, 0), self.told.known_end(at))

    def _not_answered(self, sent: _Sent) -> None:
        sent.is_under_way = False
        self.lose_touch(sent.owned.grant)

    def _answered(self, sent: _Sent, guard: Guard | None, response: ProduceResponse) -> None:
        self.history.operations += 1
        sent.is_under_way = False
        rows = {
            (topic.name, row.index): row for topic in response.responses for row in topic.partition_responses
        }
        if guard is not None:
            self._judge_guard(sent, guard, rows[guard.at], rows[self.at])
        if sent in self._queue:
            self._settle(sent, rows[self.at])

    def _answered_to_pool(self, sent: _Sent, guard: Guard | None, response: ProduceResponse) -> None:
        for topic in response.responses:
            for row in topic.partition_responses:
                if (topic.name, row.index) == self.at:
                    self.told.fence_refused(sent.owned.grant, row.error_code, self.world.seconds())
        self._answered(sent, guard, response)

    def _perhaps_impersonate(self) -> None:
        super()._perhaps_impersonate()
        address = self.decider()
        if self._fence_rng.random() >= _FORGE_SHARE or address is None:
            return
        others = [
            grant
            for grant in self.told.grants
            if grant.place == self.place and grant.owner != self.claimant_id and not grant.is_shared
            if Access.WRITE in grant.access
        ]
        if others:
            self._forge(address, others[-1])

    def _forge(self, address: Address, victim: Told) -> None:
        """Write with the incarnation of another's grant, which is no secret, and a wrong secret."""
        builder = BatchBuilder()
        builder.append(self.process.clock.date_ms(), None, f"forged by {self.name}".encode())
        data = PartitionProduceData(
            index=self.at[1],
            records=builder.build(),
            owner_token=victim.incarnation,
            owner_secret=self.secret if self._fence_rng.random() < 0.7 else b"",
        )

        def answered(sent_s: float, response: ProduceResponse) -> None:
            if response.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                self.told.forged(self.claimant_id, victim, "wrote")

        topics = [TopicProduceData(name=self.at[0], partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=topics)
        self._pool.carry(self, address, request, answered, lambda: None)

    def _judge_guard(
        self,
        sent: _Sent,
        guard: Guard,
        row: PartitionProduceResponse,
        own: PartitionProduceResponse,
    ) -> None:
        if row.next_offset >= 0:
            self._ends[guard.at] = row.next_offset
        if row.error_code == ErrorCode.NONE:
            self.told.guard_held(sent.owned, guard)
        is_first = sent.owned.batch.sends == 1
        # A timeout says that the records may be in the log.
        may_be_appended = own.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        if row.error_code == ErrorCode.OFFSET_MISMATCH and may_be_appended and is_first:
            self.told.guard_ignored(sent.owned, guard)

    def _settle(self, sent: _Sent, row: PartitionProduceResponse) -> None:
        owned, code = sent.owned, row.error_code
        batch = owned.batch
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.outcome = Outcome.ACKED
            self.has_worked = True
            batch.offset = row.base_offset if code == ErrorCode.NONE else None
            self._expected = max(self._expected, row.base_offset + len(batch.values))
            self._queue.remove(sent)
            self.told.was_appended(owned)
        elif code in (ErrorCode.OFFSET_MISMATCH, ErrorCode.APPEND_ID_UNKNOWN):
            owned.is_refused = True
            self.told.mismatched(owned, row.next_offset, sent.sent_s)
            self._expected = row.next_offset
            self._give_up()
        elif code == ErrorCode.OPERATION_NOT_ATTEMPTED:
            owned.is_refused = batch.sends == 1
            if not self.is_making or self.is_leaving:
                self._give_up()
        elif code in NOT_THE_WRITER:
            owned.is_refused = batch.sends == 1
            self.lose_touch(owned.grant)
        elif code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            self._give_up()
        else:
            self.lose_touch(owned.grant)
