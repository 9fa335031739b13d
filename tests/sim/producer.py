"""Simulated producers, with every acks setting, with and without idempotence and pipelining."""

from __future__ import annotations

import math
import uuid
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address, Wire
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.records import BatchBuilder
from tests.sim.client import PASSING, RETRY_S, Client, Surroundings
from tests.sim.history import Batch, Incarnation, Outcome, TopicPartition

_ACKS_TIMEOUT_MS = 3000
_DELIVERY_TIMEOUT_S = 15.0

_BROKEN_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True)
class ProducerHabits:
    """How a producer produces. `interval_ms` is the mean time between two rounds of sending; in each round up
    to `lanes_max` partitions get a batch."""

    acks: int
    is_idempotent: bool = False
    interval_ms: int = 400
    lanes_max: int = 2
    records_max: int = 4
    in_flight_max: int = 1


SEQUENCES = 2**31
"""How many sequences there are: after the last one comes 0 again (KIP-98)."""


class _Lane:
    """One partition's batches in a producer, in order. After a failure it sends those in flight again."""

    def __init__(self, at: TopicPartition, topic_id: uuid.UUID, first_sequence: int) -> None:
        self.at = at
        self.topic_id = topic_id
        self.queue: deque[Batch] = deque()
        self.encoded: dict[Batch, bytearray] = {}
        self.in_flight: dict[Batch, None] = {}
        self.next_sequence = first_sequence
        self.acked_ends: dict[int, float] = {}
        """Number → offset after the batches acknowledged under the present producer id; infinite where the
        offset is not known."""
        self.is_recovering = False
        self.is_over = False
        self.ready_s = 0.0

    def next_batch(self, now_s: float, in_flight_max: int) -> Batch | None:
        """The next batch to send now, or None."""
        if self.is_recovering and not self.in_flight and now_s >= self.ready_s:
            self.is_recovering = False
        if self.is_recovering:
            return None
        batch = next((batch for batch in self.queue if batch not in self.in_flight), None)
        # Brokers remember five batches per producer. The oldest in flight may still be on its way to a former
        # leader while later ones are acknowledged.
        if batch is not None and batch.number >= self.queue[0].number + in_flight_max:
            return None
        return batch

    def forget(self, batch: Batch) -> None:
        self.queue.remove(batch)
        self.encoded.pop(batch, None)

    def end(self) -> None:
        """Give up all batches: the topic was deleted and created again."""
        self.is_over = True
        for batch in self.queue:
            batch.outcome = Outcome.UNKNOWN


