"""Clients of a simulated cluster: producers and consumers that speak the protocol, and remember everything.

They stand on the codecs and on the broker's own `BrokerChannel`; what they do with answers is theirs, in the
manner of Kafka's own clients: metadata asked of anyone, leaders followed by epoch, errors retried.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from broker.network.interfaces import Address, Wire
from broker.network.outbound import BrokerChannel, ChannelSettings
from protocol.api import Request, Response, encode_request
from protocol.batches import has_valid_crc, whole_batches
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records import BatchBuilder
from protocol.schema import received_records
from tests.sim.history import Batch, History, Outcome, TopicPartition
from tests.sim.network import ProcessNetwork, SimNetwork
from tests.sim.world import Process, World

R = TypeVar("R", bound=Response)

_REQUEST_TIMEOUT_MS = 5000
_ACKS_TIMEOUT_MS = 3000
_DELIVERY_TIMEOUT_S = 15.0
_RETRY_S = 0.1
_POLL_S = 0.3
_FETCH_VERSION = 12
"""The last that names topics, and the first that tells a reader where logs part."""

_PASSING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors that a healthy cluster under faults may answer with; they are tried again."""
_BROKEN_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class Client:
    """What all clients have in common: a process, channels, and a view of the cluster."""

    def __init__(
        self,
        world: World,
        network: SimNetwork,
        name: str,
        bootstrap: Sequence[Address],
        history: History,
        life_of: Callable[[Address], int],
    ) -> None:
        self.name = name
        self.history = history
        self.world = world
        self.process = Process(world, name)
        self.rng: random.Random = self.process.rng("client")
        self.life_of = life_of
        """Which life of a broker an address leads to now: no client knows that, but its judges do."""
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}
        """Of each partition the leader (-1: none) and its epoch, as far as it is known."""
        self.controller_id = -1
        self.network: ProcessNetwork = network.for_process(self.process)
        self._bootstrap = list(bootstrap)
        self._brokers: dict[int, Address] = {}
        self._channels: dict[Address, BrokerChannel] = {}
        self._is_refreshing = False

    def later(self, seconds: float, function: Any, *arguments: Any) -> None:
        self.process.clock.callLater(seconds, function, *arguments)

    def address_of(self, broker_id: int) -> Address | None:
        return self._brokers.get(broker_id)

    def send(self, address: Address, request: Request[R], version: int | None = None) -> Deferred[R]:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = BrokerChannel(
                address,
                self.network,
                self.process.clock,
                self.rng.random,
                ChannelSettings(self.name, _REQUEST_TIMEOUT_MS, connect_timeout_ms=1000),
            )
        return channel.send(request, version)

    def anyone(self) -> Address:
        known = list(self._brokers.values()) or self._bootstrap
        return self.rng.choice(known)

    # Metadata

    def refresh(self) -> None:
        """Ask for metadata, unless that is under way."""
        if self._is_refreshing:
            return
        self._is_refreshing = True
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer = self.send(self.anyone(), request)
        answer.addCallbacks(self._refreshed, self._refresh_failed)

    def _refresh_failed(self, failure: Failure) -> None:
        self._brokers = {}  # Whom the others know may be gone: back to the ones that never move.
        self.later(_RETRY_S, self._refresh_again)

    def _refresh_again(self) -> None:
        self._is_refreshing = False
        self.refresh()

    def _refreshed(self, response: MetadataResponse) -> None:
        self._is_refreshing = False
        self.history.operations += 1
        self._brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.controller_id = response.controller_id
        for topic in response.topics:
            for partition in topic.partitions:
                self._learn((topic.name or "", partition.partition_index), partition)
        self.metadata_arrived()

    def _learn(self, at: TopicPartition, partition: Any) -> None:
        _, epoch = self.leaders.get(at, (-1, -1))
        # An older broker's word does not count against what a newer one said (KIP-320).
        if partition.leader_epoch >= epoch:
            self.leaders[at] = (partition.leader_id, partition.leader_epoch)

    def metadata_arrived(self) -> None:
        """For those who wait for leaders."""


