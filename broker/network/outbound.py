"""Requests to other brokers, over one connection per destination, answered in the order sent."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from twisted.internet.defer import Deferred, fail

from holdfast_log.broker.network.handshake import CallerHandshake, HandshakeError
from holdfast_log.broker.network.interfaces import Address, Network, Wire
from holdfast_log.coordinator.clock import Clock, DelayedCall
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.frames import Part, parts_size
from holdfast_log.protocol.headers import decode_correlation_id, decode_response, encode_request
from holdfast_log.protocol.inter_broker import NEWEST, request_version
from holdfast_log.protocol.messages.authenticate_broker import AuthenticateBrokerRequest
from holdfast_log.protocol.sasl.callers import SaslCaller
from holdfast_log.protocol.sasl.exchange import sasl_exchange
from holdfast_log.protocol.schema import MalformedMessage

_log = logging.getLogger(__name__)

R = TypeVar("R", bound=Response)

_HANDSHAKE_ID = 0x7FFFFFFF
"""Correlation id of the requests of a login and of a handshake."""

SaslLogin: TypeAlias = Generator[Request[Any], Response, int]
"""An authentication under way, as `sasl_exchange` makes it."""


class ChannelError(Exception):
    """A request to another broker got no response. It may or may not have been carried out."""


class ChannelLost(ChannelError):
    """The connection was lost, could not be opened, or was closed by this broker."""


class ChannelTimeout(ChannelError):
    """The response did not arrive within the timeout."""


class ChannelFull(ChannelError):
    """The channel has the maximum of unanswered bytes; this request was not sent."""


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Settings of channels. `protocol` is the version of the protocol between brokers to use. The delay after
    a failed connection doubles from `backoff_ms` to `backoff_ms_max`, less up to a fifth at random, so that
    brokers do not all reconnect at once."""

    client_id: str
    protocol: int = NEWEST
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    backoff_ms: int = 50
    backoff_ms_max: int = 1_000
    response_bytes_max: int = 256 * 1024 * 1024
    unanswered_bytes_max: int = 64 * 1024 * 1024


