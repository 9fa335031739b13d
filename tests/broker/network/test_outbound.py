"""Requests from broker to broker: in order, pipelined, failed when the connection fails."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.network.connection import ConnectionLimits, ReplySlot, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.outbound import (
    BrokerChannel,
    ChannelFull,
    ChannelLost,
    ChannelSettings,
    ChannelTimeout,
)
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_request_header, encode_response
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast_log.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast_log.protocol.schema import MalformedMessage
from tests.models.wires import Attempt, FakeNetwork
from tests.reactor import on_reactor, reactor, until

HERE = Address("broker1", 9092)
SETTINGS = ChannelSettings("broker-0", request_timeout_ms=1000, backoff_ms=125, backoff_ms_max=500)
PATIENT = replace(SETTINGS, request_timeout_ms=120_000, connect_timeout_ms=120_000)
"""For real connections on a busy machine."""


class World:
    def __init__(self, settings: ChannelSettings = SETTINGS) -> None:
        self.clock = Clock()
        self.network = FakeNetwork()
        self.channel = BrokerChannel(HERE, self.network, self.clock, lambda: 0.0, settings)
        self.outcomes: dict[str, Any] = {}

    def send(self, name: str, timeout_ms: int | None = None) -> Deferred[ApiVersionsResponse]:
        """Send a request that carries `name`, and record its outcome."""
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
        answer = self.channel.send(request, timeout_ms=timeout_ms)
        answer.addCallbacks(
            lambda response: self.outcomes.__setitem__(name, response.throttle_time_ms),
            lambda failure: self.outcomes.__setitem__(name, failure.value),
        )
        return answer

    @property
    def attempt(self) -> Attempt:
        return self.network.attempts[-1]

    def connect(self) -> None:
        self.attempt.receiver.connected(self.attempt.wire)

    def answer(self, correlation_id: int, throttle_time_ms: int) -> None:
        response = ApiVersionsResponse(error_code=0, api_keys=[], throttle_time_ms=throttle_time_ms)
        data = join_parts(encode_response(response, 4, correlation_id))
        self.attempt.receiver.frames_received([memoryview(bytearray(data))[SIZE.size :]])

    def requests_sent(self) -> list[int]:
        """The correlation ids sent on the current connection."""
        return [decode_request_header(data[SIZE.size :])[0].correlation_id for data in self.attempt.wire.sent]


def test_a_channel_connects_on_demand_and_pipelines_requests_in_order() -> None:
    world = World()
    assert world.network.attempts == []
    world.send("a")
    world.send("b")
    assert (world.attempt.host, world.attempt.port) == ("broker1", 9092)
    assert len(world.network.attempts) == 1
    world.connect()
    world.send("c")
    assert world.requests_sent() == [0, 1, 2]
    world.answer(0, 10)
    world.answer(1, 11)
    assert world.outcomes == {"a": 10, "b": 11}
    world.answer(2, 12)
    assert world.outcomes["c"] == 12
    assert world.channel.unanswered_bytes == 0
    assert not world.clock.getDelayedCalls()


def test_a_lost_connection_fails_unanswered_requests_and_later_ones_wait() -> None:
    world = World()
    world.send("a")
    world.connect()
    world.attempt.receiver.connection_lost("the peer left")
    assert isinstance(world.outcomes["a"], ChannelLost)
    assert "the peer left" in str(world.outcomes["a"])
    world.send("b")
    assert len(world.network.attempts) == 1
    world.clock.advance(0.125)
    assert len(world.network.attempts) == 2
    world.connect()
    world.answer(1, 5)
    assert world.outcomes["b"] == 5


def test_the_reconnect_pause_grows_to_its_maximum_and_a_response_resets_it() -> None:
    world = World()
    pauses: list[float] = []
    for number in range(5):
        world.send(str(number), timeout_ms=10_000)
        started = world.clock.seconds()
        while len(world.network.attempts) == number:
            world.clock.advance(0.0625)
        pauses.append(world.clock.seconds() - started)
        world.attempt.receiver.connection_lost("refused")
    assert pauses == [0.0, 0.125, 0.25, 0.5, 0.5]
    world.send("x", timeout_ms=10_000)
    world.clock.advance(0.5)
    world.connect()
    world.answer(5, 1)
    world.attempt.receiver.connection_lost("the peer left")
    attempts = len(world.network.attempts)
    world.send("y")
    world.clock.advance(0.125)
    assert len(world.network.attempts) == attempts + 1


def test_a_channel_without_requests_does_not_connect() -> None:
    world = World()
    world.send("a")
    world.attempt.receiver.connection_lost("refused")
    world.clock.advance(10)
    assert len(world.network.attempts) == 1


def test_a_request_not_answered_within_its_timeout_closes_the_connection() -> None:
    world = World()
    world.send("slow", timeout_ms=500)
    world.send("behind")
    world.connect()
    world.clock.advance(0.5)
    assert isinstance(world.outcomes["slow"], ChannelTimeout)
    assert isinstance(world.outcomes["behind"], ChannelLost)
    assert world.attempt.wire.is_aborted
    world.attempt.receiver.frames_received([memoryview(b"\0\0\0\0")])
    world.attempt.receiver.connection_lost("aborted")
    world.send("next")
    assert len(world.network.attempts) == 2
    world.connect()
    world.answer(2, 9)
    assert world.outcomes["next"] == 9


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\7rest", b"\0\0\0\0", b"\0\0\0\0\0\0\xff\xff"])
def test_an_invalid_response_closes_the_connection(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.send("a")
    world.send("b")
    world.connect()
    world.attempt.receiver.frames_received([memoryview(frame)])
    assert world.attempt.wire.is_aborted
    assert isinstance(world.outcomes["a"], ChannelLost | MalformedMessage)
    assert isinstance(world.outcomes["b"], ChannelLost)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_change_of_address_drops_the_old_connection_and_uses_the_new_at_once() -> None:
    world = World()
    world.send("a")
    world.connect()
    old = world.attempt
    world.channel.move(Address("broker1", 9092))
    assert not old.wire.is_aborted
    world.channel.move(Address("broker1", 9999))
    assert old.wire.is_aborted
    assert isinstance(world.outcomes["a"], ChannelLost)
    world.send("b")
    assert world.attempt.port == 9999
    old.receiver.connection_lost("aborted")
    world.connect()
    world.answer(1, 3)
    assert world.outcomes["b"] == 3


def test_a_connection_established_after_close_is_dropped() -> None:
    world = World()
    world.send("a")
    early = world.attempt
    world.channel.close()
    early.receiver.connected(early.wire)
    assert early.wire.is_aborted
    world.send("b")
    assert isinstance(world.outcomes["b"], ChannelLost)
    assert not world.clock.getDelayedCalls()


def test_requests_above_the_limit_of_unanswered_bytes_are_refused() -> None:
    world = World(ChannelSettings("broker-0", unanswered_bytes_max=100))
    world.send("a" * 200)
    world.send("b")
    assert isinstance(world.outcomes["b"], ChannelFull)
    world.connect()
    world.answer(0, 1)
    world.send("c")
    assert world.requests_sent() == [0, 1]


def test_the_response_to_a_cancelled_request_is_skipped() -> None:
    world = World()
    answer = world.send("a")
    world.send("b")
    world.connect()
    answer.cancel()
    world.answer(0, 1)
    world.answer(1, 2)
    assert world.outcomes["b"] == 2


class Fetches:
    """A broker that answers every Fetch with the same records."""

    def __init__(self, records: bytes) -> None:
        self.connections: list[ServerConnection] = []
        self._records = records
        self.port = TcpNetwork(reactor).listen("127.0.0.1", 0, self._accept)

    def _accept(self, peer: Address) -> ServerConnection:
        limits = ConnectionLimits(1 << 20, 1 << 20, 100)
        self.connections.append(ServerConnection(1, "L", peer, self._handle, limits, reactor))
        return self.connections[-1]

    def _handle(self, connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        header, _ = decode_request_header(frame)
        partition = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=self._records)
        topic = FetchableTopicResponse(topic="t", partitions=[partition])
        response = FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])
        reply.send(encode_response(response, header.api_version, header.correlation_id))


@on_reactor
async def test_large_fetch_responses_arrive_over_a_real_connection() -> None:
    records = bytes(range(256)) * 20_000
    broker = Fetches(records)
    channel = BrokerChannel(broker.port.address, TcpNetwork(reactor), reactor, lambda: 0.5, PATIENT)
    request = FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=1, topics=[], forgotten_topics_data=[])
    answers = [channel.send(request, 12) for _ in range(5)]
    responses = [await answer for answer in answers]
    for response in responses:
        received = response.responses[0].partitions[0].records
        assert isinstance(received, memoryview)
        assert received == records
    broker.connections[0].close("the leader is gone")
    await until(lambda: not channel.is_connected)
    channel.close()
    broker.port.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@on_reactor
async def test_connecting_to_an_absent_broker_fails(host: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # Nobody listens, and no other program can take the port.
        address = Address(host, held.getsockname()[1])
        channel = BrokerChannel(address, TcpNetwork(reactor), reactor, lambda: 0.5, PATIENT)
        with pytest.raises(ChannelLost, match="refused"):
            await channel.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        channel.close()


@on_reactor
async def test_every_address_of_a_host_name_is_tried() -> None:
    """A name may have IPv4 and IPv6 addresses while the broker listens at only one of them."""
    broker = Fetches(b"")
    asked = []

    def addresses_of(host: str) -> Deferred[Sequence[str]]:
        asked.append(host)
        return succeed(["::1", "127.0.0.2", "127.0.0.1"])

    network = TcpNetwork(reactor, addresses_of=addresses_of)
    address = Address("broker.example", broker.port.address.port)
    channel = BrokerChannel(address, network, reactor, lambda: 0.5, PATIENT)
    request = FetchRequest(replica_id=1, max_wait_ms=0, min_bytes=1, topics=[], forgotten_topics_data=[])
    assert (await channel.send(request, 12)).responses
    assert asked == ["broker.example"]
    channel.close()
    broker.port.close()


@on_reactor
async def test_connecting_to_an_unknown_host_name_fails() -> None:
    network = TcpNetwork(reactor, addresses_of=lambda host: succeed([]))
    channel = BrokerChannel(Address("broker.example", 9), network, reactor, lambda: 0.5, PATIENT)
    with pytest.raises(ChannelLost, match=r"broker\.example has no address"):
        await channel.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    channel.close()


@on_reactor
async def test_a_host_name_not_resolved_within_the_timeout_fails() -> None:
    network = TcpNetwork(reactor, addresses_of=lambda host: Deferred())
    settings = ChannelSettings("broker-1", connect_timeout_ms=50)
    channel = BrokerChannel(Address("broker.example", 9), network, reactor, lambda: 0.5, settings)
    with pytest.raises(ChannelLost, match="resolving the host name"):
        await channel.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    channel.close()