class Administrator(Client):
    """Makes the topics, and goes on trying until they are there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.is_done = False
        self._topics: list[CreatableTopic] = []

    def create(self, topics: dict[str, tuple[int, int, dict[str, str]]]) -> None:
        """Make topics of so many partitions and replicas, with these settings."""
        self._topics = [
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replicas,
                assignments=[],
                configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
            )
            for name, (partitions, replicas, configs) in topics.items()
        ]
        self.process.run(self.refresh)

    def metadata_arrived(self) -> None:
        if self.is_done:
            return
        address = self.address_of(self.controller_id)
        if address is None:
            self.later(_RETRY_S, self.refresh)
            return
        request = CreateTopicsRequest(topics=self._topics, timeout_ms=2000, validate_only=False)
        self.send(address, request).addCallbacks(self._created, lambda _: self.later(_RETRY_S, self.refresh))

    def _created(self, response: Any) -> None:
        codes = {topic.error_code for topic in response.topics}
        if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            self.is_done = True
        else:
            self.later(_RETRY_S, self.refresh)


@dataclass(frozen=True, slots=True)
class ProducerHabits:
    """How a producer produces. `interval_ms`: the mean time between two batches."""

    acks: int
    is_idempotent: bool = False
    interval_ms: int = 400
    records_max: int = 4
    in_flight_max: int = 1


class _Lane:
    """One partition's batches in a producer, in order; after a failure all that was in flight goes again."""

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.made = 0
        self.queue: deque[Batch] = deque()
        self.encoded: dict[Batch, bytearray] = {}
        self.in_flight: dict[Batch, None] = {}
        self.next_sequence = 0
        self.first_acked: int | None = None
        """The number of the first batch that was acknowledged under the present producer id."""
        self.is_recovering = False
        self.ready_s = 0.0

    def next_batch(self, now_s: float, in_flight_max: int) -> Batch | None:
        """The batch to send now, if any."""
        if self.is_recovering and not self.in_flight and now_s >= self.ready_s:
            self.is_recovering = False
        if self.is_recovering or len(self.in_flight) >= in_flight_max:
            return None
        return next((batch for batch in self.queue if batch not in self.in_flight), None)

    def forget(self, batch: Batch) -> None:
        self.queue.remove(batch)
        self.encoded.pop(batch, None)


