"""A cluster in memory, on a clock of its own, for clients under test: no thread, no socket, no waiting.

`FakeCluster` is a `Network`. Its brokers speak the real protocol, byte for byte, and keep real batches. The
broker's own `ProducerStates`, group shard and ownership table decide what they answer. A test sets in advance
which requests of each broker fail.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast_log.broker.log.append_ids import NamedAppend
from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.clients.connection.network import Channel
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.batches import BatchHeader, assign, split
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import RequestHeader, decode_request_header, encode_response
from holdfast_log.protocol.messages import group_readers
from holdfast_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest
from holdfast_log.protocol.messages.create_topics import CreateTopicsRequest
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast_log.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from holdfast_log.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from holdfast_log.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast_log.protocol.records import Record, append_id_of, iterate
from holdfast_log.protocol.schema import decode_from, received_records
from holdfast_log.protocol.wire import Buffer
from holdfast_log.testing.fakes import fake_groups, fake_ownership, fake_topics
from holdfast_log.testing.fakes.fake_conditions import FakeConditions
from holdfast_log.testing.fakes.fake_groups import FakeGroups
from holdfast_log.testing.fakes.fake_ownership import FakeOwnership
from holdfast_log.testing.fakes.fake_readers import FakeReaders
from holdfast_log.testing.fakes.for_users import UserInterface

GROUP_CONFIG = GroupSettings(initial_rebalance_delay_ms=0, min_session_timeout_ms=100)
VERSIONS = {0: (3, 11), 1: (4, 12), 2: (1, 7), 3: (0, 12), 18: (0, 3), 22: (0, 4), 23: (2, 4), 60: (0, 1)}


@dataclass
class FakePartition:
    """One partition's log: batches as bytes, offsets assigned."""

    leader: int
    leader_epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0
    max_batch_bytes: int = 2**31
    batches: list[bytes] = field(default_factory=list)
    aborted: list[AbortedTransaction] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)

    def has_seen(self, records: memoryview) -> bool:
        """Whether a batch repeats one of its producer's last batches, or an append with the same id."""
        (header,) = split(bytearray(records))
        return self.producers.find(header) is not None or self.named(records) is not None

    def named(self, records: memoryview) -> NamedAppend | None:
        """The append with the id of this batch; None if there is none, or its producer sends it again."""
        (header,) = split(bytearray(records))
        if not header.has_append_id or self.producers.find(header) is not None:
            return None
        return self.producers.append_ids.find(append_id_of(records, header) or b"")

    def append(self, records: memoryview) -> tuple[ErrorCode, int]:
        """Append one batch, unless it is a duplicate or refused. Returns its error and first offset."""
        batch = bytearray(records)
        (header,) = split(batch)
        if header.size > self.max_batch_bytes:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        named = self.named(records)
        if named is not None:
            return ErrorCode.NONE, named.first_offset
        try:
            repeated = self.producers.check([header])
        except BrokerError as error:
            return ErrorCode(error.code), -1
        if repeated is not None:
            return ErrorCode.NONE, repeated.first_offset
        offset = self.end_offset
        assign(batch, 0, offset, self.leader_epoch)
        self._remember(memoryview(batch), header, offset)
        self.batches.append(bytes(batch))
        self.end_offset += header.record_count
        return ErrorCode.NONE, offset

    def cut(self, offset: int) -> None:
        """Lose all batches from `offset` on, as in an unclean election, which begins a new leader epoch."""
        self.batches = [batch for batch in self.batches if split(batch)[0].next_offset <= offset]
        self.end_offset = split(self.batches[-1])[0].next_offset if self.batches else 0
        self.leader_epoch += 1
        self.producers.clear(0)
        for batch in self.batches:
            (header,) = split(batch)
            self._remember(memoryview(batch), header, header.base_offset)

    def _remember(self, batch: memoryview, header: BatchHeader, offset: int) -> None:
        self.producers.update(header, offset, now_ms=0)
        if header.has_append_id:
            self.producers.remember_id(batch, header, offset, now_ms=0)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that has records, and the offset after its last one."""
        headers = [header for batch in self.batches for header in split(batch)]
        found = [header for header in headers if header.leader_epoch <= epoch]
        if not found:
            return -1, -1
        if len(found) == len(headers) and self.leader_epoch <= epoch:
            return self.leader_epoch, self.end_offset
        return found[-1].leader_epoch, found[-1].next_offset

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in iterate(batch)]


@dataclass(eq=False)
class Slot:
    """A reserved position in the order of a connection's answers."""

    answer: bytes | None = None


