"""The fake cluster's network keeps the contract of the clients' real one (`clients.connection.network`)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Protocol

import pytest

from holdfast_log.clients.connection.network import Channel, ClientNetwork, SystemNetwork
from holdfast_log.testing.fakes.fake_broker import FakeChannel
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

WAIT_MS = 60_000


class Ground(Protocol):
    """A network, and the broker at the other end of its connections."""

    network: ClientNetwork

    def connect(self) -> Channel: ...

    def stop_listening(self) -> None: ...

    def send(self, channel: Channel, data: bytes) -> None:
        """Send `data` from the broker."""
        ...

    def end(self, channel: Channel) -> None:
        """Close the connection from the broker's side."""
        ...


class FakeGround:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.network: ClientNetwork = self.cluster

    def connect(self) -> Channel:
        return self.network.connect("broker-1", 9092)

    def stop_listening(self) -> None:
        self.cluster.brokers[1].stop()

    def send(self, channel: Channel, data: bytes) -> None:
        assert isinstance(channel, FakeChannel)
        channel.outbox += data

    def end(self, channel: Channel) -> None:
        assert isinstance(channel, FakeChannel)
        channel.cut()


class SystemGround:
    def __init__(self) -> None:
        self.network: ClientNetwork = SystemNetwork()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._address = self._listener.getsockname()
        self._ends: dict[Channel, socket.socket] = {}

    def connect(self) -> Channel:
        return self.network.connect(*self._address)

    def stop_listening(self) -> None:
        self._listener.close()

    def send(self, channel: Channel, data: bytes) -> None:
        self._end_of(channel).sendall(data)

    def end(self, channel: Channel) -> None:
        self._end_of(channel).close()

    def close(self) -> None:
        self.network.close()
        self._listener.close()
        for end in self._ends.values():
            end.close()

    def _end_of(self, channel: Channel) -> socket.socket:
        if channel not in self._ends:
            self._ends[channel] = self._listener.accept()[0]
        return self._ends[channel]


@pytest.fixture(params=["fake", "system"])
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    if request.param == "fake":
        yield FakeGround()
        return
    system = SystemGround()
    yield system
    system.close()


def connected(ground: Ground) -> Channel:
    channel = ground.connect()
    while not channel.finish_connecting():
        ground.network.wait(WAIT_MS, [channel])
    return channel


def received(ground: Ground, channel: Channel) -> bytes:
    """The next bytes received; empty at the end of the stream."""
    buffer = bytearray(100)
    while (count := channel.receive_into(memoryview(buffer))) is None:
        assert channel in ground.network.wait(WAIT_MS, [])
    return bytes(buffer[:count])


def test_a_refused_connection_fails_in_finish_connecting(ground: Ground) -> None:
    ground.stop_listening()
    channel = ground.connect()
    with pytest.raises(ConnectionRefusedError):
        while not channel.finish_connecting():
            ground.network.wait(WAIT_MS, [channel])


def test_bytes_arrive_before_the_end_of_the_stream(ground: Ground) -> None:
    channel = connected(ground)
    assert channel.receive_into(memoryview(bytearray(10))) is None
    ground.send(channel, b"some bytes")
    assert received(ground, channel) == b"some bytes"
    assert channel.receive_into(memoryview(bytearray(10))) is None
    ground.end(channel)
    assert received(ground, channel) == b""


def test_without_bytes_only_a_writing_channel_is_ready(ground: Ground) -> None:
    channel = connected(ground)
    assert ground.network.wait(WAIT_MS, [channel]) == [channel]
    assert channel.send([b"\0\0", b"\0"]) == 3
    begun_ms = ground.network.now_ms()
    assert ground.network.wait(20, []) == []
    assert ground.network.now_ms() >= begun_ms + 19


def test_a_wake_ends_only_the_next_wait(ground: Ground) -> None:
    connected(ground)
    ground.network.wake()
    begun_ms = ground.network.now_ms()
    assert ground.network.wait(WAIT_MS, []) == []
    assert ground.network.now_ms() < begun_ms + WAIT_MS
    assert ground.network.wait(20, []) == []
    assert ground.network.now_ms() >= begun_ms + 19
