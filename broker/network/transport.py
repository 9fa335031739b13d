"""Sockets on Twisted's reactor: frames received into their own buffers, file slices sent by the kernel.

Twisted accepts, connects, watches descriptors and reports losses; this module replaces `dataReceived` and
`write` by `recv_into` and `sendmsg` / `sendfile`, without a copy in between.

What was compiled (`protocol._wire`) receives small whole frames and sends what the socket takes at
once. The rest is done in Python: large and partial frames, what waits to be sent, closing, errors.
"""

# Twisted's transports have only partial annotations.
# mypy: disable-error-code="no-untyped-call, no-any-return"

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Sequence
from typing import Any, cast

from twisted.internet import tcp
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IProtocol
from twisted.internet.main import CONNECTION_DONE
from twisted.python.failure import Failure
from zope.interface import implementer

from holdfast_log.broker.network.framing import (
    LARGE_FRAME_BYTES,
    FrameAssembler,
    FrameBuffers,
    FrameRefused,
)
from holdfast_log.broker.network.interfaces import Address, FrameReceiver
from holdfast_log.broker.network.memory import IncompleteFrames, RequestMemories, RequestMemory
from holdfast_log.broker.network.outgoing import CALLS_PER_TURN, Outgoing, SliceTooLong
from holdfast_log.broker.network.socket_options import SocketOptions, begin_unpaced, pace
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.compiled import WIRE
from holdfast_log.protocol.frames import Part

_log = logging.getLogger(__name__)

_TURN_BYTES = 1024 * 1024
"""Maximum bytes that one connection receives, or sends, in one turn of the reactor."""

_TURN_ACCEPTS = 1
"""Maximum number of connections that one port accepts in one turn of the reactor. One takes 0.2 ms."""

_LINGER_S = 5.0
"""Maximum time in seconds for a closing connection to send its queue and for its peer to close."""

_PEER_IS_GONE = frozenset((errno.EPIPE, errno.ECONNRESET, errno.ETIMEDOUT))

_receive_whole = None if WIRE is None else WIRE.receive
"""The frames received, if they are small and whole; otherwise the number of bytes received, or None if
there are none."""
_send_parts = None if WIRE is None else WIRE.send_parts
"""Sends parts, without so many bytes of the first one, until the socket takes no more or the turn ends.
Returns the number of bytes sent, and whether that is all."""