class FakeChannel:
    """The client's end of a connection. The broker reads `inbox` when a client's network waits."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.is_closed = False
        self.is_cut = False
        self._owed: deque[Slot] = deque()
        """Answers to be sent in order; the first one is not ready yet."""

    def finish_connecting(self) -> bool:
        if not self.broker.is_up:
            raise ConnectionRefusedError(111, "Connection refused")
        return True

    def send(self, buffers: Sequence[Buffer]) -> int:
        if self.is_cut:
            raise ConnectionResetError(104, "Connection reset by peer")
        data = b"".join(bytes(buffer) for buffer in buffers)
        taken = data[: self.broker.send_bytes]
        self.inbox += taken
        return len(taken)

    def receive_into(self, buffer: memoryview) -> int | None:
        if not self.outbox:
            return 0 if self.is_cut else None
        count = min(len(buffer), len(self.outbox), self.broker.receive_bytes)
        buffer[:count] = self.outbox[:count]
        del self.outbox[:count]
        return count

    def close(self) -> None:
        self.is_closed = True

    def send_answer(self, header: RequestHeader, response: Response) -> None:
        """Send an answer after all positions reserved before it."""
        if self._owed:
            self.fill(self.reserve(), header, response)
        else:
            self.outbox += _encoded(header, response)

    def reserve(self) -> Slot:
        """Reserve the position of a later answer. Answers to later requests are sent after it."""
        slot = Slot()
        self._owed.append(slot)
        return slot

    def fill(self, slot: Slot, header: RequestHeader, response: Response) -> None:
        """Provide the answer for a reserved position."""
        slot.answer = _encoded(header, response)
        while self._owed and self._owed[0].answer is not None:
            self.outbox += self._owed.popleft().answer or b""

    def cut(self) -> None:
        """End the connection from the broker's side; what it has sent still arrives."""
        self.is_cut = True


