"""A `Wire` over TLS: the sockets of `broker.network.transport`, with a handshake before the frames.

States of a connection, and what ends each:

    waiting    the peer's first message: shaking    not the first byte of TLS, too long: refused
    shaking    the handshake is done: open          an error, too long, too many others: refused
    open       as without TLS
    refused    the socket is closed, and the reason logged
"""

# Twisted's transports have only partial annotations.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import enum
import functools
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.error import ConnectionLost
from twisted.internet.main import CONNECTION_DONE
from twisted.python.failure import Failure

from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.network.tls.certificates import subject_name
from holdfast_log.broker.network.tls.faults import explained
from holdfast_log.broker.network.tls.first_message import (
    FIRST_MESSAGE_BYTES_MAX,
    HANDSHAKE_RECORD,
    first_message_bytes,
)
from holdfast_log.broker.network.tls.handshakes import Handshakes
from holdfast_log.broker.network.tls.kernel import KernelOutgoing
from holdfast_log.broker.network.tls.principals import NoRule, PrincipalMapper
from holdfast_log.broker.network.tls.stream import TlsOutgoing, TlsStream
from holdfast_log.broker.network.transport import FrameClient, FrameServer, FrameSocket
from holdfast_log.protocol.frames import Part

_log = logging.getLogger(__name__)

_SHOWN_NAME = 300

LOOK_AGAIN_S = 0.1
"""Time in seconds until a first message is looked at again that the system reported before it was whole."""

_ESTABLISHED = 1
"""Linux's number of the state of a TCP connection whose peer may send more (tcpi_state)."""


class TlsState(enum.Enum):
    """How far a connection's handshake is; the table is at the top of this file."""

    WAITING = enum.auto()
    SHAKING = enum.auto()
    OPEN = enum.auto()
    REFUSED = enum.auto()


class TlsSocket(FrameSocket):
    """What both ends of a connection over TLS share."""

    _wrap: Callable[[socket.socket], TlsStream]
    _is_plain = False  # Never: with kernel TLS, `KernelOutgoing` sends, and looks at the keys.
    _tls = TlsState.WAITING
    _stream: TlsStream | None = None  # the socket, once it is one of TLS
    _awaited_bytes = 0
    _rereads = False

    def _begin(self, handshakes: Handshakes, wrap: Callable[[socket.socket], TlsStream]) -> None:
        self._outgoing = TlsOutgoing()
        self._handshakes = handshakes
        self._wrap = wrap

    # Wire

    def send(self, parts: Sequence[Part]) -> None:
        if not self._is_open:
            return
        was_idle = not self._outgoing
        self._outgoing.add(parts)
        if was_idle and self._tls is TlsState.OPEN and not self._is_in_read:
            self._send_now()

    def close(self) -> None:
        if self._tls is TlsState.OPEN:
            super().close()
        else:
            self.abort()

    # The reactor

    def doRead(self) -> Exception | None:  # type: ignore[override]
        if self._stays_unread():
            return None
        if self._tls is not TlsState.OPEN:
            self._handshakes.step(self)
            return None
        ended = self._discard() if self._is_closing else self._read_turns(0)
        if ended is not None:
            self._log_fault()
        elif self.connected and not self._aborting:
            self._read_rest()
        return ended

    def doWrite(self) -> Exception | None:  # type: ignore[override]
        if self._tls is TlsState.OPEN:
            return super().doWrite()
        self.stopWriting()
        self._handshakes.step(self)
        return None

    def startReading(self) -> None:
        super().startReading()
        if self._tls is TlsState.OPEN:
            self._read_rest()

    def connectionLost(self, reason: Failure) -> None:
        if self._tls is TlsState.SHAKING and not self._aborting:
            self._log_refusal("the peer closed it before its TLS handshake was over")
        self._tls = TlsState.REFUSED
        self._handshakes.end(self)
        self._stream = None
        super().connectionLost(reason)

    def _read_rest(self) -> None:
        """Read again in the next turn if something is left that is decrypted already: the system reports only
        what it still has itself."""
        if not self._rereads and self._may_read and self._stream is not None and self._stream.has_unread:
            self._rereads = True
            self.reactor.callLater(0, self._reread)

    def _reread(self) -> None:
        self._rereads = False
        if not (self.connected and self._may_read):
            return
        ended = self.doRead()
        if ended is not None:
            self._end_with(ended)

    @property
    def _may_read(self) -> bool:
        if self._aborting or not self.connected:
            return False
        return self._is_closing or (self._wants_to_read and not self._assembler.is_held)

    # The handshake

    def shake(self) -> None:
        if self._tls not in (TlsState.WAITING, TlsState.SHAKING) or not self._is_open:
            return
        stream = self._stream or self._wrapped()
        if stream is None:
            return
        try:
            stream.do_handshake()
        except ssl.SSLWantReadError:
            if self._wants_to_read:
                self.startReading()
        except ssl.SSLWantWriteError:
            self.startWriting()
        except (OSError, ValueError) as error:
            self._refused(f"its TLS handshake failed: {explained(error)}")
        else:
            self._shaken()

    def _wrapped(self) -> TlsStream | None:
        """The socket as one of TLS; None if there is no need of it yet, or any more. So a peer that does not
        send its first message costs no more than a plain socket."""
        try:
            first = self._first_bytes()
            if first == b"":
                self._end_with(CONNECTION_DONE)
                return None
            if first is not None and first[0] != HANDSHAKE_RECORD:
                self._refused(
                    f"it sent no TLS: its first byte is {first[0]}. A client that speaks PLAINTEXT needs "
                    "another listener, or security.protocol=SSL"
                )
                return None
            if first is not None and self._waits_for_more(first):
                return None
            self._handshakes.begin(self)
            self.socket = self._stream = self._wrap(self.socket)
        except (BlockingIOError, InterruptedError):
            if self._wants_to_read:
                self.startReading()
            return None
        except (OSError, ValueError) as error:
            self._refused(f"its TLS handshake failed: {explained(error)}")
            return None
        self.fileno = self._stream.fileno
        self._tls = TlsState.SHAKING
        return self._stream

    def _first_bytes(self) -> bytes | None:
        """What the peer has sent; None if this side speaks first."""
        return None

    def _waits_for_more(self, first: bytes) -> bool:
        """Whether the peer's first message is incomplete, and this side looks at it again later. The system
        counts the bytes: for a peer that sends them one by one this side does nothing until they are there.

        The system tells it sooner at the end of what the peer sends: then there is nothing to wait for. It
        also does so, again and again, while the socket's buffer is nearly full or memory is short; bytes that
        come one by one fill a buffer, because each occupies hundreds. Then this side looks every
        `LOOK_AGAIN_S` only.
        """
        wanted = first_message_bytes(first)
        is_early = len(first) < self._awaited_bytes
        is_waiting = len(first) < wanted and not (is_early and _has_ended(self.socket))
        if is_waiting and is_early:
            self.stopReading()
            self.reactor.callLater(LOOK_AGAIN_S, self._look_again)
            return True
        if is_waiting or self._awaited_bytes:
            self._awaited_bytes = wanted
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted if is_waiting else 1)
        if is_waiting and self._wants_to_read:
            self.startReading()
        return is_waiting

    def _look_again(self) -> None:
        if self._tls is TlsState.WAITING and self._is_open and self._wants_to_read:
            self.startReading()

    def _shaken(self) -> None:
        assert self._stream is not None
        self._tls = TlsState.OPEN
        self._handshakes.end(self)
        kernel = self._stream.kernel
        self._handshakes.succeeded(by_kernel=kernel is not None)
        if kernel is not None:
            self._outgoing = KernelOutgoing(kernel, self._outgoing.parts)
        if not self._identified():
            return
        if self._outgoing:
            self._send_now()
        if self._wants_to_read and self._is_open:
            self.startReading()

    def _identified(self) -> bool:
        """Whether the peer is welcome. If not, the connection is being closed."""
        return True

    def wait_in_line(self) -> None:
        self.stopReading()

    def give_up(self, reason: str) -> None:
        self._refused(f"its TLS handshake did not end: {reason}")

    def _refused(self, reason: str) -> None:
        if self._tls is TlsState.REFUSED:
            return
        self._tls = TlsState.REFUSED
        self._handshakes.end(self)
        self._log_refusal(reason)
        self._end_with(ConnectionLost(reason))

    def _log_refusal(self, reason: str) -> None:
        cause = "connections that were closed because of TLS"
        self._log.warning(_log, cause, "Closing the connection to %s: %s", self.peer, reason)

    def _log_fault(self) -> None:
        if self._stream is not None and self._stream.fault is not None:
            self._log_refusal(f"what it sent cannot be read: {explained(self._stream.fault)}")

    def _end_with(self, error: Exception) -> None:
        """Close at once, with `error` as the reason."""
        if self._aborting or not self.connected:
            return
        self._aborting = True
        self._outgoing.clear()
        self.stopReading()
        self.stopWriting()
        # Closing takes time, too: a crowd that is refused waits for its turns.
        self._handshakes.call(functools.partial(self.connectionLost, Failure(error)))