class Producer(Client):
    """Sends batches until it is told to stop, and then until none is left."""

    def __init__(self, *arguments: Any, partitions: Sequence[TopicPartition], habits: ProducerHabits) -> None:
        super().__init__(*arguments)
        self.habits = habits
        self.is_making = True
        self._lanes = {at: _Lane(at) for at in partitions}
        self._producer_id: tuple[int, int] | None = None
        self._is_identifying = False
        self._must_start_over = False
        self._one_way: dict[Address, _OneWay] = {}

    def start(self) -> None:
        self.process.run(self._begin)

    def _begin(self) -> None:
        self.refresh()
        self._tick()

    @property
    def is_idle(self) -> bool:
        return not self.is_making and not any(lane.queue for lane in self._lanes.values())

    def _tick(self) -> None:
        if self.is_making:
            self._make()
        self._give_up_late()
        self._pump()
        self.later(self.habits.interval_ms / 1000 * self.rng.uniform(0.5, 1.5), self._tick)

    def _make(self) -> None:
        for lane in self.rng.sample(list(self._lanes.values()), min(2, len(self._lanes))):
            if len(lane.queue) >= 2 * self.habits.in_flight_max + 2:
                continue
            count = self.rng.randint(1, self.habits.records_max)
            topic, partition = lane.at
            values = [
                f"{self.name}/{topic}-{partition}/{lane.made}.{index} ".encode()
                + bytes(self.rng.randrange(120))
                for index in range(count)
            ]
            habits = self.habits
            batch = Batch(
                self.name, lane.at, lane.made, values, habits.acks, habits.is_idempotent, self.world.seconds()
            )
            lane.made += 1
            lane.queue.append(batch)
            self.history.batches.append(batch)

    def _give_up_late(self) -> None:
        """Batches that could not be delivered in time are given up; what became of them is not known."""
        oldest_s = self.world.seconds() - _DELIVERY_TIMEOUT_S
        for lane in self._lanes.values():
            while lane.queue and lane.queue[0].made_s < oldest_s and not lane.in_flight:
                batch = lane.queue[0]
                if self.habits.is_idempotent and batch.sends:
                    # A sequence that may be missing: go on under another id.
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
            lane.next_sequence = 0
            lane.first_acked = None
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
            address = self.address_of(self.leaders.get(lane.at, (-1, -1))[0])
            if address is None:
                self.refresh()
                continue
            by_leader.setdefault(address, []).append((lane, batch))
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
        """The batch as it is sent, every time alike."""
        encoded = lane.encoded.get(batch)
        if encoded is None:
            builder = BatchBuilder()
            now_ms = int(self.process.clock.seconds() * 1000)
            for value in batch.values:
                builder.append(now_ms, None, value)
            if self._producer_id is None:
                encoded = builder.build()
            else:
                producer_id, epoch = self._producer_id
                encoded = builder.build(
                    producer_id=producer_id, producer_epoch=epoch, base_sequence=lane.next_sequence
                )
                lane.next_sequence += len(batch.values)
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
        lane.ready_s = self.process.clock.seconds() + _RETRY_S

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
            else:
                self._settle(lane, batch, row)
        self._pump()

    def _settle(self, lane: _Lane, batch: Batch, row: PartitionProduceResponse) -> None:
        code = row.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            lane.in_flight.pop(batch, None)
            lane.first_acked = batch.number if lane.first_acked is None else lane.first_acked
            batch.outcome = Outcome.ACKED
            batch.offset = row.base_offset if code == ErrorCode.NONE else None
            lane.forget(batch)
            return
        is_first = lane.queue[0] is batch
        self._again(lane, batch)
        if code in _BROKEN_SEQUENCE and self.habits.is_idempotent:
            if is_first:
                # All before it was acknowledged; with acks=all, none of that may be missing. Before that, a
                # broker takes any sequence for the first (KIP-360), be it that of a batch behind this one.
                is_known = lane.first_acked is not None and lane.first_acked < batch.number
                if self.habits.acks == -1 and is_known and not self._must_start_over:
                    self.history.violation(f"{batch} was refused with {ErrorCode(code).name}")
                self._must_start_over = True
        elif code not in _PASSING:
            self.history.violation(f"{batch} was refused with {ErrorCode(code).name}: {row.error_message}")
        self.refresh()


class _OneWay:
    """A connection on which nothing is answered (`broker.network.interfaces.FrameReceiver`)."""

    frame_bytes_max = 1 << 20

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
        self._producer.history.violation(f"{self._producer.name} got an answer to acks=0")

    def frame_refused(self, size: int) -> None:
        self._producer.history.violation(f"{self._producer.name} was sent a frame of {size} bytes")

    def bytes_sent(self, count: int) -> None:
        pass

    def connection_lost(self, reason: str) -> None:
        self.is_over = True
        self._producer.refresh()


@dataclass(slots=True)
class _Reading:
    """A consumer's place in one partition."""

    at: TopicPartition
    position: int = 0
    last_epoch: int = -1
    is_asked: bool = False
    ready_s: float = 0.0
    high_watermark: int = -1
    told_by: tuple[int, int] | None = None
    """The leader epoch, and the leader's life, in which that high watermark was told."""


