"""The request memory shared by all connections: which requests get room, which wait, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock

from holdfast_log.broker.network.framing import SCRATCH_BYTES, FrameAssembler, FrameBuffers
from holdfast_log.broker.network.memory import NO_LIMIT, IncompleteFrames, RequestMemories, RequestMemory
from holdfast_log.protocol.frames import SIZE


class Line:
    """Borrowers by name, and the grants made after a wait."""

    def __init__(self, bytes_max: int) -> None:
        self.memory = RequestMemory(bytes_max)
        self.granted: list[str] = []
        self.calls = {name: lambda name=name: self.granted.append(name) for name in "abcdef"}

    def borrow(self, name: str, size: int) -> bool:
        return self.memory.borrow(size, self.calls[name])


def test_a_request_that_fits_is_granted_at_once() -> None:
    line = Line(100)
    assert line.borrow("a", 60)
    assert line.borrow("b", 40)
    assert not line.borrow("c", 1)
    assert line.memory.lent_bytes == 100


def test_requests_are_granted_in_order() -> None:
    line = Line(100)
    line.borrow("a", 100)
    assert not line.borrow("b", 80)
    assert not line.borrow("c", 30)
    assert not line.borrow("d", 10)
    line.memory.give_back(100)
    assert line.granted == ["b"]
    line.memory.give_back(80)
    assert line.granted == ["b", "c", "d"]


def test_a_small_request_does_not_overtake_a_large_one() -> None:
    line = Line(100)
    line.borrow("a", 50)
    assert not line.borrow("b", 80)
    assert not line.borrow("c", 10)


def test_a_request_above_the_limit_is_granted_when_alone() -> None:
    line = Line(100)
    assert line.borrow("a", 10)
    assert not line.borrow("b", 500)
    line.memory.give_back(10)
    assert line.granted == ["b"]
    assert not line.borrow("c", 10)
    line.memory.give_back(500)
    assert line.granted == ["b", "c"]


def test_a_request_that_leaves_the_queue_blocks_no_other() -> None:
    line = Line(100)
    line.borrow("a", 50)
    line.borrow("b", 80)
    line.borrow("c", 10)
    line.memory.leave(line.calls["b"])
    assert line.granted == ["c"]
    assert line.memory.waiting == 0


def test_without_a_limit_no_request_waits() -> None:
    line = Line(NO_LIMIT)
    assert all(line.borrow(name, 1 << 40) for name in "abc")


@given(st.lists(st.integers(1, 150), max_size=30))
def test_all_requests_are_granted_in_order_within_the_limit(sizes: list[int]) -> None:
    memory = RequestMemory(100)
    served: list[int] = []
    held: list[int] = []
    for number, size in enumerate(sizes):
        # Each borrower holds its grant until it is given back below.
        def granted(number: int = number, size: int = size) -> None:
            served.append(number)
            held.append(size)

        if memory.borrow(size, granted):
            granted()
    while held:
        assert memory.lent_bytes == sum(held)
        assert memory.lent_bytes <= 100 or len(held) == 1
        memory.give_back(held.pop(0))
    assert served == list(range(len(sizes)))
    assert memory.lent_bytes == memory.waiting == 0


class Frame:
    """A frame that is being received."""

    def __init__(self, memory: RequestMemory, borrowed: int) -> None:
        self.memory = memory
        self.borrowed = borrowed
        self.reason = ""
        self.is_held = False
        memory.borrow(borrowed, lambda: None)

    def hurry(self) -> None: ...

    def give_up(self, reason: str) -> None:
        self.reason = reason
        self.memory.give_back(self.borrowed)


def test_a_request_that_is_never_complete_ends_at_its_deadline() -> None:
    clock, memory = Clock(), RequestMemory(100)
    incomplete = IncompleteFrames(clock, memory, timeout_ms=30_000)
    frame, whole = Frame(memory, 10), Frame(memory, 10)
    incomplete.begin(frame)
    incomplete.begin(whole)
    incomplete.end(whole)
    clock.pump([1.0] * 29)
    assert not frame.reason
    clock.pump([1.0] * 3)
    assert "30000 ms" in frame.reason
    assert not whole.reason
    clock.advance(1)
    assert not clock.getDelayedCalls()


def test_whoever_waits_gets_the_memory_of_the_largest_incomplete_request() -> None:
    clock, memory = Clock(), RequestMemory(100)
    incomplete = IncompleteFrames(clock, memory, timeout_ms=30_000)
    small, large = Frame(memory, 30), Frame(memory, 70)
    for frame in (small, large):
        incomplete.begin(frame)
    granted: list[bool] = []
    assert not memory.borrow(50, lambda: granted.append(True))
    clock.pump([1.0] * 4)
    assert granted
    assert large.reason and not small.reason


def announced(memory: RequestMemory, size: int, sent: int) -> FrameAssembler:
    """A connection that has announced `size` bytes and has sent `sent`."""
    assembler = FrameAssembler(FrameBuffers(), memory)
    data = SIZE.pack(size) + bytes(sent)
    while data:
        target = assembler.target()
        count = min(len(target), len(data))
        target[:count] = data[:count]
        data = data[count:]
        assembler.received(count, 1 << 30)
    return assembler


def test_memory_is_charged_for_what_was_received_not_for_what_was_announced() -> None:
    memory = RequestMemory(256 << 20)
    for _ in range(3):
        announced(memory, 100_000_000, 36_000)
    assert memory.lent_bytes <= 3 << 20
    assert memory.borrow(64 << 20, lambda: None)


@pytest.mark.parametrize("sent", [300_000, 3_000_000, 50_000_000])
def test_the_memory_is_at_most_twice_what_was_received(sent: int) -> None:
    memory = RequestMemory(256 << 20)
    announced(memory, 100_000_000, sent)
    assert sent <= memory.lent_bytes <= 2 * sent + SCRATCH_BYTES


def test_brokers_do_not_wait_behind_clients() -> None:
    clients, brokers = RequestMemory(10), RequestMemory(10)
    memories = RequestMemories(Clock(), clients, 30_000, "BROKERS", brokers)
    assert memories.of("BROKERS")[0] is brokers
    assert memories.of("PLAINTEXT")[0] is clients
    assert RequestMemories(Clock(), clients, 30_000).of("BROKERS")[0] is clients
