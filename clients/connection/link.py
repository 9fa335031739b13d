"""The link to one broker: its current channel, the conversation on it, and the calls that wait for it."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast_log.clients.connection.conversation import Authenticator, Conversation, Received
from holdfast_log.clients.connection.diagnosis import cannot_connect, lost, no_answer, not_understood
from holdfast_log.clients.connection.network import Channel, ClientNetwork
from holdfast_log.clients.errors import ClientError, ConnectionFailedError, RequestTimeoutError
from holdfast_log.clients.feedback.traffic import Meter
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.schema import MalformedMessage

_FORGIVEN_AFTER_MS = 60_000
"""Time without a violation of the protocol after which a broker is trusted as before."""
_FAIR_SHARE_OF_READS = 16
"""Most reads from one broker before the others are served."""


@dataclass(slots=True)
class Call:
    """A request on its way to a broker.

    `node` is a broker's id, or `ANY_NODE` or `CONTROLLER` of `clients.connection.connection`.
    `timeout_ms` is how long the response may take, counted from when the call is handed over; None means
    `request.timeout.ms`. `tag` is the caller's own. If `expects_response` is false (a produce request with
    acks=0), the reply comes as soon as the request has been sent, and its response is None. A broker that
    does not announce the feature `needs` is not sent the request: UnsupportedRequestError.
    """

    node: int
    request: Request[Any]
    timeout_ms: int | None = None
    tag: Any = None
    expects_response: bool = True
    needs: str | None = None


@dataclass(slots=True)
class Reply:
    """How a call ended: with a response, or with the error that prevented one.

    `was_sent` is whether a broker may have received the request. `conversation` is the one in which the
    response came, for callers whose state at the broker belongs to the connection.
    """

    call: Call
    response: Response | None = None
    error: Exception | None = None
    latency_ms: int = 0
    was_sent: bool = True
    conversation: Conversation | None = None


@dataclass(slots=True)
class _Waiting:
    call: Call
    since_ms: int
    deadline_ms: int
    is_sent: bool = False


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """The settings of a link. All times in ms."""

    client_id: str
    request_timeout_ms: int
    setup_timeout_ms: int
    backoff_ms: int
    backoff_max_ms: int
    max_idle_ms: int
    max_response_bytes: int
    throttle_max_ms: int
    uses_tls: bool = False


class Link:
    """The link to one broker. Connects when there is a call to send, and again, after a pause, when it broke.

    `on_failure` is called when a connection breaks or cannot be established: the broker may be gone. `meter`
    counts what happens.
    """

    def __init__(
        self,
        host: str,
        port: int,
        network: ClientNetwork,
        settings: LinkSettings,
        rng: random.Random,
        meter: Meter,
        authenticator: Authenticator | None = None,
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        self.host = host
        self.port = port
        self.last_error: Exception | None = None
        """Why the last connection failed or broke; None while one is established."""
        self._network = network
        self._settings = settings
        self._rng = rng
        self.meter = meter
        self._authenticator = authenticator
        self._on_failure = on_failure
        self._channel: Channel | None = None
        self._wire: Conversation | None = None
        self._is_connected = False
        self._has_stood = False
        self._has_answered = False
        self._setup_deadline_ms = 0
        self._used_at_ms = 0
        self.failures = 0
        """How many connections have failed since the last one that was established."""
        self._down_since_ms = 0
        """While `last_error` is set: when the first connection failed since the last one that was
        established."""
        self._not_before_ms = 0
        self._renew_at_ms: int | None = None
        """When to authenticate again; None: never."""
        self._renewing_by_ms = 0
        self._throttled_until_ms = 0
        self._violations = 0
        self._violated_at_ms = 0
        self._queued: deque[_Waiting] = deque()
        self._in_flight: dict[int, _Waiting] = {}
        self._next_token = 0

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    # State ----------------------------------------------------------------------------------

    @property
    def channel(self) -> Channel | None:
        """The current channel; None while there is none."""
        return self._channel

    @property
    def wire(self) -> Conversation | None:
        """The conversation; None before its handshake is done."""
        return self._wire if self._wire is not None and self._wire.is_ready else None

    @property
    def is_ready(self) -> bool:
        """Whether a call could be sent at once."""
        return self.wire is not None

    @property
    def pending(self) -> int:
        """Calls that have no reply yet."""
        return len(self._queued) + len(self._in_flight)

    @property
    def wants_write(self) -> bool:
        """Whether to watch the channel for room to write."""
        if not self._is_connected:
            return True
        return self._wire is not None and bool(self._wire.outgoing)

    def standing(self, now_ms: int) -> str:
        """What a call on this link waits for, in words; empty if for nothing that is known here. May be
        called by any thread."""
        error, sent = self.last_error, [*self._in_flight.values()]
        if error is not None:
            return f"unreachable for {(now_ms - self._down_since_ms) / 1000:.1f} s ({error})"
        if now_ms < self._throttled_until_ms:
            return f"{self} throttles this client for another {self._throttled_until_ms - now_ms} ms"
        if sent:
            oldest_s = (now_ms - min(each.since_ms for each in sent)) / 1000
            return f"{self} has not answered {len(sent)} requests, the oldest of them for {oldest_s:.1f} s"
        return "" if self.is_ready or self._channel is None else f"connecting to {self}"

    def is_blocked(self, now_ms: int) -> bool:
        """Whether nothing may be sent yet: after a failure, or because the broker throttles this client."""
        return now_ms < self._throttled_until_ms or (self._channel is None and now_ms < self._not_before_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        """When to call `tick` next, or when a pause ends; None if neither is due."""
        times = [waiting.deadline_ms for waiting in (*self._queued, *self._in_flight.values())]
        times += [
            until_ms for until_ms in (self._not_before_ms, self._throttled_until_ms) if until_ms > now_ms
        ]
        if self._channel is not None:
            if not self.is_ready:
                times.append(self._setup_deadline_ms)
            elif not self.pending and self._settings.max_idle_ms >= 0:
                times.append(self._used_at_ms + self._settings.max_idle_ms)
        return min(times, default=None)

    # What happens -------------------------------------------------------------------------------------

    def submit(self, call: Call, now_ms: int) -> None:
        """Take a call; one of the methods below returns its reply."""
        timeout_ms = self._settings.request_timeout_ms if call.timeout_ms is None else call.timeout_ms
        self._queued.append(_Waiting(call, now_ms, now_ms + timeout_ms))

    def open(self, now_ms: int) -> list[Reply]:
        """Begin to connect, unless there is a channel or a pause."""
        if self._channel is not None or now_ms < self._not_before_ms:
            return []
        self._setup_deadline_ms = now_ms + self._settings.setup_timeout_ms
        self._used_at_ms = now_ms
        try:
            self._channel = self._network.connect(self.host, self.port)
        except OSError as error:
            return self._failed(self._cannot_connect(error), now_ms)
        return []

    def tick(self, now_ms: int) -> list[Reply]:
        """Connect, send what may be sent, and fail calls whose time has passed."""
        replies = self._expire(now_ms)
        if self._queued and self._channel is None:
            replies += self.open(now_ms)
        if self._channel is not None:
            if not self.is_ready and now_ms >= self._setup_deadline_ms:
                took_ms = self._settings.setup_timeout_ms
                late = no_answer(str(self), took_ms, is_connected=self._is_connected)
                return replies + self._failed(late, now_ms)
            if self._wire is not None and self._wire.is_renewing and now_ms >= self._renewing_by_ms:
                late = no_answer(str(self), self._settings.request_timeout_ms, is_connected=True)
                return replies + self._failed(late, now_ms)
            replies += self.flush(now_ms)
            if self._is_idle(now_ms):
                self.hang_up()
        return replies

    def flush(self, now_ms: int) -> list[Reply]:
        """Send as much as the channel takes."""
        if not self._is_connected or self._channel is None or self._wire is None:
            return []
        replies = self._hand_over(now_ms)
        received: list[Received] = []
        outgoing = self._wire.outgoing
        try:
            while outgoing:
                count = self._channel.send(list(outgoing))
                if count == 0:
                    break
                self._used_at_ms = now_ms
                self.meter.tally.bytes_out += count
                received += self._wire.sent(count)
        except OSError as error:
            return replies + self._failed(self._broken(error), now_ms)
        return replies + self._replies(received, now_ms)

    def _hand_over(self, now_ms: int) -> list[Reply]:
        """Encode the waiting calls, once the broker's versions are known."""
        if not self.is_ready or now_ms < self._throttled_until_ms:
            return []
        assert self._wire is not None
        if self._queued and self._renew_at_ms is not None and now_ms >= self._renew_at_ms:
            self._renew_at_ms = None
            self._renewing_by_ms = now_ms + self._settings.request_timeout_ms
            self._wire.renew()
        if self._wire.is_renewing:
            return []
        refused = []
        while self._queued:
            waiting = self._queued.popleft()
            try:
                self._wire.check_feature(waiting.call.needs)
                self._wire.send(
                    waiting.call.request, self._next_token, expects_response=waiting.call.expects_response
                )
            except Exception as error:  # Not sent, and nothing else is harmed: its caller learns why.
                refused.append(self._end(waiting, now_ms, error=error))
                continue
            waiting.is_sent = True
            self.meter.requested(waiting.call.request.api.name)
            self._in_flight[self._next_token] = waiting
            self._next_token += 1
        return refused

    def on_ready(self, now_ms: int) -> list[Reply]:
        """Receive and send: the channel is ready for one of them."""
        if self._channel is None:
            return []
        try:
            if not self._is_connected:
                if not self._channel.finish_connecting():
                    return []
                self._is_connected = True
                self._wire = Conversation(
                    self._settings.client_id, self._settings.max_response_bytes, self._authenticator
                )
                self._wire.begin()
        except OSError as error:
            return self._failed(self._cannot_connect(error), now_ms)
        return self._receive(now_ms) + self.flush(now_ms)

    def _receive(self, now_ms: int) -> list[Reply]:
        replies: list[Reply] = []
        for _ in range(_FAIR_SHARE_OF_READS):
            assert self._channel is not None and self._wire is not None
            try:
                count = self._channel.receive_into(self._wire.receive_buffer())
                if count is None:
                    break
                if count == 0:
                    raise ConnectionResetError("the broker closed the connection")
                received = self._wire.received(count)
            except OSError as error:
                return replies + self._failed(self._broken(error), now_ms)
            except MalformedMessage as error:
                self._note_violation(now_ms)
                return replies + self._failed(self._garbled(error), now_ms)
            except (BrokerError, ClientError) as error:
                return replies + self._failed(error, now_ms)
            self._used_at_ms = now_ms
            self.meter.tally.bytes_in += count
            if self._wire.is_ready:
                self._has_opened(now_ms)
            replies += self._replies(received, now_ms)
        return replies

    def _note_violation(self, now_ms: int) -> None:
        """Count the violations of the protocol in a row. Connecting again succeeds, so it ends no row: only
        time without a violation does."""
        if now_ms - self._violated_at_ms > _FORGIVEN_AFTER_MS:
            self._violations = 0
        self._violated_at_ms = now_ms
        self._violations += 1

    def _has_opened(self, now_ms: int) -> None:
        assert self._wire is not None
        lifetime_ms = self._wire.take_lifetime_ms()
        if lifetime_ms:
            # Before it ends, and not all clients at once.
            self._renew_at_ms = now_ms + int(lifetime_ms * self._rng.uniform(0.85, 0.95))
        if self._wire.is_renewing:
            # Answers to earlier requests, which may take long, come before those to the authentication.
            self._renewing_by_ms = now_ms + self._settings.request_timeout_ms
        self.failures = 0
        self.last_error = None
        if not self._has_stood:
            self._has_stood = True
            self.meter.opened()

    def _replies(self, received: list[Received], now_ms: int) -> list[Reply]:
        replies = []
        self._has_answered = self._has_answered or bool(received)
        for token, response in received:
            waiting = self._in_flight.pop(token)
            throttle_ms = getattr(response, "throttle_time_ms", 0)
            if throttle_ms > 0:
                obeyed_ms = min(throttle_ms, self._settings.throttle_max_ms)
                self._throttled_until_ms = max(self._throttled_until_ms, now_ms + obeyed_ms)
                self.meter.throttled(waiting.call.request.api.name, obeyed_ms, throttle_ms)
            replies.append(self._end(waiting, now_ms, response=response))
        return replies

    def _expire(self, now_ms: int) -> list[Reply]:
        late = [waiting for waiting in self._in_flight.values() if waiting.deadline_ms <= now_ms]
        if late:
            # Responses come in order, so everything behind a late one is late as well: reconnect.
            waited_ms = now_ms - late[0].since_ms
            return self._failed(RequestTimeoutError(f"{self}: no response after {waited_ms} ms"), now_ms)
        replies = []
        for waiting in [waiting for waiting in self._queued if waiting.deadline_ms <= now_ms]:
            self._queued.remove(waiting)
            because = "" if self.last_error is None else f"; {self.last_error}"
            error = RequestTimeoutError(f"{self}: not sent after {now_ms - waiting.since_ms} ms{because}")
            replies.append(self._end(waiting, now_ms, error=error))
        return replies

    def _is_idle(self, now_ms: int) -> bool:
        idle_ms = self._settings.max_idle_ms
        return self.is_ready and not self.pending and 0 <= idle_ms <= now_ms - self._used_at_ms

    def _failed(self, error: Exception, now_ms: int) -> list[Reply]:
        """Fail the calls that were sent: the connection is gone."""
        self.meter.broke(error, had_stood=self._has_stood)
        self._drop_channel()
        return self._give_up(error, now_ms)

    def _give_up(self, error: Exception, now_ms: int) -> list[Reply]:
        if self.last_error is None:
            self._down_since_ms = now_ms
        self.last_error = error
        self._on_failure()
        waiting = [*self._in_flight.values(), *self._queued]
        self._in_flight.clear()
        self._queued.clear()
        in_a_row = max(self.failures, self._violations)
        pause_ms = min(self._settings.backoff_ms << min(in_a_row, 16), self._settings.backoff_max_ms)
        self._not_before_ms = now_ms + int(pause_ms * self._rng.uniform(0.8, 1.2))
        self.failures += 1
        return [self._end(each, now_ms, error=error) for each in waiting]

    def _cannot_connect(self, error: OSError) -> ConnectionFailedError:
        return cannot_connect(str(self), error, uses_tls=self._settings.uses_tls)

    def _broken(self, error: OSError) -> ConnectionFailedError:
        if self._has_stood or self._wire is None:
            return lost(
                str(self), error, may_want_sasl=self._authenticator is None and not self._has_answered
            )
        return not_understood(str(self), self._wire.opening(), error)

    def _garbled(self, error: MalformedMessage) -> ConnectionFailedError:
        if self._has_stood or self._wire is None:
            return ConnectionFailedError(f"{self}: connection closed, because an answer is damaged: {error}")
        return not_understood(str(self), self._wire.opening(), error)

    def hang_up(self) -> None:
        """Close the connection, on which no call may be under way. The next call opens a new one."""
        if self._has_stood:
            self.meter.tally.closed += 1
        self._drop_channel()

    def _drop_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._wire = None
        self._renew_at_ms = None
        self._is_connected = self._has_stood = self._has_answered = False

    def close(self, error: Exception, now_ms: int) -> list[Reply]:
        """Close for good; calls without a response get `error`."""
        self.hang_up()
        return self._give_up(error, now_ms)

    def _end(
        self,
        waiting: _Waiting,
        now_ms: int,
        *,
        response: Response | None = None,
        error: Exception | None = None,
    ) -> Reply:
        latency_ms = now_ms - waiting.since_ms
        if error is not None:
            self.meter.failed(waiting.call.request.api.name)
        elif response is not None:
            self.meter.answered(waiting.call.request.api.name, latency_ms)
        conversation = None if response is None else self._wire
        return Reply(waiting.call, response, error, latency_ms, waiting.is_sent, conversation)
