"""Frames and slices of files over real loopback sockets."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.log.disk import OsFile
from holdfast_log.broker.network import transport
from holdfast_log.broker.network.connection import ConnectionLimits, FrameHandler, ReplySlot, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.memory import RequestMemory
from holdfast_log.broker.network.socket_options import SocketOptions
from holdfast_log.broker.network.tcp_network import TcpNetwork
from holdfast_log.protocol.frames import SIZE, FileSlice, Part
from tests.broker.network.served import LIMITS, Served, echo, framed
from tests.garbage import collector_off
from tests.reactor import in_thread, on_reactor, reactor, until

pytestmark = pytest.mark.usefixtures("data_path")


class Server(Served):
    """Connections on a free port, each served by one handler."""

    def __init__(
        self,
        handler: FrameHandler,
        limits: ConnectionLimits = LIMITS,
        options: SocketOptions | None = None,
        memory: RequestMemory | None = None,
    ) -> None:
        super().__init__(TcpNetwork(reactor, options, memory), handler, limits)


@contextlib.contextmanager
def serving(
    handler: FrameHandler,
    limits: ConnectionLimits = LIMITS,
    options: SocketOptions | None = None,
    memory: RequestMemory | None = None,
) -> Iterator[Server]:
    server = Server(handler, limits, options, memory)
    try:
        yield server
    finally:
        server.stop()


class Client:
    """A plain blocking socket, used from a worker thread so that the reactor runs meanwhile."""

    def __init__(self, server: Server, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(60)
        self.socket.connect((server.address.host, server.address.port))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> Deferred[None]:
        return in_thread(self.socket.sendall, data)

    async def send_each_byte(self, data: bytes) -> None:
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(data)):
            await in_thread(self.socket.sendall, data[position : position + 1])

    def receive(self, count: int) -> Deferred[bytes]:
        return in_thread(self._receive, count)

    async def receive_frame(self) -> bytes:
        (size,) = SIZE.unpack(await self.receive(SIZE.size))
        return await self.receive(size)

    def at_end(self) -> Deferred[bool]:
        """Whether the server closes the connection without sending more."""
        return in_thread(self._at_end)

    def _at_end(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            data = self.socket.recv(min(count - len(received), 1 << 20))
            if not data:
                raise EOFError(f"{len(received)} of {count} bytes, then the end")
            received += data
        return bytes(received)

    def reset(self) -> None:
        """Close so that the peer sees a broken connection, not an orderly end."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


def file_of(path: Path, data: bytes) -> OsFile:
    path.write_bytes(data)
    return OsFile(str(path))


@on_reactor
async def test_a_request_is_answered_however_its_bytes_arrive() -> None:
    with serving(echo) as server, Client(server) as client:
        await client.send_each_byte(framed(b"", b"a", b"bcd"))
        assert await client.receive(len(framed(b"", b"a", b"bcd"))) == framed(b"", b"a", b"bcd")


@pytest.mark.parametrize("closes", ["the client", "the server", "the server, which aborts"])
@on_reactor
async def test_a_closed_connection_is_freed_without_the_garbage_collector(closes: str) -> None:
    """Its buffers and queues would otherwise stay until the collector has looked at all older objects."""
    with serving(echo) as server, collector_off():
        client = Client(server)
        await client.send(framed(b"a" * 100_000, b"b"))
        await client.receive(len(framed(b"a" * 100_000, b"b")))
        connections = server.connections
        wire = weakref.ref(connections[0]._wire)
        if closes == "the client":
            client.socket.close()
        elif closes == "the server":
            connections[0].close_when_sent("a test")
        else:
            connections[0].close("a test")
        if closes != "the client":
            await client.at_end()
            client.socket.close()
        await until(lambda: connections[0]._wire is None)
        connections.clear()
        await until(lambda: wire() is None)


@on_reactor
async def test_many_requests_in_one_segment_are_answered_in_order() -> None:
    bodies = [str(number).encode() * (number % 50) for number in range(3000)]
    with serving(echo) as server, Client(server) as client:
        await client.send(framed(*bodies))
        assert await client.receive(len(framed(*bodies))) == framed(*bodies)
        assert server.connections[0].requests == 3000
        assert server.connections[0].bytes_in == server.connections[0].bytes_out == len(framed(*bodies))


@on_reactor
async def test_requests_of_mixed_sizes_arrive_whole() -> None:
    chance = random.Random(7)
    sizes = [1, 5_000_000, 40_000, 3, 300_000, 70_000, 0, 32 * 1024, 32 * 1024 - 1, 262_140, 262_144, 900_000]
    bodies = [chance.randbytes(size) for size in sizes * 2]
    with serving(echo) as server, Client(server) as client:
        sent = client.send(framed(*bodies))
        assert await client.receive(len(framed(*bodies))) == framed(*bodies)
        await sent


