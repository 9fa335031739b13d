"""One client's connection: handles requests in order, and limits the bytes that they occupy.

A connection has no socket: it sends through a `Wire`, which calls it with the received frames.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from holdfast_log.broker.network.handshake import Handshake
from holdfast_log.broker.network.interfaces import Address, Wire, source_address
from holdfast_log.broker.network.refusals import RefusalPace, Refusals
from holdfast_log.broker.network.rotation import Rotation, SlicedWork
from holdfast_log.broker.network.settings import SETTINGS
from holdfast_log.broker.network.turns import ReplySlot as ReplySlot
from holdfast_log.broker.network.turns import SendingTurn, Turns
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.frames import SIZE, Part

_log = logging.getLogger(__name__)

ANONYMOUS = "User:ANONYMOUS"

REQUESTS_PER_TURN = 64
"""Maximum number of requests of one connection handled before those of other connections, if they take less
time than a turn may take (`Rotation`)."""

_SHOWN_CLIENT_ID = 100

_NOTED_MAX = 8
"""Maximum number of causes of refused requests that one connection logs."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Maximum memory and number of requests of one connection."""

    frame_bytes_max: Annotated[int, "socket.request.max.bytes"]
    buffered_bytes_max: Annotated[int, "connection.max.buffered.bytes"]
    in_flight_requests_max: Annotated[int, "connection.max.in.flight.requests"]


FrameHandler: TypeAlias = "Callable[[ServerConnection, memoryview, ReplySlot], None]"
"""Handles a request: its frame, which is writable and stays valid while referenced, and the slot of its
response. The handler may answer now or later; an exception closes the connection."""

CloseCallback: TypeAlias = "Callable[[ServerConnection], None]"


