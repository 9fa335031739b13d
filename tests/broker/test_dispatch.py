"""The dispatcher passes valid requests to handlers, and closes connections that exceed a limit. Its header
reader in both forms: compiled, and in Python."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import ConnectionLimits, ServerConnection
from holdfast_log.broker.network.rotation import SLICE_S, Rotation
from holdfast_log.broker.requests import dispatch
from holdfast_log.broker.requests.dispatch import CLIENT_BYTES_MAX, INTERNAL_ELEMENTS_FACTOR, Dispatcher
from holdfast_log.broker.requests.handler import ANY_ELEMENTS, Handler, RequestContext
from holdfast_log.broker.requests.times import (
    ALL_TIMED,
    LATEST_MAX,
    MAX_AGE_S,
    QUANTILES,
    TIMED_ONE_IN,
    AnsweredRequest,
    quantiles,
    recent,
)
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.compiled import COMPILED_ELEMENTS_MAX, DECODERS, ENCODERS
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import Parts, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request, encode_response
from holdfast_log.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from holdfast_log.protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from holdfast_log.protocol.schema import decode_from
from tests.models.wires import FakeWire

ELEMENTS_MAX = 4
LONG = 20_000
"""Elements of a request that takes many slices to decode."""


class Clients(Handler[MetadataRequest, MetadataResponse]):
    request = MetadataRequest
    elements_max = ANY_ELEMENTS

    def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(brokers=[], controller_id=1, topics=[])


class Counting(Clients):
    """Notes how many topics each request has."""

    def __init__(self, handled: list[int]) -> None:
        self._handled = handled

    def handle(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        self._handled.append(len(request.topics or ()))
        return super().handle(context, request)


class Brokers(Handler[StopReplicaRequest, StopReplicaResponse]):
    request = StopReplicaRequest

    def handle(self, context: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
        return StopReplicaResponse(error_code=0, partition_errors=[])

    def failed(
        self, context: RequestContext, request: StopReplicaRequest, error: BrokerError
    ) -> StopReplicaResponse:
        return StopReplicaResponse(error_code=error.code, partition_errors=[])


@pytest.fixture(autouse=True, params=["compiled", "python"])
def header_reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(dispatch, "_usual_fields", None)
    elif dispatch._usual_fields is None:
        pytest.skip("protocol/_wire.c was not compiled, or HOLDFAST_PURE_PYTHON is set")


def connect(
    *, is_broker: bool = False, elements_max: int = ELEMENTS_MAX
) -> tuple[ServerConnection, FakeWire]:
    dispatcher = Dispatcher(RepeatedLog(Clock()), elements_max)
    dispatcher.add([Clients(), Brokers()])
    wire = FakeWire()
    limits = ConnectionLimits(1 << 20, 1 << 20, 100)
    opened = ServerConnection(
        1, "PLAINTEXT", wire.peer, dispatcher.dispatch, limits, Clock(), is_broker=is_broker
    )
    opened.connected(wire)
    return opened, wire


@pytest.fixture
def connection() -> ServerConnection:
    return connect()[0]


def send(connection: ServerConnection, request: Request[Any]) -> None:
    frame = join_parts(encode_request(request, request.api.max_version, 1, "test"))[4:]
    connection.frames_received([memoryview(bytearray(frame))])


def metadata_of(topics: int) -> MetadataRequest:
    topic = MetadataRequestTopic(topic_id=uuid.UUID(int=0), name="t")
    return MetadataRequest(topics=[topic] * topics)


def stop_of(topics: int) -> StopReplicaRequest:
    topic = StopReplicaTopicState(topic_name="t", partition_states=[])
    return StopReplicaRequest(
        controller_id=1, controller_epoch=1, broker_epoch=1, topic_states=[topic] * topics
    )


def test_a_client_request_with_too_many_elements_closes_the_connection(connection: ServerConnection) -> None:
    send(connection, metadata_of(ELEMENTS_MAX))
    assert not connection.is_closed
    send(connection, metadata_of(ELEMENTS_MAX + 1))
    assert connection.close_reason is not None
    assert "its request has too many elements" in connection.close_reason
    assert f"socket.request.max.elements={ELEMENTS_MAX}" in connection.close_reason


def test_a_large_request_without_records_closes_the_connection(connection: ServerConnection) -> None:
    """Its strings would be copied in one turn of the reactor."""
    request = join_parts(encode_request(metadata_of(1), MetadataRequest.api.max_version, 1, "test"))[4:]
    for size in (CLIENT_BYTES_MAX, CLIENT_BYTES_MAX + 1):
        frame = bytearray(size)
        frame[: len(request)] = request
        connection.frames_received([memoryview(frame)])
        assert connection.is_closed == (size > CLIENT_BYTES_MAX)
    assert f"its Metadata request has {CLIENT_BYTES_MAX + 1} bytes" in str(connection.close_reason)


def test_a_large_request_of_a_broker_is_handled() -> None:
    connection, _ = connect(is_broker=True)
    request = join_parts(encode_request(stop_of(1), StopReplicaRequest.api.max_version, 1, "test"))[4:]
    connection.frames_received([memoryview(bytearray(request) + bytes(CLIENT_BYTES_MAX))])
    assert not connection.is_closed


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "it sent bytes that are not a valid request"),
        (b"\x00\x12\x00", "it sent bytes that are not a valid request"),
        (b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff", "it sent a request of API 999"),
        (b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff", "it sent version 99 of Metadata"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff", "MetadataRequest.topics: a length"),
        (b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xffabc", "a client id of 32767 bytes"),
    ],
)
def test_a_frame_without_a_valid_request_closes_the_connection_and_the_log_says_why(
    connection: ServerConnection, frame: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    connection.frames_received([memoryview(bytearray(frame))])
    assert connection.is_closed
    (record,) = caplog.records
    assert reason in record.getMessage()


def test_a_controller_request_may_have_more_elements() -> None:
    connection, _ = connect(is_broker=True)
    send(connection, stop_of(ELEMENTS_MAX * INTERNAL_ELEMENTS_FACTOR))
    assert not connection.is_closed
    send(connection, stop_of(ELEMENTS_MAX * INTERNAL_ELEMENTS_FACTOR + 1))
    assert connection.is_closed


def test_a_client_gets_an_error_for_what_is_for_brokers() -> None:
    connection, wire = connect()
    for _ in range(3):
        send(connection, stop_of(1))
    answers = [decode_response(StopReplicaRequest, 4, frame) for frame in wire.frames()]
    assert [answer.error_code for answer in answers] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 3
    assert not connection.is_closed


def test_a_client_that_sends_what_is_for_brokers_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    connection, _ = connect()
    for _ in range(3):
        send(connection, stop_of(1))
    (record,) = caplog.records
    assert "StopReplica is for brokers" in record.getMessage()


def test_a_client_has_no_more_elements_for_a_request_that_is_for_brokers() -> None:
    connection, _ = connect()
    send(connection, stop_of(ELEMENTS_MAX))
    assert not connection.is_closed
    send(connection, stop_of(ELEMENTS_MAX + 1))
    assert connection.is_closed


def test_a_connection_may_send_brokers_requests_once_its_peer_is_known_to_be_one() -> None:
    connection, wire = connect()
    send(connection, stop_of(1))
    connection.is_broker = True
    send(connection, stop_of(1))
    answers = [decode_response(StopReplicaRequest, 4, frame) for frame in wire.frames()]
    assert [answer.error_code for answer in answers] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 0]


class TestCompiled:
    """Compiled decoders and encoders, played by functions, and what falls back to Python."""

    @pytest.fixture(autouse=True)
    def tables(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        self.called: list[str] = []
        self.knows = True
        monkeypatch.setitem(DECODERS, MetadataRequest.api.key, self.decode)
        monkeypatch.setitem(ENCODERS, MetadataRequest.api.key, self.encode)
        return self.called

    def decode(self, frame: memoryview, version: int, position: int) -> MetadataRequest | None:
        self.called.append("decode")
        return decode_from(MetadataRequest, version, frame, position)[0] if self.knows else None

    def encode(self, response: Response, version: int, correlation_id: int) -> Parts | None:
        self.called.append("encode")
        return encode_response(response, version, correlation_id) if self.knows else None

    def connect(self, elements_max: int = COMPILED_ELEMENTS_MAX) -> tuple[ServerConnection, FakeWire]:
        return connect(is_broker=True, elements_max=elements_max)

    def answer(self, request: Request[Any], elements_max: int = COMPILED_ELEMENTS_MAX) -> bytes:
        connection, wire = self.connect(elements_max)
        send(connection, request)
        (frame,) = wire.frames()
        return frame

    @pytest.mark.parametrize("knows", [True, False])
    def test_the_answer_is_the_same_with_and_without_them(self, knows: bool) -> None:
        self.knows = knows
        with_them = self.answer(metadata_of(3))
        assert self.called == ["decode", "encode"]
        self.called.clear()
        DECODERS.pop(MetadataRequest.api.key), ENCODERS.pop(MetadataRequest.api.key)
        assert self.answer(metadata_of(3)) == with_them
        assert self.called == []

    def test_apis_without_them_use_the_generic_ones(self) -> None:
        assert self.answer(stop_of(2))
        assert self.called == []

    def test_long_requests_of_clients_are_decoded_in_turns_instead(self) -> None:
        names = ["x" * 30_000] * 3
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
        for is_broker in (True, False):
            connection, _ = connect(is_broker=is_broker, elements_max=COMPILED_ELEMENTS_MAX)
            self.called.clear()
            send(connection, request)
            assert ("decode" in self.called) == is_broker and connection.close_reason is None

    def test_a_lower_limit_of_elements_than_they_know_is_kept(self) -> None:
        assert self.answer(metadata_of(3), ELEMENTS_MAX)
        assert self.called == ["encode"]
        connection, _ = self.connect(ELEMENTS_MAX)
        send(connection, metadata_of(ELEMENTS_MAX + 1))
        assert "too many elements" in str(connection.close_reason)

    def test_a_malformed_request_is_refused_by_the_generic_decoder(self) -> None:
        self.knows = False
        connection, _ = self.connect()
        frame = join_parts(encode_request(metadata_of(3), MetadataRequest.api.max_version, 1, "test"))[4:-4]
        connection.frames_received([memoryview(bytearray(frame))])
        assert "not a valid request" in str(connection.close_reason)
        assert self.called == ["decode"]


class LongRequests:
    """Two connections whose long requests are decoded in turns. Each look at the clock takes a tenth of a
    slice."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.handled: list[int] = []
        dispatcher = Dispatcher(RepeatedLog(self.clock), clock_s=self.look)
        dispatcher.add([Counting(self.handled)])
        self.rotation = Rotation(self.clock)
        self.wire, self.other_wire = FakeWire(), FakeWire()
        limits = ConnectionLimits(1 << 20, 1 << 20, 100)
        self.connection, self.other = (
            ServerConnection(
                number, "P", wire.peer, dispatcher.dispatch, limits, self.clock, rotation=self.rotation
            )
            for number, wire in enumerate((self.wire, self.other_wire))
        )
        self.connection.connected(self.wire)
        self.other.connected(self.other_wire)

    def look(self) -> float:
        self.clock.rightNow += SLICE_S / 10  # type: ignore[attr-defined]
        return self.clock.seconds()

    def turns(self) -> int:
        """Take turns until none is due. Returns their number."""
        count = 0
        while due := [call for call in self.clock.calls if call.getTime() <= self.clock.seconds()]:
            self.clock.calls.remove(due[0])
            due[0].called = 1
            due[0].func()
            count += 1
        return count