class Consumer(Client):
    """Reads every partition from the beginning on, for ever."""

    def __init__(self, *arguments: Any, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(*arguments)
        self._readings = {at: _Reading(at) for at in partitions}

    def start(self) -> None:
        self.process.run(self._begin)

    def _begin(self) -> None:
        self.refresh()
        self._tick()

    def positions(self) -> dict[TopicPartition, int]:
        return {at: reading.position for at, reading in self._readings.items()}

    def _tick(self) -> None:
        self._pump()
        self.later(_POLL_S * self.rng.uniform(0.5, 1.5), self._tick)

    def _pump(self) -> None:
        """One fetch for each leader, of the partitions that none asks for yet."""
        now_s = self.process.clock.seconds()
        by_leader: dict[Address, list[_Reading]] = {}
        for reading in self._readings.values():
            if reading.is_asked or now_s < reading.ready_s:
                continue
            address = self.address_of(self.leaders.get(reading.at, (-1, -1))[0])
            if address is None:
                self.refresh()
            else:
                by_leader.setdefault(address, []).append(reading)
        for address, readings in by_leader.items():
            self._fetch(address, readings)

    def _fetch(self, address: Address, readings: list[_Reading]) -> None:
        topics: dict[str, list[FetchPartition]] = {}
        epochs: dict[TopicPartition, int] = {}
        for reading in readings:
            reading.is_asked = True
            topic, partition = reading.at
            epochs[reading.at] = self.leaders[reading.at][1]
            topics.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    current_leader_epoch=epochs[reading.at],
                    fetch_offset=reading.position,
                    last_fetched_epoch=reading.last_epoch,
                    partition_max_bytes=8 * 1024,
                )
            )
        life = self.life_of(address)
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=64 * 1024,
            topics=[FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
            forgotten_topics_data=[],
        )
        self.send(address, request, _FETCH_VERSION).addCallbacks(
            lambda response: self._answered(readings, epochs, (address, life), response),
            lambda failure: self._unanswered(readings),
        )

    def _unanswered(self, readings: list[_Reading]) -> None:
        for reading in readings:
            self._pause(reading)
        self.refresh()

    def _pause(self, reading: _Reading) -> None:
        reading.is_asked = False
        reading.ready_s = self.process.clock.seconds() + _RETRY_S

    def _answered(
        self,
        readings: list[_Reading],
        epochs: dict[TopicPartition, int],
        asked: tuple[Address, int],
        response: FetchResponse,
    ) -> None:
        self.history.operations += 1
        rows = {
            (topic.topic, row.partition_index): row
            for topic in response.responses
            for row in topic.partitions
        }
        for reading in readings:
            row = rows.get(reading.at)
            if row is None:
                self._pause(reading)
            else:
                self._read(reading, epochs[reading.at], asked, row)

    def _read(
        self, reading: _Reading, leader_epoch: int, asked: tuple[Address, int], row: PartitionData
    ) -> None:
        name = f"{reading.at[0]}-{reading.at[1]}"
        if row.error_code != ErrorCode.NONE:
            if row.error_code not in _PASSING:
                code = ErrorCode(row.error_code).name
                self.history.violation(f"{self.name} got {code} at {reading.position} of {name}")
            self._pause(reading)
            self.refresh()
            return
        reading.is_asked = False
        if row.diverging_epoch.epoch >= 0 or row.diverging_epoch.end_offset >= 0:
            self.history.violation(
                f"{self.name} read {name} up to {reading.position}, epoch {reading.last_epoch}; "
                f"the log parts from that at {row.diverging_epoch.end_offset}"
            )
            self._pause(reading)
            return
        address, life = asked
        if self.life_of(address) == life:
            self._note_high_watermark(reading, (leader_epoch, life), row.high_watermark)
        records = received_records(row.records)
        for header in whole_batches(records):
            if not has_valid_crc(records, header):
                self.history.violation(f"{self.name} got a damaged batch at {header.base_offset} of {name}")
                return
            if header.last_offset >= row.high_watermark:
                self.history.violation(
                    f"{self.name} got {header.last_offset} of {name}, high watermark {row.high_watermark}"
                )
            values = self.history.values_of(reading.at, records, header)
            skipped = max(0, reading.position - header.base_offset)
            self.history.saw(self.name, reading.at, header.base_offset + skipped, values[skipped:])
            reading.position = max(reading.position, header.next_offset)
            reading.last_epoch = header.leader_epoch

    def _note_high_watermark(self, reading: _Reading, told_by: tuple[int, int], high_watermark: int) -> None:
        """A leader's high watermark never goes back; one that has lost its memory begins anew."""
        if told_by != reading.told_by:
            reading.told_by = told_by
            reading.high_watermark = high_watermark
        elif high_watermark < reading.high_watermark:
            self.history.violation(
                f"{self.name} was told high watermark {high_watermark} of {reading.at[0]}-{reading.at[1]} "
                f"after {reading.high_watermark}, in the same leader epoch {told_by[0]}"
            )
        reading.high_watermark = max(reading.high_watermark, high_watermark)