class ServerConnection(Turns):
    """The server's end of a connection.

    Read-only to others: `id` (rising), `peer`, `listener` (its name), `created_ms` and `last_activity_ms` (by
    the given clock), `close_reason`, and the counters. `principal`, `client_id` and the client's software
    name and version are set once they are known; `frame_bytes_max` may be set lower until the peer has
    proved who it is. `refusals`, `rotation` and `sending` are shared by all connections of a broker; a
    connection without them has its own.

    `is_broker` says whether the peer counts as a broker of this cluster: by the listener, or since it has
    proved that it has the cluster's secret. Nothing else that the peer says decides about it.

    While the handler runs for a request that has waited in the connection, `began_s` is the time at which it
    was called and `queued_s` for how long the request has waited, both by the clock; otherwise both are 0.
    """

    def __init__(
        self,
        connection_id: int,
        listener: str,
        peer: Address,
        handler: FrameHandler,
        limits: ConnectionLimits,
        clock: Clock,
        refusals: Refusals | None = None,
        rotation: Rotation | None = None,
        sending: SendingTurn | None = None,
        *,
        is_broker: bool = False,
    ) -> None:
        self.id = connection_id
        self.is_broker = is_broker
        self.listener = listener
        self.peer = peer
        self.principal = ANONYMOUS
        self.client_id = ""
        self.client_software_name = ""
        self.client_software_version = ""
        self.frame_bytes_max = self._frame_bytes_max = limits.frame_bytes_max
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.close_reason: str | None = None

        self._handler = handler
        self._buffered_bytes_max = limits.buffered_bytes_max
        self._in_flight_requests_max = limits.in_flight_requests_max
        self._clock = clock
        self._refusals = refusals or Refusals(clock, RepeatedLog(clock), RefusalPace())
        self._rotation = rotation or Rotation(clock)
        self._sending = sending or SendingTurn()
        self._is_due = False
        self._noted: tuple[str, ...] = ()  # causes of refused requests that are logged
        self.has_handshake = False
        self._exchange: Handshake | None = None
        self._clock_s = clock.seconds
        self._last_activity_s = clock.seconds()
        self.created_ms = self.last_activity_ms
        self.last_request_s = self._clock.seconds()
        self._wire: Wire | None = None
        self.began_s = 0.0
        self.queued_s = 0.0
        self._waiting: deque[memoryview] = deque()  # received, not yet given to the handler
        self._arrivals_s: deque[float] = deque()  # of those in `_waiting`
        self._replies: deque[ReplySlot] = deque()  # of requests given to the handler, in their order
        self._outbox: list[Part] = []  # responses whose turn has come, not yet given to the wire
        self._buffered_bytes = 0
        self._in_turn = False
        self._is_paused = False
        self._holds = 0
        self._unmute: DelayedCall | None = None
        self._next_turn: Rotation | None = None
        self._close_callbacks: dict[CloseCallback, None] = {}

    def __str__(self) -> str:
        # What the client calls itself is quoted, so that it can neither end the log's line nor fill the log.
        client = f" ({self.client_id[:_SHOWN_CLIENT_ID]!r})" if self.client_id else ""
        return f"connection {self.id} from {self.peer}{client} on {self.listener}"

    # Called by the broker

    @property
    def is_closed(self) -> bool:
        return self.close_reason is not None

    @property
    def last_activity_ms(self) -> int:
        return int(self._last_activity_s * 1000)

    @property
    def last_activity_s(self) -> float:
        """When bytes were last received or sent, in seconds of the clock."""
        return self._last_activity_s

    @property
    def source(self) -> str:
        """Who the client is, for limits that each client has for itself: its principal, or the address of one
        that has not proved who it is."""
        return source_address(self.peer.host) if self.principal == ANONYMOUS else self.principal

    @property
    def is_muted(self) -> bool:
        return self._unmute is not None

    @property
    def is_paused(self) -> bool:
        """Whether the connection is not read, because it has used up its budget or is muted."""
        return self._is_paused

    @property
    def is_holding(self) -> bool:
        """Whether requests have been received that are not being handled yet."""
        return bool(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no request is unanswered; responses that the peer does not read may be left to send."""
        return not self._waiting and all(reply.parts is not None for reply in self._replies)

    @property
    def in_flight_requests(self) -> int:
        """Requests given to the handler whose responses have not gone to the wire."""
        return len(self._replies)

    @property
    def received_requests(self) -> int:
        """Received requests, including those that have not been given to the handler."""
        return self.requests + len(self._waiting)

    @property
    def buffered_bytes(self) -> int:
        """Bytes of unanswered requests and unsent responses, which the budget limits."""
        return self._buffered_bytes

    @property
    def handler(self) -> FrameHandler:
        """What handles the requests of this connection."""
        return self._handler

    def handle_with(self, handler: FrameHandler) -> None:
        """Have `handler` handle the requests from the next one on."""
        self._handler = handler

    def may_take_long(self) -> None:
        """The request that is being handled may take long: send what other connections have to send first."""
        if self._sending.is_open:
            self._sending.flush()

    def begin_handshake(self, exchange: Handshake) -> None:
        """Keep what the peer's proof is made of, until the peer sends it. A connection has one handshake."""
        self.has_handshake = True
        self._exchange = exchange

    def count_as_broker(self) -> None:
        """The peer has proved that it is a broker of this cluster."""
        self.is_broker = True
        self.frame_bytes_max = self._frame_bytes_max

    def end_handshake(self) -> Handshake | None:
        """What the peer's proof must be made of; None without a handshake that has begun."""
        exchange, self._exchange = self._exchange, None
        return exchange

    def close(self, reason: str) -> None:
        """Close the connection without handling queued requests or sending responses. All close callbacks
        have run when this returns."""
        if self._closed(reason) and self._wire is not None:
            self._wire.abort()

    def refuse(self, cause: str, reason: str) -> None:
        """Log `reason` and close the connection, because of what the client sent. No request is handled and
        nothing is sent any more. If the client's address has had many connections refused, the socket closes
        after a delay. `cause` is a phrase as for `RepeatedLog`."""
        if self.close_reason is not None:
            return
        self._refusals.log.warning(_log, cause, "Closing %s: %s", self, reason)
        wire = self._wire
        if self._closed(reason) and wire is not None:
            self._end_refused(wire, wire.abort)

    def note_refused_request(self, cause: str, reason: str) -> None:
        """Log that a request of the client is refused, once for each connection and `cause`, a phrase as for
        `RepeatedLog`. The connection stays open."""
        if cause in self._noted or len(self._noted) >= _NOTED_MAX:
            return
        self._noted += (cause,)
        self._refusals.log.warning(_log, cause, "Refused a request on %s: %s", self, reason)

    def close_when_sent(self, reason: str) -> None:
        """Close the connection after the responses that were already given to the wire."""
        self._flush()
        if self._closed(reason) and self._wire is not None:
            self._wire.close()

    def add_close_callback(self, callback: CloseCallback) -> None:
        """Call `callback(connection)` once when the connection closes; immediately if it is closed. Callbacks
        run in the order in which they were added; adding one again has no effect."""
        if self.close_reason is not None:
            callback(self)
        else:
            self._close_callbacks[callback] = None

    def mute(self, delay_ms: int) -> None:
        """Handle and read nothing for `delay_ms`; the longest of several mutes applies (KIP-219)."""
        if delay_ms <= 0 or self.is_closed:
            return
        delay_s = delay_ms / 1000
        if self._unmute is None:
            self._unmute = self._clock.callLater(delay_s, self.unmute)
        elif self._unmute.getTime() < self._clock.seconds() + delay_s:
            self._unmute.reset(delay_s)
        self._regulate()

    def shorten_mute(self, delay_ms: int) -> None:
        """End a mute after `delay_ms` at the latest."""
        if self._unmute is None:
            return
        delay_s = delay_ms / 1000
        if delay_ms <= 0:
            self.unmute()
        elif self._unmute.getTime() > self._clock.seconds() + delay_s:
            self._unmute.reset(delay_s)

    def unmute(self) -> None:
        """End a mute before its time."""
        timer, self._unmute = self._unmute, None
        if timer is not None and timer.active():
            timer.cancel()
        self._take_turn()

    def hold(self) -> None:
        """Handle and read no further request until `go_on`: it would overtake one that is being handled in
        parts, or make another answer that waits for its turns. Each of several holds has to end."""
        self._holds += 1
        self._regulate()

    def go_on(self) -> None:
        """End what one `hold` began."""
        self._holds -= 1
        if not self._holds:
            self._take_turn()

    def take_turns(self, work: SlicedWork) -> None:
        """Do what a long request needs in slices, in rotation with what other connections wait for. No
        further request is handled before the last one."""
        self.hold()
        self._rotation.enqueue(_Held(self, work))

    # Called by the wire

    def connected(self, wire: Wire) -> None:
        self._wire = wire
        if self._unmute is not None:
            self._regulate()

    def identified(self, principal: str) -> None:
        self.principal = principal

    def frame_refused(self, size: int) -> None:
        if self.close_reason is not None:
            return
        reason = f"it announced a request of {size} bytes; allowed are 0 to {self.frame_bytes_max}"
        self._refusals.log.warning(_log, "requests that are too large", "Closing %s: %s", self, reason)
        self._flush()
        wire = self._wire
        if self._closed(reason) and wire is not None:
            self._end_refused(wire, wire.close)

    def connection_lost(self, reason: str) -> None:
        self._closed(reason)
        self._wire = None

    # Internal

    def _queue(self, frames: Sequence[memoryview]) -> None:
        """Handle frames in the order of their arrival, as soon as the limits allow it."""
        self.bytes_in += sum(map(len, frames)) + SIZE.size * len(frames)
        self._waiting.extend(frames)
        self._arrivals_s.extend([self.last_request_s] * len(frames))
        self._take_turn()

    def _take_turn(self) -> None:
        """Pass waiting requests to the handler, or wait for the connection's turn to do so. Without any, send
        the responses that are due. No effect while another turn is running or expected."""
        if self._in_turn or self._next_turn is not None:
            return
        if self._waiting and self._may_handle():
            rotation, began_s = self._rotation, self._clock_s()
            ends_s = rotation.at_once_s(began_s)
            if ends_s:
                has_more = self.take_slice(ends_s)
                rotation.spent(self._clock_s() - began_s)
                if not has_more:
                    return
            else:
                self._next_turn = rotation
            rotation.enqueue(self)
        elif not self._waiting and self._waits_with_outbox():
            return
        self._flush()
        self._regulate()

    def take_slice(self, ends_s: float) -> bool:
        """Pass waiting requests to the handler until `ends_s`, up to the limits of the connection and of one
        turn, and send all immediate responses together. Returns whether more could be handled."""
        self._in_turn = True
        waiting = self._waiting
        for _ in range(REQUESTS_PER_TURN):
            if not waiting or not self._may_handle():
                break
            self._handle(waiting.popleft())
            if waiting and self._clock_s() >= ends_s:
                break
        self._flush()
        self._in_turn = False
        has_more = bool(waiting) and self._may_handle()
        self._next_turn = self._rotation if has_more else None
        self._regulate()
        return has_more

    def _may_handle(self) -> bool:
        return (
            self.close_reason is None
            and self._unmute is None
            and not self._holds
            and len(self._replies) < self._in_flight_requests_max
            and self._buffered_bytes <= self._buffered_bytes_max
        )

    def _handle(self, frame: memoryview) -> None:
        self.requests += 1
        self._buffered_bytes += len(frame)
        reply = ReplySlot(self, len(frame))
        self._replies.append(reply)
        self.began_s = self._clock_s()
        self.queued_s = self.began_s - self._arrivals_s.popleft()
        try:
            self._handler(self, frame, reply)
        except Exception as error:
            self._handler_failed(error)
        self.began_s = self.queued_s = 0.0

    def _handler_failed(self, error: Exception) -> None:
        cause = "requests whose handling raised an unexpected exception"
        self._refusals.log.error(
            _log, cause, "Closing %s: its request could not be handled", self, exc_info=error
        )
        self.close("a request could not be handled")

    def _flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        if outbox and self._wire is not None and self.close_reason is None:
            self._wire.send(outbox)

    def _regulate(self) -> None:
        """Read from the wire exactly while more could be handled."""
        if self._wire is None or self.close_reason is not None:
            return
        is_wanted = not self._waiting and self._may_handle()
        if is_wanted and self._is_paused:
            self._is_paused = False
            self._wire.resume()
        elif not is_wanted and not self._is_paused:
            self._is_paused = True
            self._wire.pause()

    def _end_refused(self, wire: Wire, close: Callable[[], None]) -> None:
        """Have the shared refusals decide when to close the socket. Until then nothing is read from it."""
        if not self._is_paused:
            self._is_paused = True
            wire.pause()
        self._refusals.end(self.peer.host, close)

    def _closed(self, reason: str) -> bool:
        """Mark the connection as closed and run its close callbacks. Returns False if it was closed."""
        if self.close_reason is not None:
            return False
        self.close_reason = reason
        self._waiting.clear()
        self._arrivals_s.clear()
        self._replies.clear()
        self._outbox = []
        self._buffered_bytes = 0
        if self._unmute is not None and self._unmute.active():
            self._unmute.cancel()
        self._unmute = self._next_turn = None
        callbacks, self._close_callbacks = self._close_callbacks, {}
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:
                self._refusals.log.error(
                    _log,
                    "close callbacks that failed",
                    "A close callback of %s failed; the others still run",
                    self,
                    exc_info=error,
                )
        return True


@dataclass(frozen=True, slots=True)
class _Held:
    """Work in slices, during which its connection is held."""

    connection: ServerConnection
    work: SlicedWork

    def take_slice(self, ends_s: float) -> bool:
        try:
            has_more = self.work.take_slice(ends_s)
        except Exception as error:
            self.connection._handler_failed(error)
            return False
        if not has_more:
            self.connection.go_on()
        return has_more