class FrameSocket(tcp.Connection):
    """A `Wire` on a connected socket: the reading and writing of `FrameServer` and `FrameClient`."""

    peer: Address
    _is_plain = True
    """Whether the peer gets the bytes as they are: `_send_parts` may send them."""

    def _prepare(
        self,
        receiver: FrameReceiver,
        buffers: FrameBuffers,
        log: RepeatedLog,
        memory: RequestMemory | None = None,
        incomplete: IncompleteFrames | None = None,
    ) -> None:
        self._log = log
        self._receiver = receiver
        self._assembler = FrameAssembler(buffers, memory, self._has_room, incomplete, self._late)
        self._scratch = buffers.scratch
        self._outgoing = Outgoing()
        self._wants_to_read = True
        self._is_in_read = False
        self._is_rest_due = False
        self._is_closing = False
        self._has_shut_down = False
        self._broken: Exception | None = None  # set while sending, reported by doWrite

    def opened(self) -> None:
        """The socket is connected. Called once, before anything is read or sent."""
        self._receiver.connected(self)

    # Wire

    def send(self, parts: Sequence[Part]) -> None:
        if not self.connected or self._is_closing or self._aborting:
            return
        was_idle = not self._outgoing.parts
        if _send_parts is None or self._is_in_read or not was_idle:
            self._outgoing.add(parts)
            if was_idle and not self._is_in_read:
                self._send_now()
            return
        # What _send_now does, without the queue.
        try:
            sent, is_all = _send_parts(self.fileno(), parts, _TURN_BYTES, 0)
        except OSError as error:
            self._break(error)
            self.startWriting()
            return
        if not is_all:
            self._outgoing.add_rest(parts, sent)
            self.startWriting()
        if sent:
            self._receiver.bytes_sent(sent)

    def _send_now(self) -> None:
        """Send now: most responses fit into the socket's buffer, which spares the reactor watching it."""
        self._send_turn()
        if self._outgoing.parts or self._broken is not None:
            self.startWriting()

    def pause(self) -> None:
        # The reactor is told only when something arrives (`doRead`). Usually nothing does until the requests
        # before it are answered, and then it need not be told twice.
        self._wants_to_read = False

    def resume(self) -> None:
        self._wants_to_read = True
        self._assembler.release()
        self._has_room()

    def _has_room(self) -> None:
        """Read again, unless paused: there is room for the frame that was held. What has been received and
        not yet delivered is first."""
        if not self._is_open or not self._wants_to_read or self._assembler.is_held:
            return
        if self._assembler.rest is None:
            self.startReading()
        elif not self._is_rest_due:
            self._is_rest_due = True
            self.reactor.callLater(0, self._deliver_rest)

    def _deliver_rest(self) -> None:
        self._is_rest_due = False
        is_wanted = self._is_open and self._wants_to_read and self._assembler.rest is not None
        if is_wanted and self._read_turns(0) is not None:
            self.abort()
        self._has_room()

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_closing = True
        self._linger = self.reactor.callLater(_LINGER_S, self.abort)
        self.startReading()  # and discard: unread bytes would reset the connection
        self.startWriting()

    def abort(self) -> None:
        self._outgoing.clear()
        self.abortConnection()

    @property
    def _is_open(self) -> bool:
        return bool(self.connected) and not (self._is_closing or self._aborting)

    # The reactor

    def doRead(self) -> Exception | None:  # type: ignore[override]
        if self._is_closing:
            return self._discard()
        if not self._wants_to_read and self._stays_unread():
            return None
        assembler = self._assembler
        if _receive_whole is None or not (assembler.is_fresh and self.connected):
            return self._read_turns(0)
        receiver = self._receiver
        try:
            received = _receive_whole(
                self.fileno(), self._scratch, receiver.frame_bytes_max, LARGE_FRAME_BYTES
            )
        except OSError as error:
            return _lost(error)
        if received is None:
            return None
        if type(received) is list:
            receiver.frames_received(received)
            return None
        return self._read_turns(received) if received else CONNECTION_DONE

    def _stays_unread(self) -> bool:
        """Whether nothing is read now, because the connection is paused. Then the reactor does not look at
        the socket until it is resumed."""
        if self._wants_to_read or self._is_closing:
            return False
        self.stopReading()
        return True

    def _read_turns(self, received: int) -> Exception | None:
        """Read in Python. `received` bytes are in the assembler's target already."""
        # Send the responses to all requests of this turn together, at its end.
        was_idle = not self._outgoing.parts
        self._is_in_read = True
        try:
            return self._read_turn(received)
        finally:
            self._is_in_read = False
            if was_idle and self._outgoing.parts and self.connected and not self._aborting:
                self._send_now()

    def _read_turn(self, received: int) -> Exception | None:
        left = _TURN_BYTES
        assembler, receiver = self._assembler, self._receiver
        is_emptied = False
        while self._wants_to_read and self._is_open:
            try:
                if assembler.rest is not None:
                    frames = assembler.next_frames(receiver.frame_bytes_max)
                elif is_emptied or left <= 0:
                    return None
                else:
                    target = assembler.target()
                    count, received = received, 0
                    try:
                        count = count or self.socket.recv_into(target)
                    except (BlockingIOError, InterruptedError):
                        return None
                    except OSError as error:
                        return _lost(error)
                    if count == 0:
                        return CONNECTION_DONE
                    left -= count
                    is_emptied = count < len(target)
                    del target
                    frames = assembler.received(count, receiver.frame_bytes_max)
            except FrameRefused as refused:
                self._refuse(refused)
                return None
            except OSError as error:
                return self._no_memory(error)
            if frames:
                receiver.frames_received(frames)
                del frames  # frees the buffers of handled frames for the next
                if assembler.borrowed and not receiver.is_holding:
                    assembler.release()
            if assembler.is_held:
                self.stopReading()
                return None
        return None

    def _late(self, reason: str) -> None:
        text = "Closing the connection to %s: %s"
        self._log.warning(_log, "requests that were not received in time", text, self.peer, reason)
        self.abort()

    def _no_memory(self, error: OSError) -> Exception:
        text = "Closing the connection to %s: out of memory for a request: %s"
        self._log.warning(_log, "requests without memory", text, self.peer, error)
        return _lost(error)

    def doWrite(self) -> Exception | None:  # type: ignore[override]
        if self._broken is None:
            self._send_turn()
        if self._broken is not None:
            return self._broken
        if not self._outgoing and self.connected:
            self.stopWriting()
            if self._is_closing and not self._has_shut_down:
                self._has_shut_down = True
                try:
                    self.socket.shutdown(socket.SHUT_WR)
                except OSError as error:
                    return _lost(error)
        return None

    def connectionLost(self, reason: Failure) -> None:
        self._outgoing.clear()
        self._assembler.abandon()
        if self._is_closing and self._linger.active():
            self._linger.cancel()
        super().connectionLost(reason)

    def _send_turn(self) -> None:
        """Send until the socket takes no more, or the turn ends."""
        total = 0
        outgoing = self._outgoing
        try:
            if _send_parts is not None and self._is_plain:
                total = outgoing.send_with(_send_parts, self.fileno(), _TURN_BYTES)
            if not total:
                # The socket may be full, or a file may have ended.
                for _ in range(CALLS_PER_TURN):
                    if not outgoing.parts or total >= _TURN_BYTES:
                        break
                    sent = outgoing.send_some(self.socket, self.fileno())
                    if sent == 0:
                        break
                    total += sent
        except (OSError, SliceTooLong) as error:
            self._break(error)
        if total:
            self._receiver.bytes_sent(total)

    def _break(self, error: OSError | SliceTooLong) -> None:
        if not isinstance(error, OSError) or error.errno not in _PEER_IS_GONE:
            text = "Closing the connection to %s: sending a response failed: %s"
            self._log.warning(_log, "responses that could not be sent", text, self.peer, error)
        self._outgoing.clear()
        self._broken = _lost(error)

    def _refuse(self, refused: FrameRefused) -> None:
        if refused.frames:
            self._receiver.frames_received(refused.frames)
        if self._is_open:
            self.stopReading()
            self._receiver.frame_refused(refused.size)

    def _discard(self) -> Exception | None:
        try:
            count = self.socket.recv_into(self._scratch)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError as error:
            return _lost(error)
        return None if count else CONNECTION_DONE


