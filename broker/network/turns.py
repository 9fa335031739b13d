"""The usual turn of a connection: one request that came alone, and is answered at once or later.

Most clients wait for each response, so most requests are the only one of their connection. They need no
queue. Whatever is unusual (several requests, limits, muting, closing) is done by the methods that
`ServerConnection` overrides. `protocol._turns` is the same, compiled, and is used if it is installed; the
environment variable HOLDFAST_PURE_PYTHON selects the Python in this file.
"""

from __future__ import annotations

import typing
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from holdfast_log.broker.network.interfaces import Wire
from holdfast_log.broker.network.rotation import Rotation
from holdfast_log.coordinator.clock import DelayedCall
from holdfast_log.protocol.compiled import extension
from holdfast_log.protocol.frames import SIZE, Part, parts_size

_SIZE_BYTES = SIZE.size

LONG_BYTES = 16 * 1024
"""A request with as many bytes may take long, unless it brings records. It has to wait for its turn if others
had theirs: several that arrive together would otherwise be one long turn. One that is not usual is decoded in
turns (`requests.long_decoding`); fewer bytes have 4,000 elements at most, and usually far fewer."""

_PRODUCE = b"\0\0"
"""How a request begins that brings records: the key of its API."""


class ReplySlot:
    """The place of one response in the order of its connection. The handler calls either `send` or `nothing`,
    once, at any time; after the connection has closed both do nothing."""

    __slots__ = ("_connection", "parts", "request_bytes")

    def __init__(self, connection: Turns, request_bytes: int) -> None:
        self.request_bytes = request_bytes
        self.parts: Sequence[Part] | None = None
        """None: not answered yet."""
        self._connection = connection

    def send(self, parts: Sequence[Part]) -> None:
        """Answer with `parts`: one whole frame, its size included."""
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        self._connection._answered(self, parts_size(parts))

    def nothing(self) -> None:
        """End the request without a response (Produce with acks=0)."""
        assert self.parts is None, "a request is answered once"
        self.parts = ()
        self._connection._answered(self, 0)


SENDERS_MAX = 32
"""So many connections wait with their responses at most. Their clients go on while the next are served."""


WAIT_S = 0.001
"""Responses that have waited for so long are sent before the next request is handled."""


class SendingTurn:
    """The connections whose responses are sent together, while the reactor reads from several.

    A response wakes the client that waits for it, and on a virtual machine that takes longer than to send
    it. A program with many connections, which would be woken for each response, is awake for those that
    follow at once. So responses wait for others, until the turn ends at the latest; one that is alone does
    not wait, and none does while a request is handled that may take long. `begin` and `end` are called by the
    reactor.
    """

    __slots__ = ("_due", "_since_s", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        """Whether responses wait."""
        self._due: list[Turns] = []
        self._since_s = 0.0

    def begin(self) -> None:
        """Several sockets are read now."""
        self.is_open = True

    def end(self) -> None:
        """They have been read: send what waits."""
        self.is_open = False
        self.flush()

    def add(self, connection: Turns) -> None:
        """Send what the connection has in its outbox, in this turn."""
        if not self._due:
            self._since_s = connection._last_activity_s
        self._due.append(connection)
        if len(self._due) >= SENDERS_MAX:
            self.flush()

    def hurry(self, now_s: float) -> None:
        """Send what has waited long, by the clock of the connections."""
        if self._due and now_s - self._since_s > WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Send what waits: a request that may take long is about to be handled."""
        due, self._due = self._due, []
        for connection in due:
            try:
                connection._send_due()
            except Exception as error:
                connection._handler_failed(error)


class Turns:
    """The state of a connection that each request changes; `ServerConnection` explains it."""

    close_reason: str | None
    bytes_in: int
    bytes_out: int
    requests: int
    last_request_s: float
    _last_activity_s: float
    _clock_s: Callable[[], float]
    _handler: Callable[[Any, memoryview, ReplySlot], None]
    _wire: Wire | None
    _waiting: deque[memoryview]
    """Received, not yet given to the handler."""
    _replies: deque[ReplySlot]
    """Of requests given to the handler, in their order."""
    _outbox: list[Part]
    """Responses whose turn has come, not yet given to the wire."""
    _buffered_bytes: int
    _buffered_bytes_max: int
    _in_flight_requests_max: int
    _in_turn: bool
    _is_paused: bool
    _unmute: DelayedCall | None
    _next_turn: Rotation | None
    """Where the connection waits for its turn; None: nowhere."""
    _sending: SendingTurn
    _is_due: bool
    """Whether the connection waits there with its outbox."""

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        if self.close_reason is not None:
            return
        self._last_activity_s = self.last_request_s = self._clock_s()
        if self._sending.is_open:
            self._sending.hurry(self.last_request_s)
        if (
            len(frames) == 1
            and not (self._replies or self._waiting or self._in_turn or self._is_paused)
            and self._unmute is None
            and self._next_turn is None
            and self._buffered_bytes <= self._buffered_bytes_max
            and (len(frames[0]) < LONG_BYTES or frames[0][:2] == _PRODUCE)
        ):
            self._handle_alone(frames[0])
        else:
            self._queue(frames)

    def bytes_sent(self, count: int) -> None:
        self.bytes_out += count
        if self.close_reason is not None:
            return
        self._buffered_bytes -= count
        self._last_activity_s = self._clock_s()
        if self._is_paused:
            self._take_turn()

    def _handle_alone(self, frame: memoryview) -> None:
        """What `_take_turn` does, for a connection's only request that is within all limits."""
        size = len(frame)
        self.bytes_in += size + _SIZE_BYTES
        self.requests += 1
        self._buffered_bytes += size
        reply = ReplySlot(self, size)
        self._replies.append(reply)
        self._in_turn = True
        try:
            self._handler(self, frame, reply)
        except Exception as error:
            self._handler_failed(error)
        waits = self._waits_with_outbox()
        if not waits:
            self._give_to_wire()
        self._in_turn = False
        if self._waiting:
            self._take_turn()
        elif not waits and (
            self._replies or self._unmute is not None or self._buffered_bytes > self._buffered_bytes_max
        ):
            self._regulate()

    def _waits_with_outbox(self) -> bool:
        """Whether the outbox is sent with others, which this function sees to."""
        if not self._sending.is_open or not self._outbox:
            return False
        if not self._is_due:
            self._is_due = True
            self._sending.add(self)
        return True

    def _send_due(self) -> None:
        self._is_due = False
        if self.close_reason is None:
            self._give_to_wire()
            self._regulate()

    def _give_to_wire(self) -> None:
        outbox = self._outbox
        if outbox and self._wire is not None:
            self._outbox = []
            self._wire.send(outbox)

    def _answered(self, reply: ReplySlot, size: int) -> None:
        if self.close_reason is not None:
            return
        self._buffered_bytes += size - reply.request_bytes
        replies = self._replies
        while replies and (parts := replies[0].parts) is not None:
            self._outbox += parts
            replies.popleft()
        if not self._in_turn:
            self._take_turn()

    # What is unusual

    def _queue(self, frames: Sequence[memoryview]) -> None:
        raise NotImplementedError

    def _take_turn(self) -> None:
        raise NotImplementedError

    def _regulate(self) -> None:
        raise NotImplementedError

    def _handler_failed(self, error: Exception) -> None:
        raise NotImplementedError


_compiled = extension("_turns")
if _compiled is not None and not typing.TYPE_CHECKING:
    ReplySlot, SendingTurn, Turns = _compiled.ReplySlot, _compiled.SendingTurn, _compiled.Turns
