"""Kernel TLS: the system encrypts what a TLS socket sends, so that it can send from files (`sendfile`).

OpenSSL gives its keys to the system at the end of a handshake, if `enable` was called for its context. Then
what is sent on the socket as on a plain one leaves it encrypted. Only the system knows whether it does that,
so each socket is asked before, by `kernel_keys`: without what it returns there is no `KernelOutgoing`.

In TLS 1.3 the peer may ask for new keys (KeyUpdate). OpenSSL 3.0 replaces its own, and tells the system
nothing: what is sent afterwards, the peer cannot decrypt. OpenSSL answers when it is next told to send. So
before this side sends, it tells OpenSSL to send nothing: if the system's number of the next record is another
one afterwards, that was an answer. The connection ends then, and the client opens another.
"""

from __future__ import annotations

import errno
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import cast

from holdfast_log.broker.network.outgoing import Outgoing
from holdfast_log.protocol.compiled import WIRE
from holdfast_log.protocol.frames import Part

AUTO, NEVER = "auto", "never"
KERNEL_TLS = (AUTO, NEVER)

ULPS = "/proc/sys/net/ipv4/tcp_available_ulp"
"""Where Linux lists what can be laid over TCP; `tls` is there while its module is loaded."""

_ENABLE = 1 << 3
"""OpenSSL's SSL_OP_ENABLE_KTLS, since its version 3.0; `ssl` has a name for it since Python 3.12."""

_SOL_TLS = 282
_TLS_TX = 1
_NAMES_BYTES = 4
"""The version and the cipher, two numbers of two bytes in the machine's order; keys follow them."""
_TLS_1_3 = 0x0304
_INFO_BYTES = {51: 40, 52: 56, 53: 40, 54: 56}
"""The size of what the system says of a cipher, by Linux's numbers of AES-128-GCM, AES-256-GCM, AES-128-CCM
and ChaCha20-Poly1305. The last eight bytes are the number of the next record."""
_NUMBER_BYTES = 8

_CALL_BYTES = 256 * 1024
"""Bytes sent after which the keys are looked at again, and the turn may end."""


class KeysReplaced(OSError):
    """The peer has asked for new keys, which the system does not have."""


def lacks() -> str | None:
    """Why the system cannot encrypt at present, for an operator; None if it can."""
    if ssl.OPENSSL_VERSION_INFO < (3, 0) or not ssl.OPENSSL_VERSION.startswith("OpenSSL "):
        return f"{ssl.OPENSSL_VERSION} is older than OpenSSL 3.0, or another library"
    try:
        with open(ULPS, encoding="ascii") as file:
            has_module = "tls" in file.read().split()
    except (OSError, ValueError):
        return f"{ULPS} cannot be read"
    return None if has_module else f"{ULPS} has no tls: the module tls is not loaded (modprobe tls)"


def enable(context: ssl.SSLContext) -> None:
    """Have OpenSSL give its keys to the system, for the connections of this context. Where the system does
    not take them, they are as others."""
    context.options |= _ENABLE


def kernel_keys(stream: socket.socket) -> KernelKeys | None:
    """The keys with which the system encrypts what is sent on `stream`, whose handshake is done. None if the
    system does not encrypt it."""
    try:
        found = stream.getsockopt(_SOL_TLS, _TLS_TX, _NAMES_BYTES)
    except OSError:
        return None
    version, cipher = (int.from_bytes(each, sys.byteorder) for each in (found[:2], found[2:]))
    if cipher not in _INFO_BYTES:
        return None
    return KernelKeys(_INFO_BYTES[cipher] if version == _TLS_1_3 else 0)


class KernelKeys:
    """Knows whether the keys that the system has for a socket are still those of the peer. Made by
    `kernel_keys`; `info_bytes` is the size of what the system says of them, 0 if they cannot change."""

    def __init__(self, info_bytes: int) -> None:
        self._info_bytes = info_bytes
        self.are_current = True
        """Whether the peer can decrypt what is sent, as `check` found last."""

    def check(self, stream: socket.socket) -> None:
        """Have OpenSSL send what it owes the peer, before this side sends something. Raises `KeysReplaced` if
        that was an answer, BlockingIOError if the socket is full, and OSError."""
        if not self._info_bytes:
            return
        before = self._next_number(stream)
        stream.send(b"")  # No record, if OpenSSL owes nothing.
        self.are_current = self._next_number(stream) == before
        if not self.are_current:
            raise KeysReplaced(
                errno.EKEYEXPIRED,
                "the peer asked for new keys (KeyUpdate), which the system's TLS does not take "
                "(ssl.kernel.tls=never avoids this)",
            )

    def _next_number(self, stream: socket.socket) -> bytes:
        return stream.getsockopt(_SOL_TLS, _TLS_TX, self._info_bytes)[-_NUMBER_BYTES:]


class _Unwrapped:
    """The methods of a socket of TLS as a plain socket has them: `ssl.SSLSocket` has OpenSSL encrypt."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:
        return socket.socket.send(self._stream, data, flags)

    def sendmsg(
        self, buffers: Sequence[bytes | bytearray | memoryview], ancillary: tuple[()] = (), flags: int = 0
    ) -> int:
        return socket.socket.sendmsg(self._stream, buffers, ancillary, flags)


class KernelOutgoing(Outgoing):
    """The send queue of a socket of TLS for which the system has `keys`: slices of files do not pass through
    this process. It begins with the parts that wait already."""

    def __init__(self, keys: KernelKeys, waiting: Sequence[Part]) -> None:
        super().__init__()
        self._keys = keys
        self.add(waiting)

    def send_some(self, sock: socket.socket, fd: int) -> int:
        """Send what the socket takes, at most a piece of a turn. Returns the number of bytes; 0 if it takes
        none.

        Raises OSError if the connection is broken or a file cannot be read, `KeysReplaced` and SliceTooLong.
        """
        try:
            self._keys.check(sock)
        except (BlockingIOError, InterruptedError):
            return 0
        sent = 0 if WIRE is None else self.send_with(WIRE.send_parts, sock.fileno(), _CALL_BYTES)
        return sent or super().send_some(cast(socket.socket, _Unwrapped(sock)), sock.fileno())