def _lost(error: Exception) -> Exception:
    return ConnectionLost(str(error))


class FrameServer(FrameSocket, tcp.Server):
    """A connection that this side accepted."""

    def __init__(
        self,
        buffers: FrameBuffers,
        memories: RequestMemories,
        log: RepeatedLog,
        sock: socket.socket,
        protocol: FrameLink,
        client: tuple[Any, ...],
        server: FramePort,
        sessionno: int,
        reactor: Any,
    ) -> None:
        memory, incomplete = memories.of(getattr(protocol.receiver, "listener", ""))
        self._prepare(protocol.receiver, buffers, log, memory, incomplete)
        self.peer = Address(client[0], client[1])
        if server.pacing:
            pace(sock, server.pacing)
        super().__init__(sock, cast(IProtocol, protocol), client, server, sessionno, reactor)


class FrameClient(FrameSocket, tcp.Client):
    """A connection that this side opened."""

    def __init__(
        self, buffers: FrameBuffers, receiver: FrameReceiver, log: RepeatedLog, connector: tcp.Connector
    ) -> None:
        self._prepare(receiver, buffers, log)
        self.peer = Address(connector.host, connector.port)
        super().__init__(connector.host, connector.port, None, connector, connector.reactor)


@implementer(IProtocol)
class FrameLink:
    """The protocol object that Twisted requires: reports that the connection opened or closed."""

    def __init__(self, receiver: FrameReceiver) -> None:
        self.receiver = receiver

    def makeConnection(self, transport: FrameSocket) -> None:
        transport.setTcpNoDelay(True)
        transport.setTcpKeepAlive(True)
        transport.opened()

    def connectionMade(self) -> None:
        """Never called: `makeConnection` replaces it."""

    def dataReceived(self, data: bytes) -> None:
        raise AssertionError("the transport hands over frames, not data")

    def connectionLost(self, reason: Failure) -> None:
        self.receiver.connection_lost(reason.getErrorMessage())


class FramePort(tcp.Port):
    """A port whose connections are made by `transport`, which takes the arguments of `FrameServer`."""

    def __init__(self, options: SocketOptions, transport: Any, *args: Any) -> None:
        super().__init__(*args)
        self.transport = transport
        self._options = options
        self.pacing = b""
        """The congestion control of connections from other machines, if they begin with another one."""

    def createInternetSocket(self) -> socket.socket:
        # Accepted sockets inherit the options; set after accepting, they no longer widen the TCP window.
        sock = super().createInternetSocket()
        self._options.apply(sock)
        self.pacing = begin_unpaced(sock)
        return sock

    def doRead(self) -> None:
        # Twisted raises the number with each turn that uses it up, without an end: where thousands connect
        # again and again, one turn of the reactor would accept them all before anybody else is served.
        self.numberAccepts = min(self.numberAccepts, _TURN_ACCEPTS)
        super().doRead()