class Producer(Client):
    """Makes batches for all partitions of the topics in `follows` while `is_making`, and sends them all. The
    sequences of an idempotent producer begin at `first_sequence` under each id."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        *,
        follows: Sequence[str],
        habits: ProducerHabits,
        first_sequence: int = 0,
    ) -> None:
        super().__init__(around, name)
        self._first_sequence = first_sequence
        self.habits = habits
        self.is_making = True
        self._follows = follows
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._made: Counter[TopicPartition] = Counter()
        self._producer_id: tuple[int, int] | None = None
        self._is_identifying = False
        self._must_start_over = False
        self._one_way: dict[Address, _OneWay] = {}

    def begin(self) -> None:
        super().begin()
        self._tick()

    @property
    def is_idle(self) -> bool:
        return not self.is_making and not any(lane.queue for lane in self._lanes.values())

    def metadata_arrived(self) -> None:
        for name in self._follows:
            topic = self.topics.get(name)
            for number in topic.leaders if topic is not None else ():
                at = (name, number)
                lane = self._lanes.get(at)
                if topic is not None and (lane is None or lane.topic_id != topic.topic_id):
                    new = self._lanes[at] = _Lane(at, topic.topic_id, self._first_sequence)
                    if lane is not None:
                        lane.end()
                        new.next_sequence = lane.next_sequence

    def _tick(self) -> None:
        if self.is_making:
            self._make()
        self._give_up_late()
        self._pump()
        self.later(self.habits.interval_ms / 1000 * self.rng.uniform(0.5, 1.5), self._tick)

    def _make(self) -> None:
        habits = self.habits
        lanes = list(self._lanes.values())
        if not lanes:
            self.refresh()
            return
        for lane in self.rng.sample(lanes, min(self.rng.randint(1, habits.lanes_max), len(lanes))):
            if len(lane.queue) >= 2 * habits.in_flight_max + 2:
                continue
            number = self._made[lane.at]
            self._made[lane.at] += 1
            values = list(self._values(lane.at, number))
            batch = Batch(
                self.name,
                lane.at,
                number,
                values,
                habits.acks,
                habits.is_idempotent,
                self.world.seconds(),
                topic_id=lane.topic_id,
            )
            lane.queue.append(batch)
            self.history.batches.append(batch)

    def _values(self, at: TopicPartition, number: int) -> Iterator[bytes]:
        for index in range(self.rng.randint(1, self.habits.records_max)):
            name = f"{self.name}/{at[0]}-{at[1]}/{number}.{index} "
            yield name.encode() + bytes(self.rng.randrange(120))

    def _give_up_late(self) -> None:
        """Give up batches not delivered within the delivery timeout. They may or may not be in the log."""
        oldest_s = self.world.seconds() - _DELIVERY_TIMEOUT_S
        for lane in self._lanes.values():
            while lane.queue and lane.queue[0].made_s < oldest_s and not lane.in_flight:
                batch = lane.queue[0]
                if self.habits.is_idempotent and batch.sends:
                    # The log may lack this batch's sequence, so continue under another producer id.
                    self._must_start_over = True
                    break
                batch.outcome = Outcome.UNKNOWN
                lane.forget(batch)

    def _start_over(self) -> None:
        if any(lane.in_flight for lane in self._lanes.values()):
            return
        for lane in self._lanes.values():
            for batch in [batch for batch in lane.queue if batch.sends]:
                batch.outcome = Outcome.UNKNOWN
                lane.forget(batch)
            lane.next_sequence = self._first_sequence
            lane.acked_ends.clear()
            lane.is_recovering = False
        self._producer_id = None
        self._must_start_over = False

    def _pump(self) -> None:
        if self._must_start_over:
            self._start_over()
            if self._must_start_over:
                return
        if self.habits.is_idempotent and self._producer_id is None:
            self._identify()
            return
        now_s = self.process.clock.seconds()
        by_leader: dict[Address, list[tuple[_Lane, Batch]]] = {}
        for lane in self._lanes.values():
            batch = lane.next_batch(now_s, self.habits.in_flight_max)
            if batch is None:
                continue
            leader = self.leader_of(lane.at)
            if leader is None:
                self.refresh()
                continue
            by_leader.setdefault(leader[0], []).append((lane, batch))
        for address, chosen in by_leader.items():
            self._send(address, chosen)

    def _identify(self) -> None:
        if self._is_identifying:
            return
        self._is_identifying = True
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        self.send(self.anyone(), request, 4).addCallbacks(self._identified, self._not_identified)

    def _identified(self, response: InitProducerIdResponse) -> None:
        self._is_identifying = False
        if response.error_code == ErrorCode.NONE:
            self._producer_id = (response.producer_id, response.producer_epoch)

    def _not_identified(self, failure: Failure) -> None:
        self._is_identifying = False
        self.refresh()

    def _encoded(self, lane: _Lane, batch: Batch) -> bytearray:
        """The encoded batch; the same bytes each time it is sent."""
        encoded = lane.encoded.get(batch)
        if encoded is None:
            builder = BatchBuilder()
            now_ms = self.process.clock.date_ms()
            for value in batch.values:
                builder.append(now_ms, None, value)
            if self._producer_id is None:
                encoded = builder.build()
            else:
                producer_id, epoch = self._producer_id
                encoded = builder.build(
                    producer_id=producer_id, producer_epoch=epoch, base_sequence=lane.next_sequence
                )
                lane.next_sequence = (lane.next_sequence + len(batch.values)) % SEQUENCES
            lane.encoded[batch] = encoded
        return encoded

    def _send(self, address: Address, chosen: list[tuple[_Lane, Batch]]) -> None:
        topics: dict[str, list[PartitionProduceData]] = {}
        for lane, batch in chosen:
            batch.sends += 1
            topic, partition = lane.at
            data = PartitionProduceData(index=partition, records=self._encoded(lane, batch))
            topics.setdefault(topic, []).append(data)
        request = ProduceRequest(
            acks=self.habits.acks,
            timeout_ms=_ACKS_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )
        if self.habits.acks == 0:
            self._send_one_way(address, request)
            for lane, batch in chosen:
                batch.outcome = Outcome.UNKNOWN
                lane.forget(batch)
            return
        for lane, batch in chosen:
            lane.in_flight[batch] = None
        self.send(address, request).addCallbacks(
            lambda response: self._answered(chosen, response), lambda failure: self._unanswered(chosen)
        )

    def _send_one_way(self, address: Address, request: ProduceRequest) -> None:
        way = self._one_way.get(address)
        if way is None or way.is_over:
            way = self._one_way[address] = _OneWay(self)
            self.network.connect(address.host, address.port, way, 1000)
        way.send(request)

    def _unanswered(self, chosen: list[tuple[_Lane, Batch]]) -> None:
        for lane, batch in chosen:
            self._again(lane, batch)
        self.refresh()

    def _again(self, lane: _Lane, batch: Batch) -> None:
        lane.in_flight.pop(batch, None)
        lane.is_recovering = True
        lane.ready_s = self.process.clock.seconds() + RETRY_S

    def _answered(self, chosen: list[tuple[_Lane, Batch]], response: ProduceResponse) -> None:
        self.history.operations += 1
        results = {
            (topic.name, row.index): row for topic in response.responses for row in topic.partition_responses
        }
        for lane, batch in chosen:
            row = results.get(lane.at)
            if row is None:
                self.history.violation(f"{self.name} got no answer for {batch}")
                self._again(lane, batch)
            elif not lane.is_over:
                self._settle(lane, batch, row)
        self._pump()

    def _settle(self, lane: _Lane, batch: Batch, row: PartitionProduceResponse) -> None:
        code = row.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.in_flight.pop(batch, None)
            batch.outcome = Outcome.ACKED
            batch.offset = row.base_offset if code == ErrorCode.NONE else None
            lane.acked_ends[batch.number] = (
                math.inf if batch.offset is None else batch.offset + len(batch.values)
            )
            self.history.acknowledged(batch, lane.encoded[batch])
            lane.forget(batch)
            return
        is_first = lane.queue[0] is batch
        self._again(lane, batch)
        if code in _BROKEN_SEQUENCE and self.habits.is_idempotent:
            if is_first:
                # Every earlier batch was acknowledged; with acks=all none of them may be missing, and no
                # later one may have been taken before this one. A broker accepts any sequence as the first
                # (KIP-360) of a producer without acknowledged records, or when all of them were deleted.
                deleted = self.history.deleted.get(Incarnation(lane.at, lane.topic_id), 0)
                is_known = any(end > deleted for end in lane.acked_ends.values())
                if self.habits.acks == -1 and is_known and not self._must_start_over:
                    self.history.sequence_refused(batch, ErrorCode(code).name)
                self._must_start_over = True
        elif code not in PASSING:
            self.history.violation(f"{batch} was refused with {ErrorCode(code).name}: {row.error_message}")
        self.refresh()


class _OneWay:
    """A connection for requests without answers (`broker.network.interfaces.FrameReceiver`)."""

    frame_bytes_max = 1 << 20
    is_holding = False

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._wire: Wire | None = None
        self._waiting: list[ProduceRequest] = []
        self.is_over = False

    def send(self, request: ProduceRequest) -> None:
        if self._wire is None:
            self._waiting.append(request)
        else:
            self._wire.send(encode_request(request, request.api.max_version, 0, self._producer.name))

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self.send(request)

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        self._producer.history.violation(f"{self._producer.name} got an answer to an acks=0 request")

    def identified(self, principal: str) -> None:
        """Nothing to do: there is no TLS here."""

    def frame_refused(self, size: int) -> None:
        self._producer.history.violation(f"{self._producer.name} was sent a frame of {size} bytes")

    def bytes_sent(self, count: int) -> None:
        pass

    def connection_lost(self, reason: str) -> None:
        self.is_over = True
        self._producer.refresh()
