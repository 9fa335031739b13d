"""A TLS socket that reports like a plain one, and the send queue in front of it.

OpenSSL reads and writes the socket itself, one record of at most 16 KiB at a time. A write that the socket
does not take whole has to be repeated with the same bytes, so that `TlsOutgoing` keeps them.
"""

# The socket's methods have looser annotations than the ones here.
# mypy: disable-error-code="override"

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl

from holdfast_log.broker.network.outgoing import Outgoing, SliceTooLong
from holdfast_log.broker.network.tls.kernel import KernelKeys, kernel_keys
from holdfast_log.protocol.frames import FileSlice, Part

_FILL_BYTES = 256 * 1024
"""Maximum bytes decrypted in one call, before others have their turn."""

_GATHER_BYTES = 64 * 1024
"""Pieces are gathered up to this size, so that small ones share a record, and slices of files are read in
pieces of it."""

_DIRECT_BYTES = 256 * 1024
"""Maximum bytes of memory given to OpenSSL in one call."""


class TlsStream(ssl.SSLSocket):
    """A TLS socket that does not block. Where it has to wait it raises BlockingIOError, as a plain one does.

    `fault` is the error of TLS that ended it, other than the peer's absence; None while there is none.
    `kernel` are the keys with which the system encrypts what is sent; None if OpenSSL does, and before the
    handshake is done.
    """

    fault: ssl.SSLError | None = None
    kernel: KernelKeys | None = None
    _has_ended = False

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        self.kernel = kernel_keys(self)

    def recv_into(self, buffer: memoryview, nbytes: int | None = None, flags: int = 0) -> int:
        """Decrypt into `buffer` until it is full, there is no more, or others should have their turn. Returns
        the number of bytes; 0 at the end of the stream."""
        if self._sslobj is None:  # type: ignore[attr-defined]
            return super().recv_into(buffer)
        filled, end = 0, min(len(buffer), _FILL_BYTES)
        while filled < end and not self._has_ended:
            try:
                count = super().recv_into(buffer[filled:end])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if filled:
                    return filled
                raise BlockingIOError(errno.EWOULDBLOCK, "nothing to decrypt") from None
            except ssl.SSLError as error:
                self.fault = error
                raise
            self._has_ended = count == 0
            filled += count
        return filled

    @property
    def has_unread(self) -> bool:
        """Whether there is something to read of which the system knows nothing any more."""
        return self._has_ended or (self._sslobj is not None and self.pending() > 0)  # type: ignore[attr-defined]

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        """Encrypt and send all of `data`. If it raises BlockingIOError, call it again with the same bytes,
        and nothing else before. Not for a stream that has a `kernel`."""
        try:
            return super().send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError(errno.EWOULDBLOCK, "the socket is full") from None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error

    def shutdown(self, how: int) -> None:
        """Say that nothing more is sent, in TLS too."""
        if self._sslobj is not None and how != socket.SHUT_RD:  # type: ignore[attr-defined]
            with contextlib.suppress(OSError, ValueError):
                if self.kernel is None or self.kernel.are_current:
                    self._sslobj.shutdown()  # type: ignore[attr-defined]
        super().shutdown(how)


class TlsOutgoing(Outgoing):
    """The send queue of a TLS socket. Slices of files are read when their turn has come, in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self._chunk: bytes | bytearray | memoryview = b""  # given to OpenSSL, perhaps in part

    def clear(self) -> None:
        super().clear()
        self._chunk = b""

    def send_some(self, sock: socket.socket, fd: int) -> int:
        """Send the next piece. Returns its number of bytes; 0 if the socket takes no more now.

        Raises OSError if the connection is broken or a file cannot be read, and SliceTooLong.
        """
        if not self._chunk:
            self._chunk = self._next_chunk()
        try:
            sent = sock.send(self._chunk)
        except (BlockingIOError, InterruptedError):
            return 0
        self._chunk = b""
        self._advance(sent)
        return sent

    def _next_chunk(self) -> bytes | bytearray | memoryview:
        head, begin = self.parts[0], self._head_sent
        if not isinstance(head, FileSlice):
            if len(self.parts) == 1 and not begin and len(head) <= _DIRECT_BYTES:
                return head
            if len(head) - begin >= _GATHER_BYTES:
                return memoryview(head)[begin : begin + _DIRECT_BYTES]
        chunk = bytearray()
        for part in self.parts:
            chunk += _piece(part, begin, _GATHER_BYTES - len(chunk))
            if len(chunk) >= _GATHER_BYTES:
                break
            begin = 0
        return chunk


def _piece(part: Part, begin: int, size: int) -> bytes | memoryview:
    if not isinstance(part, FileSlice):
        return memoryview(part)[begin : begin + size]
    if part.data is not None:
        return memoryview(part.data)[begin : begin + size]
    size = min(size, part.length - begin)
    piece = part.file.pread(size, part.offset + begin)
    if len(piece) < size:
        raise SliceTooLong(
            f"the file has only {begin + len(piece)} of the {part.length} announced bytes at offset "
            f"{part.offset}"
        )
    return piece
