"""A broker answers bad input with the protocol's error or closes the connection, logs one line, and other
clients are unaffected.

Throughout every test, a `Neighbour` produces and fetches on its own connection.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from holdfast_log.protocol import batches
from holdfast_log.protocol.api import Response
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.checksum import crc32c
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest
from holdfast_log.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from holdfast_log.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.init_producer_id import InitProducerIdRequest
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from tests.cluster import BackgroundBroker, Cluster
from tests.integration.raw_socket import TIMEOUT_S, RawSocket, request_frame
from tests.models.batches import batch as dated_batch
from tests.protocol.fuzz import Frames

FRAMES = 20_000
IDLE_MS = 3_000
CONNECTIONS_MAX = 60
FRAME_BYTES_MAX = 8 << 20
GROWTH_MIB = 48
"""Maximum growth of the broker's memory in one test, far less than one unbounded read of its input."""
_LAST = 0x7FFF_0000
_PRODUCE_VERSION = 9
_FETCH_VERSION = 11


class HungUp(AssertionError):
    """The broker has closed the connection."""


class Neighbour:
    """A well-behaved client, which produces a batch and fetches it, again and again."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic
        self._rounds = 0
        self._error: BaseException | None = None
        self._progress = threading.Condition()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def gets_on(self, rounds: int = 3) -> None:
        """Return once the client has completed `rounds` more rounds."""
        with self._progress:
            wanted = self._rounds + rounds
            arrived = self._progress.wait_for(lambda: self._rounds >= wanted or self._error, TIMEOUT_S)
            assert self._error is None, f"the neighbour failed: {self._error!r}"
            assert arrived, "the neighbour makes no progress"

    def stop(self) -> None:
        self._is_over = True
        self._thread.join(TIMEOUT_S)

    def _run(self) -> None:
        try:
            while not self._is_over:
                with RawSocket(self._port) as connection:
                    self._use(connection)
        except BaseException as error:
            with self._progress:
                self._error = error
                self._progress.notify_all()

    def _use(self, connection: RawSocket) -> None:
        """Complete rounds until the end, or until the connection is lost because this client was silent for
        as long as the broker keeps idle ones, which happens on a busy machine, also between two rounds."""
        heard_s = began_s = time.monotonic()
        while not self._is_over:
            try:
                self._round(connection)
            except HungUp:
                if time.monotonic() - heard_s < IDLE_MS / 1000:
                    raise
                return
            # The broker has heard of this client since the last round began.
            heard_s, began_s = began_s, time.monotonic()

    def _round(self, connection: RawSocket) -> None:
        records = batch(b"round %d" % self._rounds)
        produced = connection.ask(produce_request(self._topic, records, acks=-1), _PRODUCE_VERSION)
        if produced is None:
            raise HungUp
        ((result,),) = [topic.partition_responses for topic in produced.responses]
        assert result.error_code == ErrorCode.NONE, result
        fetched = connection.ask(fetch_request(self._topic, result.base_offset), _FETCH_VERSION)
        if fetched is None:
            raise HungUp
        ((data,),) = [topic.partitions for topic in fetched.responses]
        assert bytes(data.records or b"")[61:] == records[61:]  # type: ignore[arg-type]
        with self._progress:
            self._rounds += 1
            self._progress.notify_all()
        time.sleep(0.002)  # Leave processor time to other processes.


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> Iterator[BackgroundBroker]:
    properties = {
        "auto.create.topics.enable": "false",
        "connections.max.idle.ms": str(IDLE_MS),
        "max.connections": str(CONNECTIONS_MAX),
        # Thousands of damaged requests come from one address.
        "connection.refused.delay.max.ms": "0",
        "socket.request.max.bytes": str(FRAME_BYTES_MAX),
        "socket.request.max.elements": "20000",
        "quota.controller.mutation.default": "1000000",
        # The neighbour has to be served also while a busy machine delays the contact with ZooKeeper.
        "zookeeper.session.timeout.ms": "60000",
    }
    (process,) = cluster_of_module.start(1, properties)
    for topic in ("neighbour", "target"):
        assert create(process, topic).error_code == ErrorCode.NONE
    yield process
    cluster_of_module.show()


@pytest.fixture(scope="module")
def neighbour(broker: BackgroundBroker) -> Iterator[Neighbour]:
    client = Neighbour(broker.port, "neighbour")
    yield client
    client.stop()


@pytest.fixture(autouse=True)
def check_broker_is_unharmed(broker: BackgroundBroker, neighbour: Neighbour) -> Iterator[None]:
    """Check after each test that the broker runs, its memory has not grown, it logged no unexpected failure,
    and the neighbour makes progress."""
    neighbour.gets_on()
    memory, log_bytes = resident_mib(broker.pid), len(broker.log)
    yield
    neighbour.gets_on()
    assert broker.running
    assert until(lambda: resident_mib(broker.pid) - memory < GROWTH_MIB), "the broker's memory has grown"
    log = broker.log[log_bytes:]
    assert "Traceback" not in log
    assert not re.search(r"^\[[^]]*\] ERROR", log, re.MULTILINE)
    assert all(line.startswith("[") for line in log.splitlines()), "a client has forged a log line"


@pytest.fixture
def client(broker: BackgroundBroker) -> Iterator[RawSocket]:
    with RawSocket(broker.port) as connection:
        yield connection


_topics = count(1)


def create(
    broker: BackgroundBroker,
    name: str,
    partitions: int = 1,
    replicas: int = 1,
    configs: dict[str, str] | None = None,
) -> CreatableTopicResult:
    topic = creatable(name, partitions, replicas)
    topic.configs = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    return create_as_said(broker, [topic])[0]


def creatable(name: str, partitions: int = 1, replicas: int = 1) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replicas, assignments=[], configs=[]
    )


def create_as_said(
    broker: BackgroundBroker, topics: list[CreatableTopic], timeout_ms: int = 60_000
) -> list[CreatableTopicResult]:
    with RawSocket(broker.port) as connection:
        response = connection.ask(CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms))
    assert response is not None, "the broker closed the connection"
    return response.topics


batch = partial(dated_batch, timestamp=int(time.time() * 1000))


def with_header(**fields: int) -> bytes:
    """A batch of two records with changed header fields and a matching checksum."""
    data = bytearray(batch(b"one", b"two"))
    header = batches.read_header(data)
    truth = {
        "attributes": header.attributes,
        "record_count": header.record_count,
        "last_offset_delta": header.last_offset_delta,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
    }
    batches.write_header(data, **{**truth, **fields})
    return bytes(data)


def with_byte(position: int, value: int, *, is_sealed: bool = False) -> bytes:
    """A batch of two records with one changed byte; if it `is_sealed`, the checksum matches."""
    data = bytearray(batch(b"one", b"two"))
    data[position] = value
    if is_sealed:
        data[17:21] = crc32c(memoryview(data)[batches.CHECKED_FROM :]).to_bytes(4, "big")
    return bytes(data)


def produce_request(
    topic: str, records: bytes, *, acks: int = 1, index: int = 0, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def produce(client: RawSocket, request: ProduceRequest) -> PartitionProduceResponse:
    response = client.ask(request, _PRODUCE_VERSION)
    assert response is not None, "the broker closed the connection"
    ((result,),) = [topic.partition_responses for topic in response.responses]
    return result


def fetch_request(
    topic: str, offset: int, *, max_bytes: int = 1 << 20, index: int = 0, times: int = 1
) -> FetchRequest:
    wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=max_bytes)
    topics = [FetchTopic(topic=topic, partitions=[wanted] * times)]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=max_bytes, topics=topics)


def resident_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    raise AssertionError(f"no process {pid}")


def open_sockets(pid: int) -> int:
    found = 0
    for entry in os.scandir(f"/proc/{pid}/fd"):
        try:
            found += os.readlink(entry.path).startswith("socket:")
        except FileNotFoundError:
            continue  # The descriptor was closed after it was listed.
    return found


def framed(body: bytes) -> bytes:
    return SIZE.pack(len(body)) + body


def until(condition: Callable[[], bool]) -> bool:
    """Wait up to `TIMEOUT_S` for the condition. Returns whether it became true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class TestFrames:
    def test_thousands_of_damaged_requests_leave_no_connection_open(self, broker: BackgroundBroker) -> None:
        # Requests between brokers are left out: the broker does not authenticate controllers, and obeys a
        # well-formed request by changing leaders.
        rng = random.Random(5)
        sockets, lines = open_sockets(broker.pid), broker.log.count("\n")
        with RawSocket(broker.port) as connection:
            versions = connection.ask(ApiVersionsRequest(), 0)
        assert versions is not None
        known = {row.api_key for row in versions.api_keys}
        frames = (
            (cls.api, version, body)  # type: ignore[attr-defined]
            for cls, version, body in Frames(seed=7)
            if not issubclass(cls, Response) and cls.api.key in known  # type: ignore[attr-defined]
        )
        sent = answered = hung_up = 0
        while sent < FRAMES:
            with RawSocket(broker.port) as connection:
                for _ in range(rng.choice((1, 2, 4))):
                    api, version, body = next(frames)
                    head = b"".join(
                        (api.key.to_bytes(2), version.to_bytes(2), sent.to_bytes(4), b"\x00\x04fuzz")
                    )
                    tags = b"\x00" if api.has_flexible_request_header(version) else b""
                    connection.send_frame(head + tags + body)
                    sent += 1
                connection.send(request_frame(ApiVersionsRequest(), 0, _LAST))
                while (frame := connection.next_frame()) is not None and frame[:4] != _LAST.to_bytes(4):
                    answered += 1
                hung_up += frame is None
        assert answered > FRAMES // 50
        assert hung_up > FRAMES // 20
        assert until(lambda: open_sockets(broker.pid) <= sockets)
        # One line per cause in 10 s, and others say how many were left out.
        assert broker.log.count("\n") - lines <= sent // 20

    def test_a_client_id_cannot_forge_a_log_line(self, broker: BackgroundBroker, client: RawSocket) -> None:
        name = b"me\n[2026-01-01 00:00:00,000] ERROR all is lost " + b"x" * 30_000
        client.send_frame(b"\x00\x12\x00\x00\x00\x00\x00\x01" + len(name).to_bytes(2) + name)
        assert client.next_frame() is not None
        client.send_frame(b"\x03\xe7\x00\x00\x00\x00\x00\x02\xff\xff")
        assert client.is_hung_up()
        assert until(lambda: "('me\\n[2026" in broker.log)
        assert max(map(len, broker.log.splitlines())) < 1000

    @pytest.mark.parametrize("size", [-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1])
    def test_a_frame_of_an_impossible_size_closes_the_connection(self, client: RawSocket, size: int) -> None:
        client.send(SIZE.pack(size))
        assert client.is_hung_up()

    @pytest.mark.parametrize(
        "frame",
        [
            b"",
            b"\x00\x12\x00",
            b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff",
            b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff",
            b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff",
            b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xffabc",
        ],
    )
    def test_a_frame_without_a_valid_request_closes_the_connection(
        self, client: RawSocket, frame: bytes
    ) -> None:
        client.send_frame(frame)
        assert client.is_hung_up()

    def test_the_log_says_why_a_connection_is_closed(self, broker: BackgroundBroker) -> None:
        """Each cause is logged at once or, up to 10 s later, with the count of those that were not logged one
        by one. The unit tests of the dispatcher and of the transport check the texts of further frames."""
        size = FRAME_BYTES_MAX + 2
        reasons = {
            SIZE.pack(size): f"it announced a request of {size} bytes; allowed are 0 to {FRAME_BYTES_MAX}",
            framed(b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff"): "it sent a request of API 999",
            framed(b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff"): "it sent version 99 of Metadata",
            framed(b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xffabc"): "a client id of 32767 bytes",
        }
        before = broker.log
        for data in reasons:
            with RawSocket(broker.port) as connection:
                connection.send(data)
                assert connection.is_hung_up()
        for reason in reasons.values():
            assert until(lambda reason=reason: broker.log.count(reason) > before.count(reason)), reason

    def test_an_unknown_version_of_api_versions_is_answered_in_version_0(self, client: RawSocket) -> None:
        client.send_frame(b"\x00\x12\x00\x63\x00\x00\x00\x07\xff\xff")
        frame = client.next_frame()
        assert frame is not None
        assert frame[:6] == b"\x00\x00\x00\x07" + ErrorCode.UNSUPPORTED_VERSION.to_bytes(2)

    def test_silent_connections_are_closed(self, broker: BackgroundBroker) -> None:
        silent = [RawSocket(broker.port) for _ in range(3)]
        for connection, begin in zip(silent, (b"", b"\x00", b"\x00\x00\x10\x00half of it"), strict=True):
            connection.send(begin)
        for connection in silent:
            with connection:
                assert connection.is_hung_up()

    def test_connections_above_the_limit_are_closed(
        self, broker: BackgroundBroker, neighbour: Neighbour
    ) -> None:
        crowd = [RawSocket(broker.port) for _ in range(2 * CONNECTIONS_MAX)]
        try:
            neighbour.gets_on()
            assert open_sockets(broker.pid) < CONNECTIONS_MAX + 20  # ports, ZooKeeper and the like
            assert crowd[-1].is_hung_up()
        finally:
            for connection in crowd:
                connection.close()
        assert until(lambda: open_sockets(broker.pid) < CONNECTIONS_MAX // 2)

    @pytest.mark.parametrize(
        ("head", "element"),
        [
            pytest.param(b"\x00\x03\x00\x08", b"\x00\x00", id="Metadata of empty names"),
            pytest.param(b"\x00\x00\x00\x08\xff\xff\x00\x01\x00\x00\x03\xe8", b"\x00" * 6, id="Produce"),
            pytest.param(b"\x00\x01\x00\x04" + b"\xff" * 4 + b"\x00" * 13, b"\x00" * 6, id="Fetch"),
        ],
    )
    def test_a_request_with_too_many_elements_closes_the_connection(
        self, broker: BackgroundBroker, client: RawSocket, head: bytes, element: bytes
    ) -> None:
        elements = 1_000_000
        body = head[:4] + b"\x00\x00\x00\x01\xff\xff" + head[4:] + SIZE.pack(elements) + element * elements
        client.send_frame(body)
        assert client.is_hung_up()
        assert until(lambda: "its request has too many elements" in broker.log)


class TestProduce:
    @pytest.mark.parametrize(
        ("records", "code"),
        [
            pytest.param(b"", ErrorCode.INVALID_RECORD, id="no batch"),
            pytest.param(batch(b"x")[:40], ErrorCode.CORRUPT_MESSAGE, id="half a header"),
            pytest.param(batch(b"x")[:-1], ErrorCode.CORRUPT_MESSAGE, id="cut off"),
            pytest.param(batch(b"x") + b"\x00", ErrorCode.CORRUPT_MESSAGE, id="a byte too many"),
            pytest.param(batch(b"x") * 2, ErrorCode.INVALID_RECORD, id="two batches"),
            pytest.param(with_byte(70, 0xEE), ErrorCode.CORRUPT_MESSAGE, id="checksum"),
            pytest.param(with_byte(16, 0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, id="magic 0"),
            pytest.param(with_byte(16, 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, id="magic 1"),
            pytest.param(with_byte(16, 9), ErrorCode.CORRUPT_MESSAGE, id="magic 9"),
            pytest.param(with_header(record_count=3), ErrorCode.INVALID_RECORD, id="count"),
            pytest.param(
                with_header(record_count=2**31 - 1, last_offset_delta=2**31 - 2),
                ErrorCode.INVALID_RECORD,
                id="more records than bytes",
            ),
            pytest.param(with_header(attributes=0x07), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, id="codec"),
            pytest.param(with_header(attributes=0x08), ErrorCode.INVALID_TIMESTAMP, id="the broker's time"),
            pytest.param(
                with_header(attributes=0x10),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                id="transactional bit",
            ),
            pytest.param(
                with_header(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0),
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                id="transactional",
            ),
            pytest.param(with_header(attributes=0x20), ErrorCode.INVALID_RECORD, id="control"),
            pytest.param(with_header(attributes=0x40), ErrorCode.INVALID_RECORD, id="delete horizon"),
            pytest.param(with_header(producer_id=-5), ErrorCode.INVALID_RECORD, id="producer id"),
            pytest.param(
                with_header(producer_id=5, producer_epoch=-1, base_sequence=0),
                ErrorCode.INVALID_RECORD,
                id="producer epoch",
            ),
            pytest.param(
                with_header(producer_id=5, producer_epoch=0, base_sequence=-2),
                ErrorCode.INVALID_RECORD,
                id="sequence",
            ),
            pytest.param(batch(b"x" * (1 << 20)), ErrorCode.MESSAGE_TOO_LARGE, id="too large"),
            pytest.param(with_header(attributes=0x01), ErrorCode.INVALID_RECORD, id="garbage under gzip"),
            pytest.param(with_byte(64, 0x01, is_sealed=True), ErrorCode.INVALID_RECORD, id="offset delta"),
            pytest.param(
                with_header(base_timestamp=2**63 - 1), ErrorCode.INVALID_TIMESTAMP, id="a time far ahead"
            ),
        ],
    )
    def test_an_invalid_batch_is_refused(self, client: RawSocket, records: bytes, code: ErrorCode) -> None:
        result = produce(client, produce_request("target", records))
        assert ErrorCode(result.error_code) is code
        assert result.error_message
        assert produce(client, produce_request("target", batch(b"good"))).error_code == ErrorCode.NONE

    @pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
    def test_a_decompression_bomb_is_refused_whatever_the_topic_allows(
        self, broker: BackgroundBroker, codec: Compression
    ) -> None:
        topic = f"bomb-{codec.name}"
        assert create(broker, topic, configs={"max.message.bytes": str(2**31 - 1)}).error_code == 0
        bomb = batch(b"\x00" * (100 << 20), compression=codec)
        with RawSocket(broker.port) as client:
            result = produce(client, produce_request(topic, bomb))
            assert ErrorCode(result.error_code) is ErrorCode.INVALID_RECORD
            assert "cannot be decompressed" in (result.error_message or "")
            assert produce(client, produce_request(topic, batch(b"good"))).base_offset == 0

    def test_batches_out_of_sequence_are_refused(self, client: RawSocket) -> None:
        wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        producer_id = client.call(wanted).producer_id

        def send(epoch: int, sequence: int) -> ErrorCode:
            records = with_header(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            return ErrorCode(produce(client, produce_request("target", records)).error_code)

        made_up_id = with_header(producer_id=1 << 40, producer_epoch=0, base_sequence=0)
        made_up = produce(client, produce_request("target", made_up_id))
        assert made_up.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        assert send(3, 0) is ErrorCode.NONE
        assert send(3, 50) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(2, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert send(4, 9) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(3, 2) is ErrorCode.NONE

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (produce_request("target", batch(b"x"), acks=5), ErrorCode.INVALID_REQUIRED_ACKS),
            (produce_request("target", batch(b"x"), acks=-2), ErrorCode.INVALID_REQUIRED_ACKS),
            (produce_request("nowhere", batch(b"x")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce_request("n" * 32_767, batch(b"x")), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce_request("target", batch(b"x"), index=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (produce_request("target", batch(b"x"), index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_an_invalid_produce_request_is_refused(
        self, client: RawSocket, request_: ProduceRequest, code: ErrorCode
    ) -> None:
        result = produce(client, request_)
        assert ErrorCode(result.error_code) is code
        assert result.error_message

    def test_an_invalid_batch_with_acks_0_closes_the_connection(self, client: RawSocket) -> None:
        client.send(request_frame(produce_request("target", b"junk", acks=0), _PRODUCE_VERSION))
        assert client.is_hung_up()


class TestRead:
    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (fetch_request("target", -1), ErrorCode.OFFSET_OUT_OF_RANGE),
            (fetch_request("target", 2**63 - 1), ErrorCode.OFFSET_OUT_OF_RANGE),
            (fetch_request("target", 0, index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (fetch_request("nowhere", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (fetch_request("neighbour", 0, max_bytes=-1), ErrorCode.NONE),
            (fetch_request("neighbour", 0, max_bytes=2**31 - 1, times=5_000), ErrorCode.NONE),
        ],
    )
    def test_a_fetch_with_extreme_fields_gets_its_error_code(
        self, client: RawSocket, request_: FetchRequest, code: ErrorCode
    ) -> None:
        response = client.ask(request_, _FETCH_VERSION)
        assert response is not None
        partitions = [data for topic in response.responses for data in topic.partitions]
        assert {ErrorCode(data.error_code) for data in partitions} == {code}

    def test_a_lookup_that_names_a_partition_a_thousand_times_is_refused(self, client: RawSocket) -> None:
        assert time_lookup(client, "neighbour", 1, times=1000) is ErrorCode.INVALID_REQUEST


def time_lookup(client: RawSocket, topic: str, timestamp: int, times: int = 1) -> ErrorCode:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted] * times)]
    )
    response = client.ask(request)
    assert response is not None, "the broker closed the connection"
    (code,) = {result.error_code for topic in response.topics for result in topic.partitions}
    return ErrorCode(code)


class TestTopics:
    @pytest.mark.parametrize("name", ["", ".", "..", "a/b", "x" * 250, "x" * 32_767, "é", "a\nb"])
    def test_an_invalid_topic_name_is_refused(self, broker: BackgroundBroker, name: str) -> None:
        result = create(broker, name)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert "Topic name is invalid: " in (result.error_message or "")

    @pytest.mark.parametrize(
        ("partitions", "replicas", "code"),
        [
            (10**9, 1, ErrorCode.INVALID_PARTITIONS),
            (0, 1, ErrorCode.INVALID_PARTITIONS),
            (-7, 1, ErrorCode.INVALID_PARTITIONS),
            (1, 2, ErrorCode.INVALID_REPLICATION_FACTOR),
            (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
            (1, -9, ErrorCode.INVALID_REPLICATION_FACTOR),
        ],
    )
    def test_invalid_counts_of_partitions_and_replicas_are_refused(
        self, broker: BackgroundBroker, partitions: int, replicas: int, code: ErrorCode
    ) -> None:
        result = create(broker, "numbers", partitions, replicas)
        assert ErrorCode(result.error_code) is code
        assert result.error_message

    @pytest.mark.parametrize(
        ("configs", "message"),
        [
            ({"retention.ms": "soon"}, "expected a whole number"),
            ({"retention.msx": "1"}, "did you mean retention.ms?"),
            ({"segment.bytes": "1"}, "expected at least 14"),
            ({"cleanup.policy": "burn"}, "expected any of"),
            ({"retention.ms": "9" * 32_767}, "Invalid value 999"),
            ({"n" * 32_767: "1"}, "Unknown topic config name: nnn"),
            ({"preallocate": "true"}, "Unknown topic config name: preallocate"),
        ],
    )
    def test_invalid_topic_settings_are_refused(
        self, broker: BackgroundBroker, configs: dict[str, str], message: str
    ) -> None:
        result = create(broker, "settings", configs=configs)
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert message in (result.error_message or "")

    def test_a_topic_or_a_setting_named_twice_is_refused(self, broker: BackgroundBroker) -> None:
        topic = creatable("twice")
        (result,) = create_as_said(broker, [topic, topic])
        assert result.error_code == ErrorCode.INVALID_REQUEST
        setting = CreatableTopicConfig(name="retention.ms", value="1")
        topic.configs = [setting, setting]
        (result,) = create_as_said(broker, [topic])
        assert result.error_code == ErrorCode.INVALID_CONFIG

    @pytest.mark.parametrize(
        "assignments", [[(0, [1]), (0, [1])], [(7, [1])], [(0, [])], [(0, [1, 1])], [(0, [99])], [(-1, [1])]]
    )
    def test_an_invalid_replica_assignment_is_refused(
        self, broker: BackgroundBroker, assignments: list[tuple[int, list[int]]]
    ) -> None:
        topic = creatable("assigned", -1, -1)
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in assignments
        ]
        (result,) = create_as_said(broker, [topic])
        assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert result.error_message

    @pytest.mark.parametrize("timeout_ms", [-1, -(2**31)])
    def test_a_creation_with_a_negative_timeout_is_answered(
        self, broker: BackgroundBroker, timeout_ms: int
    ) -> None:
        (result,) = create_as_said(broker, [creatable(f"hurried-{next(_topics)}")], timeout_ms)
        assert result.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)

    def test_deleting_missing_topics_is_refused(self, client: RawSocket) -> None:
        topics = [
            DeleteTopicState(name="nowhere", topic_id=uuid.UUID(int=0)),
            DeleteTopicState(name="", topic_id=uuid.UUID(int=0)),
            DeleteTopicState(name="n" * 32_767, topic_id=uuid.UUID(int=0)),
            DeleteTopicState(name=None, topic_id=uuid.UUID(int=5)),
        ]
        response = client.ask(DeleteTopicsRequest(topics=topics, topic_names=[], timeout_ms=10_000))
        assert response is not None
        codes = {ErrorCode(result.error_code) for result in response.responses}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}

    def test_a_null_topic_name_in_metadata_version_10_is_refused(self, client: RawSocket) -> None:
        # Version 10, one topic: its id, its null name, its tags, then the flags.
        body = b"\x02" + b"\x00" * 15 + b"\x05" + b"\x00" + b"\x00" + b"\x01\x01\x01\x00"
        client.send_frame(b"\x00\x03\x00\x0a\x00\x00\x00\x09\xff\xff\x00" + body)
        frame = client.next_frame()
        assert frame is not None
        assert ErrorCode.INVALID_REQUEST.to_bytes(2) + b"\x01" in frame
        assert client.ask(MetadataRequest(topics=[])) is not None
