"""The compiled path between sockets and handlers, against the one in Python: the same frames, errors, bytes.

Each end of a pair of connected sockets is driven by hand, without a reactor.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast_log.broker.log.disk import OsFile
from holdfast_log.broker.network import transport
from holdfast_log.broker.network.connection import ConnectionLimits, ReplySlot, ServerConnection
from holdfast_log.broker.network.framing import FRAMES_MAX, LARGE_FRAME_BYTES, FrameBuffers
from holdfast_log.broker.network.interfaces import Wire
from holdfast_log.broker.network.memory import RequestMemories, RequestMemory
from holdfast_log.broker.network.outgoing import CALLS_PER_TURN
from holdfast_log.broker.network.transport import FrameServer
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol import compiled
from holdfast_log.protocol.compiled import WIRE
from holdfast_log.protocol.frames import SIZE, FileSlice, Part, join_parts
from tests.models.wires import PEER, FakeWire

FRAME_BYTES_MAX = 400_000

needs_compiled = pytest.mark.skipif(WIRE is None, reason="protocol/_wire.c was not compiled")


class Watching:
    """What a reactor does for sockets, without calling any."""

    def __init__(self) -> None:
        self.readers: set[object] = set()
        self.writers: set[object] = set()

    def addReader(self, reader: object) -> None:
        self.readers.add(reader)

    def removeReader(self, reader: object) -> None:
        self.readers.discard(reader)

    def addWriter(self, writer: object) -> None:
        self.writers.add(writer)

    def removeWriter(self, writer: object) -> None:
        self.writers.discard(writer)


@dataclass
class Received:
    """A receiver that notes what the wire tells it."""

    frames: list[bytes] = field(default_factory=list)
    refused: int | None = None
    sent: int = 0
    frame_bytes_max: int = FRAME_BYTES_MAX
    is_holding: bool = False

    def connected(self, wire: Wire) -> None: ...

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        assert frames and not any(frame.readonly for frame in frames)
        self.frames += map(bytes, frames)

    def identified(self, principal: str) -> None:
        """Nothing to do: there is no TLS here."""

    def frame_refused(self, size: int) -> None:
        self.refused = size

    def bytes_sent(self, count: int) -> None:
        self.sent += count

    def connection_lost(self, reason: str) -> None: ...


class Pair:
    """A `FrameServer` on one end of a pair of sockets; the test is the peer."""

    def __init__(self, is_compiled: bool) -> None:
        self._is_compiled = is_compiled
        self.reactor = Watching()
        self.receiver = Received()
        own, self.peer = socket.socketpair()
        link = cast(Any, transport.FrameLink(self.receiver))
        buffers, log = FrameBuffers(), RepeatedLog(Clock())
        memories = RequestMemories(Clock(), RequestMemory(), 30_000, "", None)
        client = ("192.0.2.1", 9)
        port = cast(Any, SimpleNamespace(pacing=b"", _realPortNumber=0))
        self.server = FrameServer(buffers, memories, log, own, link, client, port, 0, self.reactor)

    def __enter__(self) -> Pair:
        self._patch = pytest.MonkeyPatch()
        if not self._is_compiled:
            self._patch.setattr(transport, "_receive_whole", None)
            self._patch.setattr(transport, "_send_parts", None)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        self.server.socket.close()
        self.peer.close()

    def receive(self, data: bytes) -> str | None:
        """Have the server receive `data`. Returns the error that ends the connection, if any."""
        position = 0
        self.peer.setblocking(False)
        while position < len(data):
            position += self.peer.send(data[position:])
            error = self.server.doRead()
            if error is not None:
                return repr(error)
            if self.receiver.refused is not None:
                return None
        error = self.server.doRead()
        return None if error is None else repr(error)

    def collect(self, count: int) -> bytes:
        """The next `count` bytes that the peer receives, while the server writes."""
        received = bytearray()
        self.peer.settimeout(60)
        while len(received) < count:
            if self.server in self.reactor.writers:
                assert self.server.doWrite() is None
            received += self.peer.recv(1 << 20)
        return bytes(received)


def outcome(is_compiled: bool, pieces: list[bytes]) -> tuple[list[bytes], int | None, list[str | None]]:
    with Pair(is_compiled) as pair:
        errors = []
        for piece in pieces:
            errors.append(pair.receive(piece))
            if pair.receiver.refused is not None:
                break
        return pair.receiver.frames, pair.receiver.refused, errors


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` in pieces of the sizes `cuts`; the last one takes the rest."""
    pieces, position = [], 0
    for size in cuts:
        pieces.append(data[position : position + size])
        position += size
    return [piece for piece in (*pieces, data[position:]) if piece]


SIZES = st.one_of(
    st.integers(0, 40), st.integers(LARGE_FRAME_BYTES - 2, LARGE_FRAME_BYTES + 2), st.just(300_000)
)
CUTS = st.lists(st.one_of(st.integers(1, 30), st.integers(1_000, 400_000)), max_size=6)


