"""The send queue of a socket: pieces of memory, and slices of files that the kernel sends (`sendfile`)."""

from __future__ import annotations

import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeAlias

from holdfast_log.protocol.frames import FileSlice, Part

SendParts: TypeAlias = "Callable[[int, Sequence[Part], int, int], tuple[int, bool]]"

_PARTS_PER_CALL = 64
"""Maximum pieces of memory in one `sendmsg`; the system takes at most 1024."""

CALLS_PER_TURN = 64
"""Maximum system calls in which one connection sends in one turn. An answer may consist of thousands of short
slices of files, each of which takes one, of some 5 µs."""

_SMALL_BYTES = 1024
"""Parts with fewer bytes are joined where many wait: an object for each would take more than they do."""

_JOINED_BYTES = 64 * 1024
"""Maximum bytes of such parts together."""


class SliceTooLong(Exception):
    """The file ends before the slice does: it was truncated while the slice waited to be sent."""


class Outgoing:
    """The send queue of a socket, and how much of its first part was sent."""

    def __init__(self) -> None:
        self.parts: deque[Part] = deque()
        """What is left to send, in order; read-only to others."""
        self._head_sent = 0
        self._joined: bytearray | None = None  # small parts; it may be the last of `parts`

    def __bool__(self) -> bool:
        return bool(self.parts)

    def add(self, parts: Sequence[Part]) -> None:
        queue, joined = self.parts, self._joined
        for part in parts:
            if not len(part):
                continue
            if len(queue) < _PARTS_PER_CALL or type(part) is not bytes or len(part) >= _SMALL_BYTES:
                queue.append(part)
            elif joined is not None and queue[-1] is joined and len(joined) < _JOINED_BYTES:
                joined += part
            else:
                joined = self._joined = bytearray(part)
                queue.append(joined)

    def add_rest(self, parts: Sequence[Part], sent: int) -> None:
        """Add what is left of `parts`, of which `sent` bytes have been sent. Nothing may be queued."""
        self.add(parts)
        self._advance(sent)

    def clear(self) -> None:
        self.parts.clear()
        self._joined = None

    def send_some(self, sock: socket.socket, fd: int) -> int:
        """Send in one system call. Returns the number of bytes sent; 0 if the socket takes none now.

        Raises OSError if the connection is broken or the file cannot be read, and SliceTooLong.
        """
        parts = self.parts
        head = parts[0]
        try:
            if type(head) is bytes and len(parts) == 1 and not self._head_sent:
                # A short answer, as most are. It is sent as a whole but for rare cases.
                sent = sock.send(head)
                if sent == len(head):
                    parts.clear()
                    return sent
            elif isinstance(head, FileSlice):
                sent = _send_slice(fd, head, self._head_sent)
            else:
                sent = self._send_memory(sock)
        except (BlockingIOError, InterruptedError):
            return 0
        self._advance(sent)
        return sent

    def send_with(self, send_parts: SendParts, fd: int, bytes_max: int) -> int:
        """Send with `protocol._wire.send_parts`, until the socket takes no more, `bytes_max` were sent, or
        `CALLS_PER_TURN` calls were made.
        Returns the number of bytes sent; if it is 0, `send_some` finds out why. Raises OSError if the
        connection is broken or a file cannot be read."""
        if not self.parts:
            return 0
        sent, _ = send_parts(fd, self.parts, bytes_max, self._head_sent)
        if sent:
            self._advance(sent)
        return sent

    def _send_memory(self, sock: socket.socket) -> int:
        buffers: list[bytes | bytearray | memoryview] = []
        flags = 0
        for part in itertools.islice(self.parts, _PARTS_PER_CALL):
            if isinstance(part, FileSlice):
                flags = socket.MSG_MORE  # the slice follows in the same segment
                break
            buffers.append(part)
        if self._head_sent:
            buffers[0] = memoryview(buffers[0])[self._head_sent :]
        if len(buffers) == 1:
            return sock.send(buffers[0], flags)
        return sock.sendmsg(buffers, (), flags)

    def _advance(self, sent: int) -> None:
        parts = self.parts
        sent += self._head_sent
        while parts:
            size = len(parts[0])
            if sent < size:
                break
            sent -= size
            parts.popleft()
        self._head_sent = sent
        if not parts:
            self._joined = None


def _send_slice(fd: int, part: FileSlice, already_sent: int) -> int:
    sent = os.sendfile(fd, part.file.fileno(), part.offset + already_sent, part.length - already_sent)
    if sent == 0:
        raise SliceTooLong(
            f"the file has only {already_sent} of the {part.length} announced bytes at offset {part.offset}"
        )
    return sent
