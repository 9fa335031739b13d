"""The requests that a dispatcher hands to handlers, and how each is answered: over a connection, charged to a
client that has a quota, or to this broker itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred

from holdfast_log.broker.network.connection import ReplySlot, ServerConnection
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.broker.requests.authorization import ClientRights
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.requests.times import RequestTimes
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.compiled import ResponseEncoder
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import Part
from holdfast_log.protocol.headers import encode_response
from holdfast_log.protocol.schema import InvalidMessage

PRODUCE_KEY = 0

_log = logging.getLogger(__name__)


class AnswersCalls(Protocol):
    """What a call needs of its dispatcher: the log of what goes wrong, the clock of the connections, and what
    clients may do (None: everything)."""

    log: RepeatedLog
    clock_s: Callable[[], float]
    rights: ClientRights | None


class RemoteCall(RequestContext):
    """A request from a connection. `encode` encodes its response if that is usual; None: there is no such
    encoder. `times` gets the times of the request once it is answered. `parked_s` is the time at which the
    handler has returned without an answer; 0 until then."""

    __slots__ = (
        "_began_s", "_correlation_id", "_dispatcher", "_encode", "_queued_s", "_reply", "_request", "_times",
        "parked_s", "throttle_ms",
    )  # fmt: skip

    def __init__(
        self,
        dispatcher: AnswersCalls,
        connection: ServerConnection,
        version: int,
        client_id: str,
        correlation_id: int,
        request: Request[Any],
        reply: ReplySlot,
        encode: ResponseEncoder | None,
        times: RequestTimes,
    ) -> None:
        self.version = version
        self.client_id = client_id
        self.connection: ServerConnection = connection
        self._dispatcher = dispatcher
        self._correlation_id = correlation_id
        self._request = request
        self._reply = reply
        self._encode = encode
        self._times = times
        # A request that came alone is handled as soon as it has been received.
        self._began_s = connection.began_s or connection.last_request_s
        self._queued_s = connection.queued_s
        self.parked_s = 0.0
        self.throttle_ms = 0

    @property
    def is_judged(self) -> bool:
        return self._dispatcher.rights is not None and not self.connection.is_broker

    def may(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        rights = self._dispatcher.rights
        return rights is None or rights.may(self.connection, operation, resource, name, is_noted=is_noted)

    def may_some(self, operation: AclOperation, resource: AclResource) -> bool:
        rights = self._dispatcher.rights
        return rights is None or rights.may_some(self.connection, operation, resource)

    def answer(self, response: Response) -> None:
        connection = self.connection
        if connection.close_reason is not None:
            return
        try:
            parts = None
            if self._encode is not None:
                parts = self._encode(response, self.version, self._correlation_id)
            if parts is None:
                parts = encode_response(response, self.version, self._correlation_id)
        except InvalidMessage as error:
            cause = "responses that cannot be encoded"
            self._dispatcher.log.error(
                _log, cause, "Closing %s: a response cannot be encoded", connection, exc_info=error
            )
            connection.close("a response cannot be encoded")
            return
        self._count()
        self._reply.send(parts)

    def answer_encoded(self, encode: Callable[..., Sequence[Part] | None], *arguments: Any) -> bool:
        if self.connection.close_reason is not None:
            return True
        parts = encode(self.version, self._correlation_id, *arguments)
        if parts is None:
            return False
        self._count()
        self._reply.send(parts)
        return True

    def answer_nothing(self) -> None:
        if not self.connection.is_closed:
            self._count()
            self._reply.nothing()

    def _count(self) -> None:
        """Count the request, and perhaps remember how long it took."""
        times = self._times
        if untimed := times.untimed:
            times.untimed = untimed - 1
        else:
            ended_s = self._dispatcher.clock_s()
            times.add(self._queued_s, self._began_s, self.parked_s, ended_s, self.throttle_ms)

    def close(self, reason: str) -> None:
        self.connection.refuse(f"{self._request.api.name} requests without a possible answer", reason)


def call_of(waiting: Any, request: Request[Any]) -> RemoteCall:
    """The call of a request that a shortcut has begun (`handler.Waits`), and that is not usual any more. Of
    `request` only the class counts."""
    connection = waiting.connection
    call = RemoteCall(
        waiting.dispatcher,
        connection,
        waiting.version,
        connection.client_id,
        waiting.correlation_id,
        request,
        waiting.reply,
        waiting.encode,
        waiting.times,
    )
    call._began_s, call._queued_s, call.parked_s = waiting.began_s, waiting.queued_s, waiting.parked_s
    return call


class ChargedCall(RemoteCall):
    """A request from a connection while quotas exist: charged to its client, which may be throttled.

    Only the turn of the reactor in which the request arrives is measured.
    """

    __slots__ = ("_charged_s", "_quotas", "_spent_s", "_throttled_until_s")

    def begin(self, quotas: ClientQuotas, began_s: float | None) -> None:
        """Charge a Produce request on arrival, so that a client that sends ahead is held before the first
        response. `began_s` is the time at which the handling began; None: the reactor's time is not
        measured."""
        self._quotas = quotas
        self._charged_s = began_s
        self._spent_s = 0.0
        self._throttled_until_s = 0.0
        if self._request.api.key == PRODUCE_KEY:
            key, size = QuotaKey.PRODUCE, self._reply.request_bytes
            self.throttle(key, self._quotas.charge(key, self.connection, self.client_id, size))

    def suspend(self) -> None:
        """Add the reactor's time so far: the request waits for something, or is answered."""
        if self._charged_s is not None:
            self._spent_s += self._quotas.seconds() - self._charged_s
            self._charged_s = None

    def throttle(self, key: QuotaKey, throttle_ms: int) -> None:
        if throttle_ms <= 0:
            return
        until_s = self._quotas.seconds() + throttle_ms / 1000
        if until_s > self._throttled_until_s:
            self._throttled_until_s = until_s
            self._quotas.throttle(key, self.connection, self.client_id, throttle_ms)

    def answer(self, response: Response) -> None:
        if self.connection.close_reason is not None:
            return
        # The response is sent at once; the connection is not read for the throttle time (KIP-219).
        self.throttle_ms = throttle_ms = self._throttle_ms()
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = throttle_ms
        super().answer(response)

    def answer_encoded(self, encode: Callable[..., Sequence[Part] | None], *arguments: Any) -> bool:
        # The response has to name the throttle time.
        return False

    def answer_nothing(self) -> None:
        self.throttle_ms = self._throttle_ms()
        super().answer_nothing()

    def _throttle_ms(self) -> int:
        """Charge the time that the request took. Returns how long the client is throttled from now on."""
        self.suspend()
        if self._spent_s:
            spent_s, self._spent_s = self._spent_s, 0.0
            key = QuotaKey.REQUEST
            self.throttle(key, self._quotas.charge_time(self.connection, self.client_id, spent_s))
        if not self._throttled_until_s:
            return 0
        return max(0, round((self._throttled_until_s - self._quotas.seconds()) * 1000))


class LocalCall(RequestContext):
    """A request from this broker to itself, in the newest version. It is never encoded."""

    __slots__ = ("_done",)

    def __init__(self, request: Request[Any], done: Deferred[Response]) -> None:
        super().__init__(request.api.max_version, "", None)
        self._done = done

    def answer(self, response: Response) -> None:
        self._done.callback(response)

    def answer_nothing(self) -> None:
        raise AssertionError("a request from a broker to itself needs a response")

    def close(self, reason: str) -> None:
        self._done.errback(BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason))