@on_reactor
async def test_a_frame_kept_by_its_handler_is_never_overwritten() -> None:
    kept: list[memoryview] = []

    def keep(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        kept.append(frame[10:])
        reply.send([SIZE.pack(1), b"k"])

    bodies = [bytes([number]) * 100_000 for number in range(20)]
    with serving(keep) as server, Client(server) as client:
        await client.send(framed(*bodies))
        await client.receive(5 * len(bodies))
    assert [bytes(frame) for frame in kept] == [body[10:] for body in bodies]


@on_reactor
async def test_slices_larger_than_the_socket_buffer_are_sent_whole_and_in_order(tmp_path: Path) -> None:
    data = random.Random(1).randbytes(3_000_000)
    file = file_of(tmp_path / "log", data)

    def fetch(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        parts: list[Part] = [
            b"head",
            FileSlice(file, 100, 2_500_000),
            b"middle",
            FileSlice(file, 5, 7),
            b"tail",
        ]
        reply.send([SIZE.pack(sum(map(len, parts))), *parts])

    expected = b"head" + data[100:2_500_100] + b"middle" + data[5:12] + b"tail"
    with serving(fetch) as server, Client(server) as client:
        await client.send(framed(b"x", b"y"))
        assert await client.receive_frame() == expected
        assert await client.receive_frame() == expected
        await until(lambda: server.connections[0].buffered_bytes == 0)


@on_reactor
async def test_a_slice_of_a_truncated_file_closes_only_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = file_of(tmp_path / "log", b"0123456789")

    def fetch(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        length = 20 if frame == b"too much" else 10
        reply.send([SIZE.pack(length), FileSlice(file, 0, length)])

    with serving(fetch) as server, Client(server) as client, Client(server) as neighbour:
        await client.send(framed(b"too much"))
        assert await client.receive(14) == SIZE.pack(20) + b"0123456789"
        assert await client.at_end()
        await neighbour.send(framed(b"enough"))
        assert await neighbour.receive_frame() == b"0123456789"
    assert [
        record.getMessage() for record in caplog.records if "sending a response failed" in record.getMessage()
    ]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("size", [-1, -(2**31), LIMITS.frame_bytes_max + 1, 2**31 - 1])
@on_reactor
async def test_a_frame_of_invalid_size_closes_the_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(echo) as server, Client(server) as client, Client(server) as neighbour:
        await client.send(framed(b"fine") + SIZE.pack(size) + b"what follows")
        assert await client.receive_frame() == b"fine"
        assert await client.at_end()
        assert server.connections[0].is_closed
        await neighbour.send(framed(b"still here"))
        assert await neighbour.receive_frame() == b"still here"
    (record,) = caplog.records
    assert (
        f"announced a request of {size} bytes; allowed are 0 to {LIMITS.frame_bytes_max}"
        in record.getMessage()
    )


@on_reactor
async def test_the_largest_frame_allowed_is_served() -> None:
    body = bytes(LIMITS.frame_bytes_max)
    with serving(echo) as server, Client(server) as client:
        sent = client.send(framed(body))
        assert await client.receive_frame() == body
        await sent


@on_reactor
async def test_a_client_that_does_not_read_occupies_no_more_than_its_budget() -> None:
    answer = [SIZE.pack(100_000), bytes(100_000)]
    options = SocketOptions(send_buffer_bytes=32 * 1024, receive_buffer_bytes=32 * 1024)
    handled = 0
    most_buffered = 0

    def fetch(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        nonlocal handled, most_buffered
        handled += 1
        reply.send(answer)
        most_buffered = max(most_buffered, connection.buffered_bytes)

    requests = 2_000
    with serving(fetch, options=options) as server, Client(server, 32 * 1024) as client:
        sent = client.send(framed(*[bytes(1000)] * requests))
        await until(lambda: bool(server.connections) and server.connections[0].is_paused)
        with Client(server) as neighbour:
            await neighbour.send(framed(b"x"))
            assert len(await neighbour.receive_frame()) == 100_000
        slow = server.connections[0]
        assert slow.requests < requests // 10
        assert slow.bytes_in < requests * 1000 // 2
        assert await client.receive(requests * 100_004)  # the client reads all pending responses
        await sent
        assert slow.requests == requests
    assert most_buffered <= LIMITS.buffered_bytes_max + 101_004


@on_reactor
async def test_a_paused_connection_is_watched_until_something_arrives() -> None:
    received: list[bytes] = []

    def take(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        received.append(bytes(frame))
        echo(connection, frame, reply)

    with serving(take) as server, Client(server) as client:
        await client.send(framed(b"1"))
        await client.receive_frame()
        wire: Any = server.connections[0]._wire

        wire.pause()
        assert wire in reactor.getReaders()
        await client.send(framed(b"2"))
        await until(lambda: wire not in reactor.getReaders())
        assert received == [b"1"]

        wire.resume()
        assert await client.receive_frame() == b"2"
        wire.pause()
        wire.resume()
        await client.send(framed(b"3"))
        assert await client.receive_frame() == b"3"


@on_reactor
async def test_responses_given_out_of_order_are_sent_in_order() -> None:
    pending: list[tuple[bytes, ReplySlot]] = []

    def collect(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        pending.append((bytes(frame), reply))

    with serving(collect) as server, Client(server) as client:
        await client.send(framed(b"1", b"2", b"3", b"4"))
        await until(lambda: len(pending) == 4)
        for position in (3, 1, 0):
            body, reply = pending[position]
            reply.send([framed(body)])
        pending[2][1].nothing()
        assert await client.receive(len(framed(b"1", b"2", b"4"))) == framed(b"1", b"2", b"4")


@on_reactor
async def test_a_peer_that_disconnects_within_a_request_is_removed() -> None:
    for leave in (Client.reset, lambda client: client.socket.close()):
        with serving(echo) as server, Client(server) as client:
            await client.send(SIZE.pack(1_000_000) + b"only the start")
            await until(lambda server=server: bool(server.connections))
            leave(client)
            await until(lambda server=server: server.connections[0].is_closed)
            assert server.connections[0].requests == 0


@on_reactor
async def test_a_peer_that_disconnects_within_a_response_is_removed(tmp_path: Path) -> None:
    file = file_of(tmp_path / "log", bytes(20_000_000))

    def fetch(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([SIZE.pack(20_000_000), FileSlice(file, 0, 20_000_000)])

    with serving(fetch) as server, Client(server) as client:
        await client.send(framed(b"x"))
        await client.receive(1000)
        client.reset()
        await until(lambda: server.connections[0].is_closed)
        assert server.connections[0].buffered_bytes == 0


@on_reactor
async def test_a_severed_connection_handles_none_of_its_queued_requests() -> None:
    handled: list[bytes] = []

    def sever_at_3(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        handled.append(bytes(frame))
        reply.send([framed(bytes(frame))])
        if frame == b"3":
            connection.close("fenced")

    with serving(sever_at_3) as server, Client(server) as client:
        await client.send(framed(*[b"%d" % number for number in range(10)]))
        assert await client.at_end()
        assert server.connections[0].close_reason == "fenced"
    assert handled == [b"0", b"1", b"2", b"3"]


@on_reactor
async def test_responses_sent_before_an_orderly_close_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_LINGER_S", 3600)  # longer than the test: not the cause of the close
    file = file_of(tmp_path / "log", bytes(10_000_000))

    def answer_and_close(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([SIZE.pack(10_000_000), FileSlice(file, 0, 10_000_000)])
        connection.close_when_sent("authentication failed")

    with serving(answer_and_close) as server, Client(server) as client:
        await client.send(framed(b"x", b"never handled"))
        assert await client.receive_frame() == bytes(10_000_000)
        assert await client.at_end()
        assert server.connections[0].requests == 1


@on_reactor
async def test_a_closing_connection_is_closed_although_its_peer_never_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_LINGER_S", 0.01)
    file = file_of(tmp_path / "log", bytes(20_000_000))
    lost: list[str] = []

    def answer_and_close(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        connection.connection_lost = lost.append  # type: ignore[method-assign]
        reply.send([SIZE.pack(20_000_000), FileSlice(file, 0, 20_000_000)])
        connection.close_when_sent("stopping")

    with serving(answer_and_close) as server, Client(server) as client:
        await client.send(framed(b"x"))
        await until(lambda: bool(lost))


@on_reactor
async def test_a_busy_connection_yields_to_other_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_TURN_BYTES", 100_000)
    handled: list[bytes] = []

    def handle(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        if not handled:
            reactor.callLater(0, handled.append, b"other call")
        handled.append(bytes(frame[:1]))
        reply.nothing()

    options = SocketOptions(receive_buffer_bytes=1 << 20)
    with serving(handle, options=options) as server, Client(server) as client:
        client.socket.sendall(framed(*[bytes(50_000)] * 6))  # all received before the server first reads
        await until(lambda: len(handled) == 7)
    assert handled[-1] != b"other call"


@on_reactor
async def test_a_crowd_of_new_connections_yields_to_other_calls() -> None:
    accepted = [0]  # in each turn of the reactor

    def accept(peer: Address) -> None:
        if accepted[-1] == 0:
            reactor.callLater(0, accepted.append, 0)
        accepted[-1] += 1

    port = TcpNetwork(reactor).listen("127.0.0.1", 0, accept)
    with contextlib.ExitStack() as crowd:
        for _ in range(40):
            crowd.enter_context(socket.create_connection((port.address.host, port.address.port)))
        await until(lambda: sum(accepted) == 40)
    port.close()
    assert max(accepted) == transport._TURN_ACCEPTS


@on_reactor
async def test_descriptors_and_memory_do_not_leak() -> None:
    with serving(echo) as server:

        async def visit() -> None:
            with Client(server) as client:
                body = os.urandom(50_000)
                await client.send(framed(body))
                assert await client.receive_frame() == body
            await until(lambda: server.connections[-1].is_closed)

        await visit()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(50):
            await visit()
        await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


@on_reactor
async def test_listening_on_a_port_in_use_raises_an_os_error() -> None:
    with serving(echo) as server, pytest.raises(OSError, match=str(server.address.port)):
        TcpNetwork(reactor).listen("127.0.0.1", server.address.port, lambda peer: None)


class TestMemoryOfAll:
    """`queued.max.request.bytes`: maximum bytes of incoming requests of all connections together."""

    SIZE = 1024 * 1024

    def size_of(self, frame: memoryview) -> bytes:
        return SIZE.pack(SIZE.size) + SIZE.pack(len(frame))

    def handle(self, connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        reply.send([self.size_of(frame)])

    @on_reactor
    async def test_a_large_request_waits_for_free_memory(self) -> None:
        memory = RequestMemory(self.SIZE)
        request = framed(bytes(self.SIZE))
        with serving(self.handle, memory=memory) as server, Client(server) as slow, Client(server) as other:
            await slow.send(request[:300_000])
            await until(lambda: memory.lent_bytes >= 300_000)
            sent = other.send(request)
            await until(lambda: memory.waiting == 1)  # It has received what there is memory for.
            assert server.connections[1].requests == 0
            await slow.send(request[300_000:])
            for client in (slow, other):
                assert SIZE.unpack(await client.receive_frame()) == (self.SIZE,)
            await sent
            await until(lambda: memory.lent_bytes == 0)

    @on_reactor
    async def test_small_requests_pass_while_a_large_one_waits(self) -> None:
        memory = RequestMemory(self.SIZE)
        with serving(self.handle, memory=memory) as server, Client(server) as slow, Client(server) as other:
            await slow.send(framed(bytes(self.SIZE))[:300_000])
            await until(lambda: memory.lent_bytes >= 300_000)
            await other.send(framed(b"small"))
            assert SIZE.unpack(await other.receive_frame()) == (5,)

    @on_reactor
    async def test_a_closed_connection_frees_its_memory_and_its_place_in_the_queue(self) -> None:
        memory = RequestMemory(self.SIZE)
        request = framed(bytes(self.SIZE))
        with (
            serving(self.handle, memory=memory) as server,
            Client(server) as first,
            Client(server) as second,
            Client(server) as third,
        ):
            await first.send(request[:300_000])
            await until(lambda: memory.lent_bytes >= 300_000)
            await second.send(request[:600_000])
            await until(lambda: memory.lent_bytes == self.SIZE)
            await third.send(request[:300_000])
            await until(lambda: memory.waiting == 2)
            server.connections[1].close("closed by the test")
            await until(lambda: memory.waiting == 0)
            first.reset()
            await third.send(request[300_000:])
            assert SIZE.unpack(await third.receive_frame()) == (self.SIZE,)

    @on_reactor
    async def test_requests_not_handled_yet_count_towards_the_memory_limit(self) -> None:
        memory = RequestMemory(2 * self.SIZE)
        request = framed(bytes(self.SIZE))
        with serving(self.handle, memory=memory) as server, Client(server) as client:
            await until(lambda: len(server.connections) == 1)
            server.connections[0].mute(60_000)
            server.connections[0]._wire.resume()  # type: ignore[union-attr]
            sent = client.send(request)
            await until(lambda: server.connections[0].is_holding)
            assert memory.lent_bytes == self.SIZE
            server.connections[0].unmute()
            assert SIZE.unpack(await client.receive_frame()) == (self.SIZE,)
            await sent
            assert memory.lent_bytes == 0
