"""Frames are found however the bytes are split, and unreferenced buffers are reused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast_log.broker.network.framing import (
    FRAMES_MAX,
    LARGE_FRAME_BYTES,
    FrameAssembler,
    FrameBuffers,
    FrameRefused,
)
from holdfast_log.protocol.frames import SIZE

LIMIT = 10 * 1024 * 1024


def feed(assembler: FrameAssembler, data: bytes, cuts: list[int] | None = None) -> list[bytes]:
    """The frames found when `data` arrives in pieces of the sizes `cuts`, repeated, or of maximum size."""
    frames: list[bytes] = []
    position = turn = 0
    while position < len(data):
        target = assembler.target()
        size = len(target) if not cuts else min(len(target), cuts[turn % len(cuts)])
        piece = data[position : position + size]
        target[: len(piece)] = piece
        found = assembler.received(len(piece), LIMIT)
        frames += map(bytes, found)
        while assembler.rest is not None:
            assert len(found) == FRAMES_MAX
            found = assembler.next_frames(LIMIT)
            assert len(found) <= FRAMES_MAX
            frames += map(bytes, found)
        position += len(piece)
        turn += 1
    return frames


def framed(bodies: list[bytes]) -> bytes:
    return b"".join(SIZE.pack(len(body)) + body for body in bodies)


@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 40), st.integers(LARGE_FRAME_BYTES - 2, LARGE_FRAME_BYTES + 2), st.just(300_000)
        ),
        max_size=8,
    ),
    cuts=st.lists(st.one_of(st.integers(1, 9), st.integers(1_000, 400_000)), max_size=4),
)
def test_frames_split_at_any_bytes_are_assembled_unchanged(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    if cuts and max(cuts) < 1000:
        cuts.append(50_000)
    assert feed(FrameAssembler(FrameBuffers()), framed(bodies), cuts) == bodies


def test_two_connections_share_free_buffers() -> None:
    buffers = FrameBuffers()
    one, other = FrameAssembler(buffers), FrameAssembler(buffers)
    assert feed(one, SIZE.pack(6) + b"on") == []
    assert feed(other, SIZE.pack(5) + b"oth") == []
    assert feed(one, b"enes") == [b"onenes"]
    assert feed(other, b"er") == [b"other"]


@pytest.mark.parametrize("size", [-1, LIMIT + 1])
def test_frames_before_one_of_invalid_size_are_delivered(size: int) -> None:
    assembler = FrameAssembler(FrameBuffers())
    data = framed([b"before"]) + SIZE.pack(size)
    assembler.target()[: len(data)] = data
    with pytest.raises(FrameRefused) as caught:
        assembler.received(len(data), LIMIT)
    assert caught.value.size == size
    assert [bytes(frame) for frame in caught.value.frames] == [b"before"]


def test_a_buffer_is_reused_only_without_remaining_views() -> None:
    buffers = FrameBuffers()
    frame = buffers.take(100_000)
    frame[:5] = b"first"
    records = frame[2:50][1:3]
    del frame
    other = buffers.take(100_000)
    other[:5] = b"other"
    assert bytes(records) == b"st"
    kept = buffers.kept_bytes
    del records, other
    for _ in range(100):
        buffers.take(100_000)
    assert buffers.kept_bytes == kept


def test_frames_are_writable() -> None:
    assembler = FrameAssembler(FrameBuffers())
    for body in (b"small", bytes(LARGE_FRAME_BYTES)):
        data = framed([body])
        target = assembler.target()
        count = min(len(target), len(data))
        target[:count] = data[:count]
        (frame,) = assembler.received(count, LIMIT)
        frame[0] = 7
        assert frame[0] == 7


def test_free_buffers_above_the_limit_are_dropped() -> None:
    buffers = FrameBuffers(keep_bytes=1_000_000)
    held = [buffers.take(100_000) for _ in range(30)]
    assert buffers.kept_bytes <= 1_000_000
    before = buffers.kept_bytes
    del held
    buffers.take(700_000)
    assert buffers.kept_bytes <= 1_000_000
    assert buffers.kept_bytes != before


@given(size=st.integers(LARGE_FRAME_BYTES, 1 << 24))
def test_a_large_frames_buffer_is_as_long_as_the_frame(size: int) -> None:
    buffers = FrameBuffers()
    assert len(buffers.take(size)) == size
    assert buffers.kept_bytes <= max(size + 4096, size * 9 // 8)


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 3 * FRAMES_MAX), st.sampled_from([0, 1, 27, LARGE_FRAME_BYTES])), max_size=4
    ),
    cuts=st.lists(st.integers(1_000, 400_000), max_size=3),
)
def test_many_frames_at_once_are_cut_a_few_at_a_time(sizes: list[tuple[int, int]], cuts: list[int]) -> None:
    bodies = [
        bytes([number % 251]) * size for number, (count, size) in enumerate(sizes) for _ in range(count)
    ]
    assert feed(FrameAssembler(FrameBuffers()), framed(bodies), cuts) == bodies


def test_what_is_not_cut_yet_is_not_overwritten_by_another_connection() -> None:
    buffers = FrameBuffers()
    one, other = FrameAssembler(buffers), FrameAssembler(buffers)
    bodies = [bytes([number]) * 3 for number in range(FRAMES_MAX + 5)]
    data = framed(bodies)
    one.target()[: len(data)] = data
    first = one.received(len(data), LIMIT)
    assert one.rest is not None and not one.is_fresh
    other.target()[:] = bytes(len(buffers.scratch))
    assert [bytes(each) for each in [*first, *one.next_frames(LIMIT)]] == bodies
    assert one.rest is None and one.is_fresh


def test_an_invalid_size_behind_many_frames_is_found_when_it_is_reached() -> None:
    assembler = FrameAssembler(FrameBuffers())
    data = framed([b"x"] * (FRAMES_MAX + 1)) + SIZE.pack(-1)
    assembler.target()[: len(data)] = data
    assert len(assembler.received(len(data), LIMIT)) == FRAMES_MAX
    with pytest.raises(FrameRefused) as caught:
        assembler.next_frames(LIMIT)
    assert len(caught.value.frames) == 1