def test_a_long_request_is_decoded_in_turns_and_others_go_first() -> None:
    world = LongRequests()
    send(world.connection, metadata_of(LONG))
    assert not world.handled
    send(world.connection, metadata_of(2))
    send(world.other, metadata_of(1))
    assert world.handled == [1], "the other client waits for it, or its own next request overtakes it"
    assert world.turns() > LONG / 32 / 20
    assert world.handled == [1, LONG, 2]
    assert [len(list(wire.frames())) for wire in (world.wire, world.other_wire)] == [2, 1]


def test_a_long_request_that_is_found_malformed_later_closes_the_connection() -> None:
    world = LongRequests()
    request = encode_request(metadata_of(LONG), MetadataRequest.api.max_version, 1, "test")
    world.connection.frames_received([memoryview(bytearray(join_parts(request)[4:-8]))])
    assert not world.connection.is_closed
    world.turns()
    assert "not a valid request" in str(world.connection.close_reason) and not world.handled


def test_a_client_that_goes_ends_the_decoding_of_its_request() -> None:
    world = LongRequests()
    send(world.connection, metadata_of(LONG))
    world.connection.close("gone")
    assert world.turns() <= 2
    assert not world.handled and not world.rotation.waiting


class TestTimes:
    """The times of requests, on a clock that is set by hand."""

    @pytest.fixture(autouse=True)
    def connected(self) -> None:
        self.clock = Clock()
        self.dispatcher = Dispatcher(RepeatedLog(self.clock), clock_s=self.clock.seconds)
        self.handler = Parking(self.clock)
        self.dispatcher.add([self.handler])
        self.wire = FakeWire()
        limits = ConnectionLimits(1 << 20, 1 << 20, 1)
        self.connection = ServerConnection(
            1, "PLAINTEXT", self.wire.peer, self.dispatcher.dispatch, limits, self.clock
        )
        self.connection.connected(self.wire)

    def answered(self) -> list[AnsweredRequest]:
        """The times of all answered requests, in ms."""
        (kind,) = self.dispatcher.times().values()
        return [
            AnsweredRequest(*(round(1000 * value) for value in each[:4]), each[4])
            for each in recent(kind, self.clock.seconds())
        ]

    def test_a_request_answered_at_once_has_local_time_only(self) -> None:
        self.handler.takes_s = 0.003
        send(self.connection, metadata_of(1))
        (times,) = self.answered()
        assert (times.total_s, times.local_s, times.remote_s, times.queued_s) == (3, 3, 0, 0)

    def test_a_request_that_waits_has_remote_time(self) -> None:
        self.handler.takes_s, self.handler.is_parking = 0.003, True
        send(self.connection, metadata_of(1))
        self.clock.advance(0.2)
        assert not self.dispatcher.times()
        self.handler.release()
        (times,) = self.answered()
        assert (times.total_s, times.local_s, times.remote_s, times.queued_s) == (203, 3, 200, 0)

    def test_a_request_behind_another_one_has_queue_time(self) -> None:
        self.handler.is_parking = True
        send(self.connection, metadata_of(1))
        self.clock.advance(0.05)
        send(self.connection, metadata_of(1))
        self.clock.advance(0.2)
        self.handler.is_parking, self.handler.takes_s = False, 0.001
        self.handler.release()
        first, second = self.answered()
        assert (first.total_s, first.queued_s) == (250, 0)
        assert (second.total_s, second.queued_s, second.local_s) == (201, 200, 1)

    def test_counts_and_sums_stay_when_old_times_go(self) -> None:
        self.handler.takes_s = 0.5
        requests = ALL_TIMED + TIMED_ONE_IN * LATEST_MAX
        for _ in range(requests):
            send(self.connection, metadata_of(1))
        ((times,),) = self.dispatcher.times().values()
        assert times.count == requests
        assert times.total_s == pytest.approx(0.5 * times.count)
        assert len(times.latest) == LATEST_MAX
        self.clock.advance(MAX_AGE_S + 1)
        assert recent([times], self.clock.seconds()) == []

    def test_of_frequent_requests_some_are_timed(self) -> None:
        for _ in range(ALL_TIMED + 5 * TIMED_ONE_IN):
            send(self.connection, metadata_of(1))
        ((times,),) = self.dispatcher.times().values()
        assert len(times.latest) == ALL_TIMED + 5

    def test_quantiles(self) -> None:
        assert dict(quantiles(range(1000))) == {
            "0.50": 500, "0.75": 750, "0.95": 950, "0.98": 980, "0.99": 990, "0.999": 999,
        }  # fmt: skip
        assert dict(quantiles([7.0])) == dict.fromkeys(QUANTILES, 7.0)
        assert dict(quantiles([])) == {}


class Parking(Handler[MetadataRequest, MetadataResponse]):
    """Takes `takes_s` to handle a request, and answers it then or when it is released."""

    request = MetadataRequest

    def __init__(self, clock: Clock) -> None:
        self.takes_s = 0.0
        self.is_parking = False
        self._clock = clock
        self._parked: list[Deferred[MetadataResponse]] = []

    def handle(
        self, context: RequestContext, request: MetadataRequest
    ) -> MetadataResponse | Deferred[MetadataResponse]:
        self._clock.advance(self.takes_s)
        if not self.is_parking:
            return MetadataResponse(brokers=[], controller_id=1, topics=[])
        self._parked.append(Deferred())
        return self._parked[-1]

    def release(self) -> None:
        self._parked.pop(0).callback(MetadataResponse(brokers=[], controller_id=1, topics=[]))