class FakeBroker:
    """One broker. `requests` lists the requests it received, in order."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.is_up = True
        self.is_silent = False
        """Whether the broker accepts requests without answering, like a paused process."""
        self.send_bytes = 2**30
        self.receive_bytes = 2**30
        """Largest number of bytes that one `receive_into` returns, as `send_bytes` is for one `send`."""
        self.versions = VERSIONS | fake_groups.VERSIONS | fake_topics.VERSIONS
        self.features = {**fake_groups.FEATURES, **fake_ownership.FEATURES, group_readers.FEATURE: 1}
        self.conditions = FakeConditions()
        self.believed_leaders: dict[tuple[str, int], tuple[int, int]] = {}
        """By partition, the leader and leader epoch in this broker's metadata, if they are outdated."""
        self.throttle_time_ms = 0
        self.requests: list[Request[Any]] = []
        self.faults: deque[tuple[type[Request[Any]], str | ErrorCode]] = deque()
        self.channels: list[FakeChannel] = []
        self.parked: list[tuple[int, FakeChannel, FetchRequest, RequestHeader]] = []
        """Waiting fetches, each with its deadline in ms first."""
        self.waiting: list[FakeChannel] = []
        """Channels whose next answer must be the group coordinator's."""

    def fail_next(self, request: type[Request[Any]], how: str | ErrorCode) -> None:
        """Make the next request of a kind fail: with an error code, with "cut" (the connection ends before
        the request is carried out) or with "cut after" (it ends after that, before the answer)."""
        self.faults.append((request, how))

    def stop(self) -> None:
        self.is_up = False
        for channel in self.channels:
            channel.cut()

    def start(self) -> None:
        self.is_up = True
        self.is_silent = False

    def serve(self) -> bool:
        """Answer the received requests. Returns whether there were any."""
        did_something = self._serve_parked()
        for channel in list(self.channels):
            if channel.is_closed or channel.is_cut or self.is_silent:
                continue
            while not (channel.is_cut or self._has_parked(channel)) and len(channel.inbox) >= SIZE.size:
                (size,) = SIZE.unpack_from(channel.inbox)
                if len(channel.inbox) < SIZE.size + size:
                    break
                frame = bytes(channel.inbox[SIZE.size : SIZE.size + size])
                del channel.inbox[: SIZE.size + size]
                did_something = True
                self._answer(channel, frame)
        return did_something

    def _has_parked(self, channel: FakeChannel) -> bool:
        return channel in self.waiting or any(each[1] is channel for each in self.parked)

    def _serve_parked(self) -> bool:
        parked, self.parked = self.parked, []
        for until_ms, channel, request, header in parked:
            response = self._fetch(request, ErrorCode.NONE, channel)
            if channel.is_cut or channel.is_closed:
                continue
            if _is_empty(response) and self.cluster.time_ms < until_ms:
                self.parked.append((until_ms, channel, request, header))
            else:
                self._send(channel, header, response)
        return len(self.parked) < len(parked)

    def _send(self, channel: FakeChannel, header: RequestHeader, response: Response) -> None:
        channel.send_answer(header, response)

    def _answer(self, channel: FakeChannel, frame: bytes) -> None:
        header, position = decode_request_header(frame)
        api = APIS[header.api_key]
        low, high = self.versions.get(header.api_key, (0, 0 if api.feature in self.features else -1))
        assert low <= header.api_version <= high or api.key == 18, f"{api.name} v{header.api_version}"
        if api.key == 18 and header.api_version > high:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            channel.outbox += join_parts(encode_response(refusal, 0, header.correlation_id))
            return
        request, _ = decode_from(api.request, header.api_version, frame, position)
        self.requests.append(request)
        self.cluster.ownership.heard(channel)
        fault = self._fault_for(request)
        if fault == "cut":
            channel.cut()
            return
        error = fault if isinstance(fault, ErrorCode) else ErrorCode.NONE
        if self.cluster.groups.handles(request):
            self._ask_coordinator(channel, header, request, error, fault == "cut after")
            return
        if self.cluster.ownership.handles(request):
            response = self.cluster.ownership.respond(self.node, channel, header, request, error)
        else:
            response = self._respond(request, error, channel)
        if fault == "cut after":
            channel.cut()
        elif isinstance(request, FetchRequest) and _is_empty(response):
            self.parked.append((self.cluster.time_ms + request.max_wait_ms, channel, request, header))
        elif response is not None:
            self._send(channel, header, response)

    def _ask_coordinator(
        self,
        channel: FakeChannel,
        header: RequestHeader,
        request: Request[Any],
        error: ErrorCode,
        cuts_after: bool,
    ) -> None:
        def respond(response: Response) -> None:
            self.waiting.remove(channel)
            if not (channel.is_cut or channel.is_closed or cuts_after):
                self._send(channel, header, response)

        self.waiting.append(channel)
        self.cluster.groups.handle(
            self.node, request, error, header.api_version, header.client_id or "", respond
        )
        if cuts_after:
            channel.cut()

    def _fault_for(self, request: Request[Any]) -> str | ErrorCode | None:
        for faults in (self.faults, self.cluster.faults):
            for fault in faults:
                if isinstance(request, fault[0]):
                    faults.remove(fault)
                    return fault[1]
        return None

    def _respond(self, request: Request[Any], error: ErrorCode, channel: FakeChannel) -> Response | None:
        match request:
            case ApiVersionsRequest():
                keys = [
                    ApiVersion(api_key=key, min_version=low, max_version=high)
                    for key, (low, high) in self.versions.items()
                ]
                features = [
                    SupportedFeatureKey(name=name, min_version=1, max_version=version)
                    for name, version in self.features.items()
                ]
                return ApiVersionsResponse(error_code=error, api_keys=keys, supported_features=features)
            case MetadataRequest():
                return self._as_believed(self.cluster.metadata(request, error))
            case InitProducerIdRequest():
                self.cluster.producer_id += 1
                return InitProducerIdResponse(
                    throttle_time_ms=0,
                    error_code=error,
                    producer_id=self.cluster.producer_id,
                    producer_epoch=0,
                )
            case DescribeClusterRequest():
                return self.cluster.describe(error)
            case CreateTopicsRequest() | DeleteTopicsRequest() | CreatePartitionsRequest():
                return fake_topics.respond(self.cluster, request, error)
            case ProduceRequest():
                return self._produce(request, error, channel)
            case FetchRequest():
                return self._fetch(request, error, channel)
            case group_readers.AttachReaderRequest():
                return self.cluster.readers.attach(channel, request, self._led())
            case ListOffsetsRequest():
                return self._list_offsets(request, error)
            case OffsetForLeaderEpochRequest():
                return self._ends_of_epochs(request, error)
        raise AssertionError(request)

    def _as_believed(self, response: MetadataResponse) -> MetadataResponse:
        for topic in response.topics:
            for row in topic.partitions:
                believed = self.believed_leaders.get((topic.name or "", row.partition_index))
                if believed is not None:
                    row.leader_id, row.leader_epoch = believed
        return response

    def _produce(
        self, request: ProduceRequest, error: ErrorCode, channel: FakeChannel
    ) -> ProduceResponse | None:
        topics = []
        refusals = self.conditions.judge(self, request) if error is ErrorCode.NONE else {}
        for topic in request.topic_data:
            rows = []
            for data in topic.partition_data:
                if (topic.name, data.index) in refusals:
                    rows.append(refusals[topic.name, data.index])
                    continue
                partition = self.cluster.partition(topic.name, data.index)
                code, offset, is_repeat = error, -1, False
                if partition is None or partition.leader != self.node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif code is ErrorCode.NONE and data.records is not None:
                    refusal = self.cluster.ownership.may_write(channel, topic.name, data.index)
                    if refusal and not partition.has_seen(received_records(data.records)):
                        code = refusal
                    else:
                        is_repeat = partition.named(received_records(data.records)) is not None
                        code, offset = partition.append(received_records(data.records))
                rows.append(
                    PartitionProduceResponse(
                        index=data.index, error_code=code, base_offset=offset, is_repeat=is_repeat
                    )
                )
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=rows))
        if request.acks == 0:
            return None
        return ProduceResponse(responses=topics, throttle_time_ms=self.throttle_time_ms)

    def _led(self) -> Iterator[tuple[str, int]]:
        """The partitions that this broker leads."""
        for topic, partitions in self.cluster.topics.items():
            for number, partition in enumerate(partitions):
                if partition.leader == self.node:
                    yield topic, number

    def _fetch(self, request: FetchRequest, error: ErrorCode, channel: FakeChannel) -> FetchResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self.cluster.partition(topic.topic, asked.partition)
                code, records = error, b""
                if partition is None or partition.leader != self.node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif 0 <= asked.current_leader_epoch < partition.leader_epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                elif not self.cluster.readers.may_read(channel, (topic.topic, asked.partition)):
                    code = ErrorCode.OWNERSHIP_FENCED
                elif not self.cluster.ownership.may_read(channel, topic.topic, asked.partition):
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif not partition.start_offset <= asked.fetch_offset <= partition.end_offset:
                    code = ErrorCode.OFFSET_OUT_OF_RANGE
                elif code is ErrorCode.NONE:
                    wanted = [b for b in partition.batches if split(b)[0].last_offset >= asked.fetch_offset]
                    while wanted and (not records or len(records) < asked.partition_max_bytes):
                        records += wanted.pop(0)
                rows.append(
                    PartitionData(
                        partition_index=asked.partition,
                        error_code=code,
                        high_watermark=-1 if partition is None else partition.end_offset,
                        aborted_transactions=(
                            partition.aborted if partition is not None and request.isolation_level else None
                        ),
                        records=records,
                    )
                )
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=rows))
        return FetchResponse(throttle_time_ms=0, session_id=0, responses=topics)

    def _list_offsets(self, request: ListOffsetsRequest, error: ErrorCode) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self.cluster.partition(topic.name, asked.partition_index)
                code, offset, timestamp = error, -1, -1
                if partition is None or partition.leader != self.node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif asked.timestamp == -1:
                    offset = partition.end_offset
                elif asked.timestamp == -2:
                    offset = partition.start_offset
                else:
                    late = [r for r in partition.records() if r.timestamp >= asked.timestamp]
                    if late:
                        offset, timestamp = late[0].offset, late[0].timestamp
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=code,
                        offset=offset,
                        timestamp=timestamp,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    def _ends_of_epochs(
        self, request: OffsetForLeaderEpochRequest, error: ErrorCode
    ) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                partition = self.cluster.partition(topic.topic, asked.partition)
                code, epoch, end = error, -1, -1
                if partition is None or partition.leader != self.node:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif asked.current_leader_epoch not in (-1, partition.leader_epoch):
                    code = ErrorCode.FENCED_LEADER_EPOCH
                elif code is ErrorCode.NONE:
                    epoch, end = partition.end_of_epoch(asked.leader_epoch)
                rows.append(
                    EpochEndOffset(
                        partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


def _encoded(header: RequestHeader, response: Response) -> bytes:
    return join_parts(encode_response(response, header.api_version, header.correlation_id))


def _is_empty(response: Response | None) -> bool:
    return isinstance(response, FetchResponse) and not any(
        row.error_code or row.records for topic in response.responses for row in topic.partitions
    )


class FakeCluster(UserInterface):
    """Brokers in memory for unit tests: no sockets, no threads, no waiting, the same outcome every time.

    `brokers` is how many there are, numbered from 1; `group_config` has the settings of the group
    coordinator. `producer`, `consumer` and the other methods of `UserInterface` make real clients on it, tell
    which requests fail, and let time pass. Time passes only while a client waits, and in `advance`.

    Use a cluster and its clients in one thread. What is not in `UserInterface` may change between versions.
    docs/testing.md has examples.
    """

    def __init__(self, brokers: int = 1, group_config: GroupSettings = GROUP_CONFIG) -> None:
        self.brokers = {node: FakeBroker(self, node) for node in range(1, brokers + 1)}
        self.topics: dict[str, list[FakePartition]] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.producer_id = 100
        self.controller_id = 1
        self.time_ms = 0
        self.faults: deque[tuple[type[Request[Any]], str | ErrorCode]] = deque()
        """As those of a broker, for whichever broker gets the request."""
        self.readers = FakeReaders()
        self.groups = FakeGroups(self, group_config)
        self.ownership = FakeOwnership(self)
        self._events: list[tuple[int, Callable[[], object]]] = []
        self._first_network = FakeNetwork(self)

    def network(self) -> FakeNetwork:
        """A network for one more client."""
        return FakeNetwork(self)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"broker-{node}:9092" for node in self.brokers)

    def add_topic(self, name: str, partitions: int = 1) -> list[FakePartition]:
        """Add a topic, with its leaders spread over the brokers. It replaces one of the same name."""
        nodes = list(self.brokers)
        self.topic_ids[name] = uuid.uuid5(self.topic_ids.get(name, uuid.NAMESPACE_DNS), name)
        self.topics[name] = [FakePartition(nodes[index % len(nodes)]) for index in range(partitions)]
        return self.topics[name]

    def topic_id(self, name: str) -> uuid.UUID:
        return self.topic_ids[name]

    def partition(self, topic: str, number: int) -> FakePartition | None:
        partitions = self.topics.get(topic, [])
        return partitions[number] if number < len(partitions) else None

    def at(self, time_ms: int, event: Callable[[], object]) -> None:
        """Call `event` at `time_ms` of the cluster's clock."""
        self._events.append((time_ms, event))
        self._events.sort(key=lambda each: each[0])

    def metadata(self, request: MetadataRequest, error: ErrorCode) -> MetadataResponse:
        names = (
            list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        )
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092)
                for node, broker in self.brokers.items()
                if broker.is_up
            ],
            cluster_id="fake",
            controller_id=self.controller_id,
            topics=[self._topic_metadata(name, error) for name in names],
        )

    def describe(self, error: ErrorCode) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error,
            error_message=None,
            cluster_id="fake",
            controller_id=self.controller_id,
            brokers=[
                DescribeClusterBroker(broker_id=node, host=f"broker-{node}", port=9092)
                for node, broker in self.brokers.items()
                if broker.is_up
            ],
        )

    def _topic_metadata(self, name: str, error: ErrorCode) -> MetadataResponseTopic:
        known = self.topics.get(name)
        if known is None or error:
            code = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponseTopic(error_code=code, name=name, partitions=[])
        up = {node for node, broker in self.brokers.items() if broker.is_up}
        is_led = [partition.leader in up for partition in known]
        rows = [
            MetadataResponsePartition(
                error_code=ErrorCode.NONE if is_led[index] else ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=index,
                leader_id=partition.leader if is_led[index] else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[partition.leader],
                isr_nodes=[partition.leader],
            )
            for index, partition in enumerate(known)
        ]
        return MetadataResponseTopic(error_code=0, name=name, topic_id=self.topic_ids[name], partitions=rows)

    def serve(self) -> None:
        """Carry out everything that is due."""
        while self._events and self._events[0][0] <= self.time_ms:
            self._events.pop(0)[1]()
        self.groups.tick()
        self.ownership.tick()
        for broker in self.brokers.values():
            broker.serve()

    def next_ms(self) -> list[int]:
        """The times at which the next events are due."""
        group_ms = self.groups.next_ms()
        return [
            *(until_ms for broker in self.brokers.values() for until_ms, *_ in broker.parked),
            *(time_ms for time_ms, _ in self._events),
            *(() if group_ms is None else (group_ms,)),
            *self.ownership.next_ms(),
        ]

    # The network of the first client ------------------------------------------------------------------

    def connect(self, host: str, port: int) -> FakeChannel:
        return self._first_network.connect(host, port)

    def wait(self, timeout_ms: int, writing: Collection[Channel]) -> list[Channel]:
        return self._first_network.wait(timeout_ms, writing)

    def wake(self) -> None:
        self._first_network.wake()

    def now_ms(self) -> int:
        return self.time_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.time_ms

    def close(self) -> None:
        self._first_network.close()