def _has_ended(sock: socket.socket) -> bool:
    """Whether the peer of a TCP connection sends nothing more. Where the system does not say, True."""
    if not hasattr(socket, "TCP_INFO"):
        return True
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED


class TlsServer(TlsSocket, FrameServer):
    """A connection over TLS that this side accepted. `mapper` makes a principal of the peer's certificate."""

    def __init__(
        self,
        handshakes: Handshakes,
        wrap: Callable[[socket.socket], TlsStream],
        mapper: Callable[[], PrincipalMapper],
        *args: Any,
    ) -> None:
        self._mapper = mapper
        super().__init__(*args)
        self._begin(handshakes, wrap)

    def opened(self) -> None:
        super().opened()
        self._handshakes.expect(self)

    def _first_bytes(self) -> bytes | None:
        first: bytes = self.socket.recv(FIRST_MESSAGE_BYTES_MAX, socket.MSG_PEEK)
        return first

    def _identified(self) -> bool:
        assert self._stream is not None
        certificate = self._stream.getpeercert(binary_form=True)
        if certificate is None:
            return True
        name = "?"
        try:
            name = subject_name(certificate)
            principal = self._mapper().principal(name)
        except (NoRule, ValueError):
            self._refused(
                f"no rule of ssl.principal.mapping.rules fits its certificate's name {name[:_SHOWN_NAME]!r}"
            )
            return False
        self._receiver.identified(principal)
        return True


class TlsClient(TlsSocket, FrameClient):
    """A connection over TLS that this side opened. It is open for its receiver once the handshake is done."""

    def __init__(
        self, handshakes: Handshakes, wrap: Callable[[socket.socket], TlsStream], host: str, *args: Any
    ) -> None:
        super().__init__(*args)
        self._begin(handshakes, wrap)
        self.peer = Address(host, self.peer.port)

    def opened(self) -> None:
        self._handshakes.expect(self)
        self._handshakes.step(self)

    def _shaken(self) -> None:
        super()._shaken()
        if self._is_open:
            self._receiver.connected(self)
