"""Simulated owners: each wants to be the one writer of a partition, writes while it believes that it is, and
falls asleep, loses its connection and wakes up late without noticing anything.

An owner that is rash sends what it has on a new connection before it has resumed, and once more after it has
been told that it is fenced: the broker has to know better.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from twisted.python.failure import Failure

from broker.network.interfaces import Address
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.ownership import (
    IF_FREE,
    RESET_GENERATION,
    HeldResource,
    LossReason,
    OwnRequest,
    OwnResponse,
    RenewRequest,
    RenewResponse,
    ResourceClaim,
    ResourceStanding,
    ResumedResource,
    ResumeRequest,
    ResumeResponse,
)
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records import BatchBuilder
from tests.sim.client import Client, Surroundings
from tests.sim.history import Batch, Incarnation, Outcome, TopicPartition
from tests.sim.owner_history import OwnedBatch, OwnerHistory, Told

GROUP = "owners"
SESSION_TIMEOUT_MS = 2500
_TIMEOUT_MS = 3000
_TICK_S = 0.35
_RENEW_EVERY = 3
_CLAIM_SHARE = 0.25
_IN_FLIGHT_MAX = 3

_NOT_THE_WRITER = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OWNERSHIP_FENCED,
        ErrorCode.OWNERSHIP_DETACHED,
    }
)
_ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
_TAKEN = frozenset({LossReason.STOLEN, LossReason.RESET, LossReason.EVICTED})


@dataclass(slots=True)
class _Sent:
    """A batch on its way, or to be sent again, with its sequence."""

    owned: OwnedBatch
    data: bytearray
    is_under_way: bool = False


class Owner(Client):
    """One that wants a partition for itself. `is_conditional`: it says where it expects the log to end."""

    def __init__(
        self, around: Surroundings, name: str, at: TopicPartition, told: OwnerHistory, *, is_conditional: bool
    ) -> None:
        super().__init__(around, name)
        self.at = at
        self.told = told
        self.grant: Told | None = None
        self.is_making = True
        self.has_written = False
        """Whether anything that it wrote was acknowledged."""
        self._is_conditional = is_conditional
        self._is_rash = self.rng.random() < 0.5
        self._seen = 0
        """The generation last heard of."""
        self._expected = 0
        self._granted_on: tuple[Address, int] | None = None
        """The connection, by its number, on which it was told last that it is the owner."""
        self._is_asking = False
        self._is_resuming = False
        self._producer_id: tuple[int, int] | None = None
        self._sequence = 0
        self._made = 0
        self._ticks = 0
        self._queue: deque[_Sent] = deque()

    def begin(self) -> None:
        super().begin()
        self._tick()

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._is_asking

    @property
    def place(self) -> Incarnation | None:
        topic = self.topics.get(self.at[0])
        return None if topic is None else Incarnation(self.at, topic.topic_id)

    def decider(self) -> Address | None:
        """The broker that decides about the resource, if it is known; else it is looked for."""
        leader = self.leader_of(self.at)
        if leader is None:
            self.refresh()
            return None
        return leader[0]

    def _tick(self) -> None:
        self.later(_TICK_S * self.rng.uniform(0.5, 1.5), self._tick)
        self._ticks += 1
        if self._producer_id is None:
            self._identify()
        elif self.grant is None:
            if self.is_making and self.rng.random() < _CLAIM_SHARE:
                self._claim()
        elif self._is_resuming:
            self._resume()
        else:
            if self._ticks % _RENEW_EVERY == 0:
                self._renew()
            self.work(self.grant)

    def work(self, grant: Told) -> None:
        """Do what an owner does, as the owner by `grant`."""
        if self.is_making and len(self._queue) < (1 if self._is_conditional else _IN_FLIGHT_MAX):
            self._make(grant)
        self._pump()

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

    def _unanswered(self, failure: Failure) -> None:
        self._is_asking = False
        self.look_again()

    def look_again(self) -> None:
        """Another broker may decide by now."""
        self.refresh()

    # Claims

    def _claim(self) -> None:
        address, place = self.decider(), self.place
        if address is None or place is None or self._is_asking:
            return
        self._is_asking = True
        named = self._generation_to_name()
        asked_s = self.world.seconds()
        request = OwnRequest(
            group=GROUP,
            owner_id=self.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=_TIMEOUT_MS,
            resources=[ResourceClaim(name=self.at[0], partition=self.at[1], generation=named)],
        )
        self.send(address, request).addCallbacks(
            lambda response: self._claimed(address, place, named, asked_s, response), self._unanswered
        )

    def _generation_to_name(self) -> int:
        chance = self.rng.random()
        if self.told.has_resets and chance < 0.1:
            return RESET_GENERATION
        if chance < 0.5 or self._seen == 0:
            return IF_FREE
        return max(1, self._seen - (chance > 0.9))

    def _claimed(
        self, address: Address, place: Incarnation, named: int, asked_s: float, response: OwnResponse
    ) -> None:
        self._is_asking = False
        self.history.operations += 1
        if response.error_code != ErrorCode.NONE:
            self.look_again()
        for standing in response.resources:
            self._seen = max(self._seen, standing.generation)
            if standing.error_code == ErrorCode.NONE:
                self.grant = Told(
                    self.name,
                    place,
                    standing.generation,
                    standing.incarnation,
                    standing.fence_offset,
                    named,
                    asked_s,
                    self.world.seconds(),
                )
                self.world.trace(self.name, f"owns {self.grant}")
                self._seen = standing.generation
                self._expected = standing.fence_offset
                self._granted_on = self._connection_to(address)
                self.told.granted(self.grant)
            elif standing.error_code in _ELSEWHERE:
                self.look_again()

    def _renew(self) -> None:
        address, grant = self.decider(), self.grant
        if address is None or grant is None:
            return
        held = HeldResource(name=self.at[0], partition=self.at[1], incarnation=grant.incarnation)
        request = RenewRequest(group=GROUP, owner_id=self.name, max_wait_ms=0, resources=[held])
        self.send(address, request).addCallbacks(
            lambda response: self._renewed(address, grant, response),
            lambda failure: self.lose_touch(grant),
        )

    def _connection_to(self, address: Address) -> tuple[Address, int]:
        return address, self.network.connections[address]

    def _renewed(self, address: Address, grant: Told, response: RenewResponse) -> None:
        self.history.operations += 1
        for standing in response.resources:
            if standing.error_code != ErrorCode.NONE and grant is self.grant:
                is_cut_off = standing.reason == LossReason.DISCONNECTED
                if is_cut_off and self._granted_on == self._connection_to(address):
                    self.told.dropped(grant)
                self._stumble(grant, standing)
        if response.error_code != ErrorCode.NONE:
            self.lose_touch(grant)

    def _stumble(self, grant: Told, standing: ResourceStanding) -> None:
        if standing.error_code == ErrorCode.OWNERSHIP_FENCED:
            self._fenced(grant, standing)
        else:
            self.lose_touch(grant)

    def lose_touch(self, grant: Told) -> None:
        """The connection is gone, or the leader is another: it may be the owner still."""
        if grant is self.grant:
            self._is_resuming = True
            self.look_again()

    def _resume(self) -> None:
        address, grant = self.decider(), self.grant
        if address is None or grant is None or self._is_asking:
            return
        if self._is_rash and self.rng.random() < 0.3:
            self._pump()
        self._is_asking = True
        asked_s = self.world.seconds()
        resumed = ResumedResource(
            name=self.at[0],
            partition=self.at[1],
            generation=grant.generation,
            incarnation=grant.incarnation,
        )
        request = ResumeRequest(
            group=GROUP,
            owner_id=self.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            timeout_ms=_TIMEOUT_MS,
            resources=[resumed],
        )
        self.send(address, request).addCallbacks(
            lambda response: self._resumed(address, grant, asked_s, response), self._unanswered
        )

    def _resumed(self, address: Address, grant: Told, asked_s: float, response: ResumeResponse) -> None:
        self._is_asking = False
        self.history.operations += 1
        for standing in response.resources:
            if standing.error_code == ErrorCode.NONE:
                self.told.resumed(grant, asked_s)
                self._is_resuming = False
                self._granted_on = self._connection_to(address)
                self._pump()
            elif standing.error_code == ErrorCode.OWNERSHIP_FENCED:
                self._fenced(grant, standing)
            else:
                self.look_again()
        if not response.resources:
            self.look_again()

    def _fenced(self, grant: Told, standing: ResourceStanding) -> None:
        self.world.trace(self.name, f"has lost {grant}: {LossReason(standing.reason).name}")
        self.told.fenced(grant, standing.generation, is_stolen=LossReason(standing.reason) in _TAKEN)
        self._seen = standing.generation
        if self._is_rash and self._producer_id is not None:
            self.work(grant)
        self.grant = None
        self._is_resuming = False
        for sent in self._queue:
            sent.owned.batch.outcome = Outcome.UNKNOWN
        self._queue.clear()
        self._producer_id = None

    # Writing

    def _make(self, grant: Told) -> None:
        assert self._producer_id is not None
        count = self.rng.randint(1, 3)
        name = f"{self.name}/{self.at[0]}-{self.at[1]}/{self._made}"
        values = [f"{name}.{index} under {grant.incarnation}".encode() for index in range(count)]
        batch = Batch(
            self.name, self.at, self._made, values, -1, True, self.world.seconds(),
            topic_id=grant.place.topic_id,
        )  # fmt: skip
        self._made += 1
        builder = BatchBuilder()
        for value in values:
            builder.append(int(self.process.clock.seconds() * 1000), None, value)
        producer_id, epoch = self._producer_id
        data = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=self._sequence)
        self._sequence += count
        owned = OwnedBatch(batch, grant, self._expected if self._is_conditional else None)
        self.history.batches.append(batch)
        self.told.batches.append(owned)
        self._queue.append(_Sent(owned, data))

    def _pump(self) -> None:
        address = self.decider()
        if address is None:
            return
        for sent in list(self._queue):
            if not sent.is_under_way:
                self._send(address, sent)

    def _send(self, address: Address, sent: _Sent) -> None:
        sent.is_under_way = True
        owned = sent.owned
        owned.batch.sends += 1
        owned.is_refused = False
        data = PartitionProduceData(
            index=self.at[1],
            records=sent.data,
            expected_offset=-1 if owned.expected_offset is None else owned.expected_offset,
        )
        request = ProduceRequest(
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=self.at[0], partition_data=[data])],
        )
        self.send(address, request).addCallbacks(
            lambda response: self._answered(sent, response), lambda failure: self._not_answered(sent)
        )

    def _not_answered(self, sent: _Sent) -> None:
        sent.is_under_way = False
        self.lose_touch(sent.owned.grant)

    def _answered(self, sent: _Sent, response: ProduceResponse) -> None:
        self.history.operations += 1
        sent.is_under_way = False
        row = response.responses[0].partition_responses[0]
        if sent in self._queue:
            self._settle(sent, row)

    def _settle(self, sent: _Sent, row: PartitionProduceResponse) -> None:
        owned, code = sent.owned, row.error_code
        batch = owned.batch
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            batch.outcome = Outcome.ACKED
            self.has_written = True
            batch.offset = row.base_offset if code == ErrorCode.NONE else None
            self._expected = max(self._expected, row.base_offset + len(batch.values))
            self._queue.remove(sent)
        elif code == ErrorCode.OFFSET_MISMATCH:
            owned.is_refused = True
            self._expected = row.next_offset
            self._give_up()
        elif code in _NOT_THE_WRITER:
            owned.is_refused = batch.sends == 1
            self.lose_touch(owned.grant)
        elif code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            self._give_up()
        else:
            self.lose_touch(owned.grant)

    def _give_up(self) -> None:
        """Begin anew under another producer id: of what is left nobody knows what becomes of it."""
        for sent in self._queue:
            sent.owned.batch.outcome = Outcome.UNKNOWN
        self._queue.clear()
        self._producer_id = None