IDLE_WAITS_MAX = 5_000
"""Above this number a client that waits in vain fails: a real one would use up a processor. No test polls so
often itself."""


class FakeNetwork:
    """The network of one client."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._channels: list[FakeChannel] = []
        self._is_woken = False
        self._idle_waits = 0
        """How many waits in a row had no event and took no time."""

    def connect(self, host: str, port: int) -> FakeChannel:
        broker = self._cluster.brokers[int(host.removeprefix("broker-"))]
        channel = FakeChannel(broker)
        broker.channels.append(channel)
        self._channels.append(channel)
        return channel

    def wait(self, timeout_ms: int, writing: Collection[Channel]) -> list[Channel]:
        cluster = self._cluster
        began_ms = cluster.time_ms
        deadline_ms = began_ms + max(0, timeout_ms)
        while True:
            cluster.serve()
            self._channels = [channel for channel in self._channels if not channel.is_closed]
            ready: list[Channel] = [
                channel
                for channel in self._channels
                if channel in writing or channel.outbox or channel.is_cut
            ]
            if ready or self._is_woken or cluster.time_ms >= deadline_ms:
                is_idle = not ready and not self._is_woken and cluster.time_ms == began_ms
                self._idle_waits = self._idle_waits + 1 if is_idle else 0
                assert self._idle_waits < IDLE_WAITS_MAX, "the client runs its loop although nothing is due"
                self._is_woken = False
                return ready
            cluster.time_ms = max(cluster.time_ms, min([deadline_ms, *cluster.next_ms()]))

    def wake(self) -> None:
        self._is_woken = True

    def now_ms(self) -> int:
        return self._cluster.now_ms()

    def wall_ms(self) -> int:
        return self._cluster.wall_ms()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()