class BrokerChannel:
    """Requests to one broker, pipelined, in order, each sent at most once.

    The channel connects when there is a request to send. When the connection is lost or cannot be opened,
    every unanswered request fails, sent or not, so that none overtakes a lost one; the caller decides whether
    to retry. Responses are decoded in place: their records are views of the received frame.

    `random` returns numbers from 0 up to 1. `begin_handshake` makes the handshake that precedes the requests
    of each connection; None: there is none. `login` makes the SASL authentication that precedes both; None:
    there is none.
    """

    def __init__(
        self,
        address: Address,
        network: Network,
        clock: Clock,
        random: Callable[[], float],
        settings: ChannelSettings,
        begin_handshake: Callable[[], CallerHandshake] | None = None,
        login: Callable[[], SaslCaller] | None = None,
    ) -> None:
        self._login = login
        self._begin_handshake = begin_handshake
        self.address = address
        self._network = network
        self._clock = clock
        self._random = random
        self._settings = settings
        self._next_correlation_id = 0
        self._unanswered: deque[_Call] = deque()
        self._unanswered_bytes = 0
        self._link: _Link | None = None  # connected or connecting
        self._failures = 0
        self._retry: DelayedCall | None = None
        self._is_closed = False

    def __str__(self) -> str:
        return f"the channel to {self.address}"

    @property
    def is_connected(self) -> bool:
        return self._link is not None and self._link.is_ready

    @property
    def unanswered_bytes(self) -> int:
        return self._unanswered_bytes

    def send(
        self, request: Request[R], version: int | None = None, timeout_ms: int | None = None
    ) -> Deferred[R]:
        """The response to `request`, sent in `version` (by default that of the protocol between brokers).

        Fails with `ChannelError`, or with MalformedMessage if the response cannot be decoded; raises what
        `encode_request` raises. A request that is not answered in time closes the connection, since later
        requests would not be answered either. Cancelling abandons the response, not the request.
        """
        if self._is_closed:
            return fail(ChannelLost(f"{self} is closed"))
        version = request_version(request.api, self._settings.protocol) if version is None else version
        correlation_id = self._next_correlation_id
        parts = encode_request(request, version, correlation_id, self._settings.client_id)
        size = parts_size(parts)
        if self._unanswered_bytes and self._unanswered_bytes + size > self._settings.unanswered_bytes_max:
            return fail(ChannelFull(f"{self} has {self._unanswered_bytes} bytes unanswered"))
        self._next_correlation_id = (correlation_id + 1) % _HANDSHAKE_ID
        timeout_ms = self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        timer = self._clock.callLater(timeout_ms / 1000, self._timed_out, correlation_id, timeout_ms)
        call = _Call(type(request), version, correlation_id, parts, size, timer, Deferred())
        self._unanswered.append(call)
        self._unanswered_bytes += size
        if self._link is None:
            self._connect()
        elif self._link.wire is not None and self._link.is_ready:
            if self._link.login is not None:
                self._link.held.append(parts)
            else:
                self._link.wire.send(parts)
        return call.answer

    def move(self, address: Address) -> None:
        """Use the new address of the broker, and drop the connection to the old one."""
        if address == self.address:
            return
        self.address = address
        self._failures = 0
        self._cancel_retry()
        self._drop(f"the broker has moved to {address}")

    def close(self) -> None:
        """Fail all unanswered requests, and send no more."""
        self._is_closed = True
        self._cancel_retry()
        self._drop(f"{self} is closed")

    def _connect(self) -> None:
        if self._retry is None:
            self._link = _Link(self, self._settings.response_bytes_max)
            self._network.connect(
                self.address.host, self.address.port, self._link, self._settings.connect_timeout_ms
            )

    def _connect_after_pause(self) -> None:
        self._retry = None
        if self._unanswered:
            self._connect()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _connected(self, link: _Link, wire: Wire) -> None:
        if self._login is None:
            self._authenticated(link, wire)
            return
        link.login = sasl_exchange(self._login())
        self._log_in(link, link.login, None)

    def _log_in(self, link: _Link, login: SaslLogin, answer: Response | None) -> None:
        """Send the next request of an authentication, or go on if it has ended."""
        wire = link.wire
        assert wire is not None
        try:
            link.asked = next(login) if answer is None else login.send(answer)
        except StopIteration as end:
            link.login = link.asked = None
            self._schedule_renewal(link, end.value)
            if link.is_ready:
                self._send_held(link, wire)
            else:
                self._authenticated(link, wire)
        except BrokerError as error:
            self._refused(f"it does not let this broker log in: {error}")
        else:
            wire.send(self._first_request(link.asked))

    def _login_answered(self, link: _Link, login: SaslLogin, frame: memoryview) -> None:
        asked = link.asked
        assert asked is not None
        try:
            answer = decode_response(type(asked), asked.api.max_version, frame)
        except MalformedMessage as error:
            self._refused(str(error))
            return
        self._log_in(link, login, answer)

    def _schedule_renewal(self, link: _Link, lifetime_ms: int) -> None:
        if lifetime_ms > 0:
            pause_s = lifetime_ms * (0.85 + self._random() / 10) / 1000
            link.renewal = self._clock.callLater(pause_s, self._renew, link)

    def _renew(self, link: _Link) -> None:
        """Authenticate again, before the session ends (KIP-368). Requests are held until that is done; the
        answers to those before still come."""
        link.renewal = None
        if self._login is not None and link is self._link and link.is_ready:
            link.login = sasl_exchange(self._login())
            self._log_in(link, link.login, None)

    def _send_held(self, link: _Link, wire: Wire) -> None:
        held, link.held = link.held, []
        for parts in held:
            wire.send(parts)

    def _authenticated(self, link: _Link, wire: Wire) -> None:
        if self._begin_handshake is None:
            self._ready(link, wire)
            return
        link.handshake = self._begin_handshake()
        wire.send(self._first_request(link.handshake.first()))

    def _first_request(self, request: Request[Any]) -> Sequence[Part]:
        """A request that precedes all others of a connection."""
        return encode_request(request, request.api.max_version, _HANDSHAKE_ID, self._settings.client_id)

    def _ready(self, link: _Link, wire: Wire) -> None:
        link.is_ready = True
        for call in self._unanswered:
            wire.send(call.parts)

    def _handshake_answered(self, link: _Link, handshake: CallerHandshake, frame: memoryview) -> None:
        request = AuthenticateBrokerRequest
        try:
            following = handshake.answered(decode_response(request, request.api.max_version, frame))
        except (MalformedMessage, HandshakeError) as error:
            self._refused(str(error))
            return
        wire = link.wire
        if wire is None:
            return
        if following is not None:
            wire.send(self._first_request(following))
            return
        link.handshake = None
        self._ready(link, wire)

    def _refused(self, reason: str) -> None:
        """Close the connection, because the brokers do not know each other for what they are."""
        if not self._failures:
            _log.warning("Closing %s: %s", self, reason)
        self._cut()
        self._lost(reason)

    def _answer_received(self, frame: memoryview) -> None:
        self._failures = 0
        try:
            correlation_id = decode_correlation_id(frame)
        except MalformedMessage as error:
            self._fault(str(error))
            return
        if not self._unanswered or self._unanswered[0].correlation_id != correlation_id:
            self._fault(f"it answered request {correlation_id}, which is not the oldest unanswered one")
            return
        call = self._take()
        try:
            response = decode_response(call.request_class, call.version, frame)
        except MalformedMessage as error:
            call.answer.errback(error)
            self._fault(str(error))
        else:
            call.answer.callback(response)

    def _take(self) -> _Call:
        call = self._unanswered.popleft()
        self._unanswered_bytes -= call.size
        if call.timer.active():
            call.timer.cancel()
        return call

    def _timed_out(self, correlation_id: int, timeout_ms: int) -> None:
        reason = f"{self.address} did not answer within {timeout_ms} ms"
        _log.warning("Closing %s: %s", self, reason)
        for position, call in enumerate(self._unanswered):
            if call.correlation_id == correlation_id:
                del self._unanswered[position]
                self._unanswered_bytes -= call.size
                self._drop(f"another request on this connection timed out: {reason}")
                call.answer.errback(ChannelTimeout(reason))
                return

    def _fault(self, reason: str) -> None:
        """Close the connection because the other broker violates the protocol."""
        _log.warning("Closing %s: %s", self, reason)
        self._cut()
        self._lost(reason)

    def _drop(self, reason: str) -> None:
        """Close the connection and fail its requests."""
        self._cut()
        self._fail_all(reason)

    def _cut(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.end()
            link.channel = None
            if link.wire is not None:
                link.wire.abort()

    def _lost(self, reason: str) -> None:
        """Fail all requests after the connection was lost or not opened; delay the next attempt."""
        if self._link is not None:
            self._link.end()
        self._link = None
        settings = self._settings
        pause_ms = min(settings.backoff_ms_max, settings.backoff_ms * 2 ** min(self._failures, 20))
        self._failures += 1
        if self._failures == 1:
            _log.info("Lost the connection of %s; its unanswered requests fail: %s", self, reason)
        pause_s = pause_ms * (1 - self._random() / 5) / 1000
        self._retry = self._clock.callLater(pause_s, self._connect_after_pause)
        self._fail_all(reason)

    def _fail_all(self, reason: str) -> None:
        # Emptied first: requests sent while these fail belong to the next connection.
        calls = [self._take() for _ in range(len(self._unanswered))]
        for call in calls:
            call.answer.errback(ChannelLost(f"{self.address}: {reason}"))


@dataclass(slots=True)
class _Call:
    request_class: type[Request[Any]]
    version: int
    correlation_id: int
    parts: Sequence[Part]
    size: int
    timer: DelayedCall
    answer: Deferred[Any]


class _Link:
    """One connection, or attempt, of a channel; it calls nothing once the channel has dropped it."""

    def __init__(self, channel: BrokerChannel, frame_bytes_max: int) -> None:
        self.channel: BrokerChannel | None = channel
        self.frame_bytes_max = frame_bytes_max
        self.wire: Wire | None = None
        self.login: SaslLogin | None = None  # that has not ended
        self.asked: Request[Any] | None = None  # by the login
        self.renewal: DelayedCall | None = None  # of the login
        self.held: list[Sequence[Part]] = []
        """Requests to send once the login that is being renewed has ended."""
        self.handshake: CallerHandshake | None = None  # that has not ended
        self.is_ready = False
        """Whether the connection is open, and login and handshake have ended."""

    @property
    def is_holding(self) -> bool:
        return False

    def connected(self, wire: Wire) -> None:
        if self.channel is None:
            wire.abort()
            return
        self.wire = wire
        self.channel._connected(self, wire)

    def identified(self, principal: str) -> None:
        """Nothing to do: the wire has verified the other broker's name."""

    def end(self) -> None:
        """The connection is, or will be, closed."""
        if self.renewal is not None and self.renewal.active():
            self.renewal.cancel()
        self.renewal = self.login = None

    def frames_received(self, frames: Sequence[memoryview]) -> None:
        for frame in frames:
            if self.channel is None:
                return
            if self.login is not None and _is_of_login(frame):
                self.channel._login_answered(self, self.login, frame)
            elif self.handshake is not None:
                self.channel._handshake_answered(self, self.handshake, frame)
            else:
                self.channel._answer_received(frame)

    def frame_refused(self, size: int) -> None:
        if self.channel is not None:
            self.channel._fault(f"it announced a response of {size} bytes, which is not allowed")

    def bytes_sent(self, count: int) -> None:
        """Nothing to do: unanswered bytes are counted whether sent or not."""

    def connection_lost(self, reason: str) -> None:
        self.wire = None
        if self.channel is not None:
            if self.login is not None:
                reason = f"{reason}, before it let this broker log in (sasl.mechanism.inter.broker.protocol)"
            elif self.handshake is not None:
                reason = f"{reason}, before it proved that it has the cluster's secret (cluster.secret.file)"
            self.channel._lost(reason)


def _is_of_login(frame: memoryview) -> bool:
    """Whether a response may be that to a request of a login."""
    return frame[:4] == _HANDSHAKE_ID.to_bytes(4)