@needs_compiled
class TestReceiving:
    @settings(max_examples=60, deadline=None)
    @given(sizes=st.lists(SIZES, max_size=6), cuts=CUTS)
    def test_whole_frames_are_the_same_however_they_are_cut(self, sizes: list[int], cuts: list[int]) -> None:
        bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
        pieces = cut(b"".join(SIZE.pack(len(body)) + body for body in bodies), cuts)
        assert outcome(True, pieces) == outcome(False, pieces) == (bodies, None, [None] * len(pieces))

    @pytest.mark.parametrize("count", [FRAMES_MAX, FRAMES_MAX + 1, 5 * FRAMES_MAX])
    def test_many_small_frames_are_left_to_python(self, count: int) -> None:
        data = b"".join(SIZE.pack(1) + bytes([number % 256]) for number in range(count))
        assert outcome(True, [data]) == outcome(False, [data])
        one, other = socket.socketpair()
        with one, other:
            one.sendall(data)
            assert WIRE is not None
            received = WIRE.receive(other.fileno(), memoryview(bytearray(100_000)), 10, 1000)
        assert isinstance(received, list) == (count <= FRAMES_MAX)

    @settings(max_examples=100, deadline=None)
    @given(
        frames=st.lists(
            st.one_of(
                st.binary(max_size=30).map(lambda body: SIZE.pack(len(body)) + body),
                st.sampled_from([-1, -(2**31), FRAME_BYTES_MAX + 1, 2**31 - 1, FRAME_BYTES_MAX]).map(
                    SIZE.pack
                ),
                st.binary(max_size=9),
            ),
            max_size=5,
        ),
        cuts=CUTS,
    )
    def test_damaged_streams_give_the_same_frames_and_refusals(
        self, frames: list[bytes], cuts: list[int]
    ) -> None:
        pieces = cut(b"".join(frames), cuts)
        assert outcome(True, pieces) == outcome(False, pieces)

    @pytest.mark.parametrize("is_compiled", [True, False])
    def test_the_end_and_errors_of_the_connection_are_reported(self, is_compiled: bool) -> None:
        with Pair(is_compiled) as pair:
            assert pair.server.doRead() is None
            pair.peer.close()
            assert "ConnectionDone" in repr(pair.server.doRead())
        with Pair(is_compiled) as pair:
            os.close(pair.server.socket.detach())
            pair.server.fileno = lambda: 1 << 20  # a descriptor that is not open
            if is_compiled:
                assert "Bad file descriptor" in str(pair.server.doRead())

    def test_a_frame_after_large_ones_is_received_in_compiled_code_again(self) -> None:
        with Pair(is_compiled=True) as pair:
            assert pair.receive(SIZE.pack(100_000) + bytes(100_000)) is None
            assert not pair.server._assembler.is_fresh
            assert pair.receive(SIZE.pack(1) + b"a") is None
            assert pair.server._assembler.is_fresh
        assert [len(frame) for frame in pair.receiver.frames] == [100_000, 1]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OsFile]:
    path = tmp_path_factory.mktemp("slices") / "log"
    path.write_bytes(bytes(range(256)) * 8192)
    yield OsFile(str(path))


def parts_of(file: OsFile) -> st.SearchStrategy[list[Part]]:
    memory = st.one_of(st.binary(max_size=50), st.just(b"x" * 300_000))
    slices = st.tuples(st.integers(0, 1 << 20), st.integers(0, 1 << 20))
    each: st.SearchStrategy[Part] = st.one_of(
        memory,
        memory.map(bytearray),
        memory.map(memoryview),
        slices.map(lambda where: FileSlice(file, *where)),
    )
    return st.lists(each, max_size=6)


