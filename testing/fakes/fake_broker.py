"""A broker of a fake cluster, and the connections to it: requests in, answers out, byte for byte."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from holdfast_log.broker.replication.admission import RequestFence
from holdfast_log.coordinator.transactions.epochs import BUMPING_VERSION
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import RequestHeader, decode_request_header, encode_response
from holdfast_log.protocol.messages import group_readers
from holdfast_log.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from holdfast_log.protocol.messages.create_partitions import CreatePartitionsRequest
from holdfast_log.protocol.messages.create_topics import CreateTopicsRequest
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest
from holdfast_log.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
)
from holdfast_log.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
)
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
)
from holdfast_log.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from holdfast_log.protocol.schema import decode_from, received_records
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.protocol.wire import Buffer
from holdfast_log.testing.fakes import (
    fake_groups,
    fake_ownership,
    fake_reads,
    fake_topics,
    fake_transactions,
)
from holdfast_log.testing.fakes.fake_conditions import FakeConditions

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_cluster import FakeCluster

VERSIONS = fake_transactions.VERSIONS | {
    0: (3, 11),
    1: (4, 12),
    2: (1, 7),
    3: (0, 12),
    18: (0, 3),
    22: (0, 4),
    23: (2, 4),
    60: (0, 1),
}


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
        self.rack: str | None = None
        self.is_up = True
        self.is_silent = False
        """Whether the broker accepts requests without answering, like a paused process."""
        self.send_bytes = 2**30
        self.receive_bytes = 2**30
        """Largest number of bytes that one `receive_into` returns, as `send_bytes` is for one `send`."""
        self.versions = VERSIONS | fake_groups.VERSIONS | fake_topics.VERSIONS
        self.features = {**fake_groups.FEATURES, **fake_ownership.FEATURES, group_readers.FEATURE: 1}
        self.finalized: dict[str, int] = {}
        """The level of each feature that the cluster has finalised."""
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

    def use_transactions(self, version: int) -> None:
        """Announce a transaction.version to clients that connect from now on."""
        self.finalized["transaction.version"] = version
        older = VERSIONS if version < BUMPING_VERSION else VERSIONS | fake_transactions.VERSIONS_2
        self.versions |= {key: older[key] for key in fake_transactions.VERSIONS_2}

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
            response = fake_reads.fetched(self, request, ErrorCode.NONE, channel)
            if channel.is_cut or channel.is_closed:
                continue
            if fake_reads.is_empty(response) and self.cluster.time_ms < until_ms:
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
        if self.cluster.transactions.handles(request):
            response: Response | None = self.cluster.transactions.respond(
                self.node, request, error, header.api_version
            )
        elif self.cluster.ownership.handles(request):
            response = self.cluster.ownership.respond(self.node, channel, header, request, error)
        else:
            response = self._respond(request, error, channel, header.api_version)
        if fault == "cut after":
            channel.cut()
        elif isinstance(request, FetchRequest) and fake_reads.is_empty(cast("FetchResponse", response)):
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

    def _respond(
        self, request: Request[Any], error: ErrorCode, channel: FakeChannel, version: int
    ) -> Response | None:
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
                finalized = [
                    FinalizedFeatureKey(name=name, min_version_level=1, max_version_level=level)
                    for name, level in self.finalized.items()
                ]
                return ApiVersionsResponse(
                    error_code=error,
                    api_keys=keys,
                    supported_features=features,
                    finalized_features=finalized,
                )
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
                return self._produce(request, error, channel, version)
            case FetchRequest():
                return fake_reads.fetched(self, request, error, channel)
            case group_readers.AttachReaderRequest():
                return self.cluster.readers.attach(channel, request, self._led())
            case ListOffsetsRequest():
                return fake_reads.listed(self, request, error)
            case OffsetForLeaderEpochRequest():
                return fake_reads.ends_of_epochs(self, request, error)
        raise AssertionError(request)

    def _as_believed(self, response: MetadataResponse) -> MetadataResponse:
        for topic in response.topics:
            for row in topic.partitions:
                believed = self.believed_leaders.get((topic.name or "", row.partition_index))
                if believed is not None:
                    row.leader_id, row.leader_epoch = believed
        return response

    def _produce(
        self, request: ProduceRequest, error: ErrorCode, channel: FakeChannel, version: int
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
                    records = received_records(data.records)
                    fence = None
                    if data.owner_token >= 0:
                        fence = RequestFence(data.owner_token, bytes(data.owner_secret))
                    refusal = self.cluster.ownership.may_write(
                        channel, topic.name, data.index, fence
                    ) or self.cluster.transactions.refusal(
                        request.transactional_id, records, TopicPartition(topic.name, data.index), version
                    )
                    if refusal and not partition.has_seen(records):
                        code = refusal
                    else:
                        is_repeat = partition.named(records) is not None
                        code, offset = partition.append(records)
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


def _encoded(header: RequestHeader, response: Response) -> bytes:
    return join_parts(encode_response(response, header.api_version, header.correlation_id))
