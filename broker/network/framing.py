"""Splits the bytes of a connection into frames, and provides the buffers that receive them.

One receive may fill a shared scratch buffer with many small frames, which are copied from it. A large frame
gets a buffer of its own once its size is known, and is received directly into it; the log writes the same
bytes without a copy.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable

from holdfast_log.broker.network.memory import IncompleteFrames, RequestMemory
from holdfast_log.protocol.frames import SIZE

SCRATCH_BYTES = 256 * 1024
LARGE_FRAME_BYTES = 32 * 1024
"""Minimum bytes of a frame with its own buffer: from this size another receive costs less than a copy."""

FRAMES_MAX = 64
"""Maximum number of frames that are cut from received bytes at once. An object for a frame takes ten times as
many bytes as the shortest frames, so the others stay bytes until the first ones have been handled."""

_LOOKS = 2
"""Number of lent buffers, oldest first, that are checked before a new one is created."""


class FrameBuffers:
    """Buffers for large frames, reused when no view of them is left.

    `take` returns a memoryview of a buffer. The buffer becomes free when the last view of it is dropped, so a
    frame or a batch that is still in use is never overwritten. Buffers are memory mappings: the system
    allocates their pages on the first write, so a peer that announces a large frame and sends nothing
    occupies no memory.

    At most `keep_bytes` are kept for reuse; further buffers serve one frame each.
    """

    def __init__(self, keep_bytes: int = 64 * 1024 * 1024) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._by_size: dict[int, deque[mmap.mmap]] = {}

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    def take(self, size: int) -> memoryview:
        """A writable view of exactly `size` bytes with arbitrary content. Raises OSError if out of memory."""
        rounded = _round_up(size)
        kept = self._by_size.get(rounded)
        if kept is None:
            kept = self._by_size[rounded] = deque()
        for _ in range(min(_LOOKS, len(kept))):
            buffer = kept[0]
            kept.rotate(-1)
            if _is_free(buffer):
                return memoryview(buffer)[:size]
        buffer = mmap.mmap(-1, rounded, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if self._make_room(rounded):
            kept.append(buffer)
            self._kept_bytes += rounded
        return memoryview(buffer)[:size]

    def _make_room(self, size: int) -> bool:
        """Drop free buffers of other sizes if necessary. Returns whether `size` more bytes may be kept."""
        if self._kept_bytes + size <= self._keep_bytes:
            return True
        for other, kept in self._by_size.items():
            while kept and other != size and _is_free(kept[0]):
                kept.popleft()
                self._kept_bytes -= other
                if self._kept_bytes + size <= self._keep_bytes:
                    return True
        return False


def _is_free(buffer: mmap.mmap) -> bool:
    """Whether no view of `buffer`, however derived, is left: only then does `resize` succeed."""
    try:
        buffer.resize(len(buffer))
    except BufferError:
        return False
    return True


def _round_up(size: int) -> int:
    """The buffer size for a frame, in eight steps per doubling: at most an eighth is unused."""
    step = max(mmap.PAGESIZE, 1 << max(0, size.bit_length() - 4))
    return -(-size // step) * step


class FrameRefused(Exception):
    """The peer announced a frame of a size that is not allowed. `frames` are the frames before it."""

    def __init__(self, size: int, frames: list[memoryview]) -> None:
        super().__init__(f"the peer announced a frame of {size} bytes, which is not allowed")
        self.size = size
        self.frames = frames


def _nothing() -> None:
    """Nobody waits for room."""


def _ignore(reason: str) -> None:
    """No frame is late."""


class FrameAssembler:
    """Finds the frames in the bytes of one connection.

    The caller receives bytes into `target`, then passes their number to `received`; nothing else may use the
    shared buffers in between.

    With a limited `memory`, a large frame is received in steps, each when there is room for it: what a peer
    announces costs nobody anything. Until then `is_held` is true and the caller must not receive; `on_room`
    is called when there is room. `incomplete` ends a frame that is late, by a call of `on_late`.

    While there is a `rest`, more frames have been received than were returned. Then `next_frames` returns
    further ones, and the caller must not receive.
    """

    def __init__(
        self,
        buffers: FrameBuffers,
        memory: RequestMemory | None = None,
        on_room: Callable[[], None] = _nothing,
        incomplete: IncompleteFrames | None = None,
        on_late: Callable[[str], None] = _ignore,
    ) -> None:
        self._incomplete = incomplete
        self._on_late = on_late
        self._buffers = buffers
        self._memory = memory if memory is not None and memory.is_limited else None
        self._on_room = on_room
        self.is_held = False
        """Whether a large frame waits for room in the memory."""
        self.borrowed = 0
        """Bytes of `memory` borrowed for the large frame being received, or for the last one."""
        self._frame: memoryview | None = None  # large frame being received, `_filled` bytes so far
        self._filled = 0
        self._room_end = 0  # up to here the frame may be filled: there is memory for that
        self._step = 0  # bytes asked for while the frame is held
        self.rest: memoryview | None = None
        """What has been received and not yet cut into frames."""
        self._partial = b""  # less than a whole small frame, or than a size
        self._size_alone = False  # the next frame is likely large: receive only its size first
        self.is_fresh = True
        """Whether the next bytes begin a frame that is likely small: the target is the whole scratch
        buffer."""

    def target(self) -> memoryview:
        """Buffer for the next bytes; never empty. Raises OSError if there is no memory for the frame."""
        if self._frame is not None:
            return self._frame[self._filled : self._room_end]
        if self._size_alone:
            return self._buffers.scratch[: SIZE.size]
        scratch = self._buffers.scratch
        partial = self._partial
        if partial:
            scratch[: len(partial)] = partial
            return scratch[len(partial) :]
        return scratch

    def received(self, count: int, frame_bytes_max: int) -> list[memoryview]:
        """The frames that `count` more bytes in the target have completed.

        Raises `FrameRefused` for a size that is negative or over `frame_bytes_max`, OSError if there is no
        memory for the frame.
        """
        self.is_fresh = False
        if self._frame is not None:
            self._filled += count
            if self._filled < len(self._frame):
                if self._filled == self._room_end:
                    self._extend(self._filled)
                return []
            if self._incomplete is not None:
                self._incomplete.end(self)
            frame, self._frame = self._frame, None
            self._size_alone = len(frame) >= LARGE_FRAME_BYTES
            return [frame]
        end = len(self._partial) + count
        self._partial = b""
        return self._take(self._buffers.scratch[:end], frame_bytes_max)

    def next_frames(self, frame_bytes_max: int) -> list[memoryview]:
        """The next frames of the rest. Raises as `received` does."""
        rest, self.rest = self.rest, None
        assert rest is not None, "nothing is left"
        return self._take(rest, frame_bytes_max)

    def _take(self, data: memoryview, frame_bytes_max: int) -> list[memoryview]:
        frames = self._cut(data, frame_bytes_max)
        self.is_fresh = not (
            self._partial
            or self._size_alone
            or self._frame is not None
            or self.is_held
            or self.rest is not None
        )
        return frames

    def _cut(self, data: memoryview, frame_bytes_max: int) -> list[memoryview]:
        frames: list[memoryview] = []
        position, end = 0, len(data)
        while end - position >= SIZE.size:
            if len(frames) == FRAMES_MAX:
                self._keep_rest(data[position:])
                return frames
            (size,) = SIZE.unpack_from(data, position)
            if not 0 <= size <= frame_bytes_max:
                raise FrameRefused(size, frames)
            start = position + SIZE.size
            if start + size > end and size >= LARGE_FRAME_BYTES:
                self._begin_large(size, data[start:])
                return frames
            if start + size > end:
                break
            self._size_alone = size >= LARGE_FRAME_BYTES
            position = start + size
            frames.append(memoryview(bytearray(data[start:position])))
        if position < end:
            self._partial = bytes(data[position:])
            self._size_alone = False
        return frames

    def _keep_rest(self, rest: memoryview) -> None:
        """Keep bytes until they are cut. Others receive into the shared buffer meanwhile, so they are copied,
        once."""
        is_shared = rest.obj is self._buffers.scratch.obj
        self.rest = memoryview(bytes(rest)) if is_shared else rest
        self._size_alone = False

    def _begin_large(self, size: int, first: memoryview) -> None:
        self._frame = self._buffers.take(size)
        self._filled = len(first)
        self._frame[: self._filled] = first
        if self._memory is None:
            self._room_end = size
            return
        if self._incomplete is not None:
            self._incomplete.begin(self)
        self._room_end = 0
        self._extend(SCRATCH_BYTES)  # at least the first bytes

    def _extend(self, step: int) -> None:
        """Make room for `step` more bytes of the frame, now or once there is memory: as many as were received
        so far, so that a frame needs few steps."""
        assert self._frame is not None and self._memory is not None
        self._step = min(step, len(self._frame) - self._room_end)
        if self._incomplete is not None and self._incomplete.is_oldest(self):
            self._memory.borrow_at_once(self._step)
            self._take_step()
        elif self._memory.borrow(self._step, self._granted):
            self._take_step()
        else:
            self.is_held = True

    def _take_step(self) -> None:
        self.borrowed += self._step
        self._room_end += self._step

    def _granted(self) -> None:
        assert self.is_held, "no frame is held"
        self.is_held = False
        self._take_step()
        self._on_room()

    def hurry(self) -> None:
        """Borrow what the frame waits for, even over the limit."""
        if self.is_held and self._memory is not None:
            self._memory.leave(self._granted)
            if self.is_held:
                self._memory.borrow_at_once(self._step)
                self._granted()

    def give_up(self, reason: str) -> None:
        """Report that the frame is late."""
        self._on_late(reason)

    def release(self) -> None:
        """Return the memory of the last large frame, if any: it has been handled."""
        if self._memory is not None and self.borrowed and self._frame is None:
            borrowed, self.borrowed = self.borrowed, 0
            self._memory.give_back(borrowed)

    def abandon(self) -> None:
        """Drop a partial frame and return its memory: the connection has ended. The callbacks are dropped
        too, so that the connection can be freed: they may be methods of its socket."""
        if self._incomplete is not None:
            self._incomplete.end(self)
        if self.is_held and self._memory is not None:
            self._memory.leave(self._granted)
        self._frame = self.rest = None
        self.is_held = False
        self._on_room, self._on_late = _nothing, _ignore
        self.release()