@needs_compiled
class TestSending:
    @settings(max_examples=60, deadline=None)
    @given(data=st.data())
    def test_what_the_peer_receives_are_the_parts_in_order(self, file: OsFile, data: st.DataObject) -> None:
        answers = data.draw(st.lists(parts_of(file), min_size=1, max_size=3))
        expected = b"".join(map(join_parts, answers))
        for is_compiled in (True, False):
            with Pair(is_compiled) as pair:
                for parts in answers:
                    before = list(parts)
                    pair.server.send(parts)
                    assert parts == before
                assert pair.collect(len(expected)) == expected
                assert pair.receiver.sent == len(expected)

    def test_more_parts_than_one_call_takes_are_sent(self) -> None:
        parts: list[Part] = [b"%d," % number for number in range(300)]
        with Pair(is_compiled=True) as pair:
            pair.server.send(parts)
            assert pair.server not in pair.reactor.writers
            assert pair.collect(len(join_parts(parts))) == join_parts(parts)

    @pytest.mark.parametrize("is_compiled", [True, False])
    def test_an_answer_of_many_short_slices_is_sent_in_several_turns(
        self, is_compiled: bool, file: OsFile
    ) -> None:
        """Each slice takes a system call: thousands would be one turn of 10 ms or more."""
        slices: list[Part] = [FileSlice(file, offset, 1) for offset in range(1000)]
        with Pair(is_compiled) as pair:
            pair.server.send(slices)
            received = pair.peer.recv(1 << 20)
            turns = [len(received)]
            while pair.server in pair.reactor.writers:
                assert pair.server.doWrite() is None
                turns.append(pair.receiver.sent - sum(turns))
                received += pair.peer.recv(1 << 20)
        assert received == join_parts(slices)
        assert max(turns) == turns[0] == CALLS_PER_TURN, turns

    def test_no_more_of_a_part_is_left_out_than_it_has(self, file: OsFile) -> None:
        assert WIRE is not None
        one, other = socket.socketpair()
        with one, other:
            for part in (b"abc", FileSlice(file, 0, 3)):
                with pytest.raises(ValueError, match="more bytes of a part"):
                    WIRE.send_parts(one.fileno(), [part], 100, 4)
                assert WIRE.send_parts(one.fileno(), [part], 100, 3) == (0, True)

    @pytest.mark.parametrize("is_compiled", [True, False])
    def test_a_peer_that_is_gone_breaks_the_connection_at_the_next_write(
        self, is_compiled: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Pair(is_compiled) as pair:
            pair.peer.close()
            pair.server.send([b"answer"])
            assert pair.server in pair.reactor.writers
            assert "ConnectionLost" in repr(pair.server.doWrite())
            assert pair.receiver.sent == 0
        assert not caplog.records

    @pytest.mark.parametrize("is_compiled", [True, False])
    def test_a_slice_of_a_truncated_file_breaks_the_connection(
        self, is_compiled: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "log").write_bytes(b"0123456789")
        short = OsFile(str(tmp_path / "log"))
        with Pair(is_compiled) as pair:
            pair.server.send([b"head", FileSlice(short, 0, 20)])
            assert pair.server in pair.reactor.writers
            assert pair.server.doWrite() is not None
            assert pair.peer.recv(100) == b"head0123456789"
        assert "only 10 of the 20" in caplog.text


@needs_compiled
class TestMemory:
    """The compiled functions keep no references, whatever they meet."""

    REPETITIONS = 100_000

    def grown(self, act: Callable[[], object], repetitions: int) -> int:
        """Number of blocks of memory that `repetitions` of `act` leave behind, after as many before them."""
        for _ in range(repetitions):
            act()
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(repetitions):
            act()
        gc.collect()
        return sys.getallocatedblocks() - before

    def test_headers_leave_nothing(self) -> None:
        flexible = frozenset({3})
        frames = [
            memoryview(data)
            for data in (
                b"\0\0\0\3\x7f\1\2\3\0\2me\0",
                b"\0\0\0\3\x7f\1\2\3\0\2me\1",
                b"\0\0\0\4\x7f\1\2\3\0\2\xff\xff\0",
                b"\0\0\0\4\x7f\1\2\3\xff\xff",
                b"short",
            )
        ]
        fields = compiled.WIRE.request_fields  # type: ignore[union-attr]
        assert self.grown(lambda: [fields(frame, flexible) for frame in frames], self.REPETITIONS // 5) < 500

    def test_frames_and_parts_leave_nothing(self, file: OsFile) -> None:
        assert WIRE is not None
        wire = WIRE
        one, other = socket.socketpair()
        scratch = memoryview(bytearray(100_000))
        frames = (SIZE.pack(3) + b"abc") * FRAMES_MAX
        parts = [frames, memoryview(b""), FileSlice(file, 0, 0)]
        left, right = one.fileno(), other.fileno()
        one.setblocking(False)
        other.setblocking(False)

        def act() -> None:
            assert wire.send_parts(left, parts, 1 << 20, 0) == (7 * FRAMES_MAX, True)
            assert len(wire.receive(right, scratch, 10, 1000)) == FRAMES_MAX
            assert wire.send_parts(left, [b"x\0\0\0\5ab"], 1 << 20, 1) == (6, True)
            assert wire.receive(right, scratch, 10, 1000) == 6
            assert wire.receive(right, scratch, 10, 1000) is None
            for broken in ([b"", 5], [FileSlice(cast(Any, None), 0, 1)]):
                with contextlib.suppress(AttributeError):
                    wire.send_parts(left, broken, 1 << 20, 0)
                    raise AssertionError("a part that is neither memory nor a slice was sent")
            with contextlib.suppress(OSError):
                wire.receive(1 << 20, scratch, 10, 1000)
                raise AssertionError("received from a descriptor that is not open")

        with one, other:
            assert self.grown(act, self.REPETITIONS // 50) < 500

    def test_requests_of_a_connection_leave_nothing(self) -> None:
        sent: list[int] = []

        class Sink(FakeWire):
            def send(self, parts: Sequence[Part]) -> None:
                sent[:] = [len(parts)]
                connection.bytes_sent(7)

        def answer(connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
            reply.send([b"<answer>"])
            with contextlib.suppress(AssertionError):
                reply.nothing()

        limits = ConnectionLimits(1000, 1 << 40, 10)
        connection = ServerConnection(1, "L", PEER, answer, limits, Clock())
        connection.connected(Sink())
        frames = [memoryview(bytearray(b"request"))]
        assert self.grown(lambda: connection.frames_received(frames), self.REPETITIONS // 2) < 500
        assert sent == [1]
        assert connection.requests == self.REPETITIONS
        assert connection.in_flight_requests == 0
