"""Passes each request to its handler and the response back: headers, versions, authorisation, quotas, errors.

What was compiled decodes and encodes the usual messages (`protocol.compiled`); the rest falls back to Python.

Bytes that are not a valid request close the connection, with one log line. An exception that a handler does
not expect becomes an error response, and the connection stays open.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.connection import ReplySlot, ServerConnection
from holdfast_log.broker.network.turns import LONG_BYTES
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.requests.audit import Denials
from holdfast_log.broker.requests.authorization import Authorizer, ClientRights
from holdfast_log.broker.requests.calls import PRODUCE_KEY, ChargedCall, LocalCall, RemoteCall
from holdfast_log.broker.requests.for_brokers import ForBrokers
from holdfast_log.broker.requests.handler import (
    Answer,
    Begun,
    Handler,
    RequestContext,
    Shortcut,
)
from holdfast_log.broker.requests.long_decoding import LongDecoding
from holdfast_log.broker.requests.parts import PART_BYTES, PartedRequests, long_rows
from holdfast_log.broker.requests.times import RequestTimes
from holdfast_log.clients.boot_clock import boot_s
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.protocol.api import API_VERSIONS_KEY, Api, Request, Response
from holdfast_log.protocol.catalog import APIS
from holdfast_log.protocol.compiled import (
    COMPILED_ELEMENTS_MAX,
    DECODERS,
    ENCODERS,
    WIRE,
    RequestDecoder,
    ResponseEncoder,
    extension,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.headers import (
    RequestFields,
    flexible_requests,
    form_of,
    key_and_version,
    request_fields,
)
from holdfast_log.protocol.schema import (
    MalformedMessage,
    TooManyElements,
    decode_from,
    decode_in_steps,
)

_log = logging.getLogger(__name__)

AnyHandler: TypeAlias = "Handler[Any, Any]"

FETCH_KEY = 1
_FETCH_WITH_REPLICA_STATE = 15
CLIENT_BYTES_MAX = 16 * 1024 * 1024
"""Maximum bytes of a client's request that brings no records. Its strings and bytes are copied while it is
decoded, in one turn of the reactor; records are not."""
_COMPILED_BYTES_MAX = 64 * 1024
"""A longer request of a client that brings no records is decoded in turns: what is compiled makes none."""
INTERNAL_ELEMENTS_FACTOR = 25
"""A controller's requests list a whole cluster; no client sends requests of that length."""


_compiled = extension("_usual_dispatch", "broker.requests")
"""None where every request is to be dispatched in Python."""
_usual_fields = None if WIRE is None else WIRE.request_fields
"""As `request_fields`, compiled. Returns None for an unusual header, or one that is malformed."""


class _Route(NamedTuple):
    """How the requests of one API and version are handled."""

    handler: AnyHandler
    request: type[Request[Any]]
    version: int
    elements_max: int
    decode: RequestDecoder | None
    encode: ResponseEncoder | None
    shortcut: Shortcut | None
    times: RequestTimes
    follower_times: RequestTimes | None
    """Those of followers' fetches; None for all other APIs."""


class _Received(NamedTuple):
    """What is known of a request besides its body."""

    connection: ServerConnection
    route: _Route
    client_id: str
    correlation_id: int
    reply: ReplySlot
    size: int


class Dispatcher:
    """Dispatches every request of every connection.

    `log` bounds the lines about requests that fail. Without `authorizer` everything is allowed; with one,
    handlers ask `RequestContext.may`, and of shortcuts clients get those that judge. Without
    `quotas` no client is throttled; without `parted` no request is handled in parts. A request of more than
    `elements_max` elements (`socket.request.max.elements`), or of more than its handler takes
    (`Handler.elements_max`), closes its connection; a request of an internal API may have
    `INTERNAL_ELEMENTS_FACTOR` times as many as the setting, and so may a broker's where the handler says so
    (`Handler.is_long_from_brokers`). Requests of internal APIs are handled if their
    connection is another broker's, and refused otherwise. `clock_s` is the
    clock of the connections, by which requests are timed.
    """

    def __init__(
        self,
        log: RepeatedLog,
        elements_max: int = sys.maxsize,
        authorizer: Authorizer | None = None,
        quotas: ClientQuotas | None = None,
        parted: PartedRequests | None = None,
        clock_s: Callable[[], float] = boot_s,
    ) -> None:
        self.quotas = quotas
        self.clock_s = clock_s
        self._parted = parted
        self.log = log
        self.rights = None if authorizer is None else ClientRights(authorizer, Denials(log, clock_s))
        self._handlers: dict[int, AnyHandler] = {}
        self._routes: dict[int, _Route] = {}
        """Of clients' requests, by their form (`form_of`)."""
        self._broker_routes: dict[int, _Route] = {}
        """Of requests from brokers, by their form."""
        self._flexible = flexible_requests()
        self._table = self, self._flexible, self._routes, self._broker_routes
        self._elements_max = elements_max
        self._internal_elements_max = elements_max * INTERNAL_ELEMENTS_FACTOR

    def add(self, handlers: Iterable[AnyHandler]) -> None:
        """Answer these APIs from now on. Raises ValueError for a second handler of an API."""
        for handler in handlers:
            api = handler.request.api
            if api.key in self._handlers:
                raise ValueError(f"{api.name} has two handlers")
            self._handlers[api.key] = handler
            is_closed = api.internal and not handler.is_for_everybody
            self._add_routes(self._broker_routes, handler, self._brokers_elements_max(handler))
            of_clients = self._elements_max
            if not api.internal:
                of_clients = min(of_clients, handler.elements_max)
            self._add_routes(self._routes, ForBrokers(handler) if is_closed else handler, of_clients)

    def _brokers_elements_max(self, handler: AnyHandler) -> int:
        """Maximum number of elements in a request that a broker sends."""
        if handler.request.api.internal or handler.is_long_from_brokers:
            return self._internal_elements_max
        return min(self._elements_max, handler.elements_max)

    def _add_routes(self, routes: dict[int, _Route], handler: AnyHandler, elements_max: int) -> None:
        api = handler.request.api
        may_compile = elements_max >= COMPILED_ELEMENTS_MAX
        decode = DECODERS.get(api.key) if may_compile else None
        encode = ENCODERS.get(api.key)
        shortcut, rights = None, self.rights if routes is self._routes else None
        if may_compile:
            shortcut = handler.shortcut() if rights is None else handler.judged_shortcut(rights.may_quietly)
        for version in api.versions:
            times, follower_times = _new_times(api, version)
            route = _Route(
                handler, api.request, version, elements_max, decode, encode, shortcut, times, follower_times
            )
            routes[form_of(api.key, version)] = route

    @property
    def apis(self) -> list[Api]:
        """The APIs that have handlers, by key."""
        return [APIS[key] for key in sorted(self._handlers)]

    def times(self) -> dict[str, list[RequestTimes]]:
        """The times of answered requests, by kind: an API's name, FetchConsumer or FetchFollower. Only kinds
        and versions that clients have used."""
        found: dict[str, list[RequestTimes]] = {}
        for route in (*self._routes.values(), *self._broker_routes.values()):
            for times in (route.times, route.follower_times):
                if times is not None and times.count:
                    found.setdefault(times.kind, []).append(times)
        return found

    # -- requests from connections -----------------------------------------------------------------------

    def dispatch(self, connection: ServerConnection, frame: memoryview, reply: ReplySlot) -> None:
        """Handle the request in `frame`."""
        quotas = self.quotas
        if quotas is not None and not quotas.is_enforced:
            quotas = None
        began_s = quotas.seconds() if quotas is not None and quotas.measures_time else None
        route: _Route | None = None
        try:
            begun: Any = False
            if _compiled is not None and quotas is None:
                begun = _compiled.dispatch(self._table, connection, frame, reply)
                if begun is True:
                    return
            fields: RequestFields | None = None
            if _usual_fields is not None:
                fields = _usual_fields(frame, self._flexible)
            if fields is None:
                fields = request_fields(frame)
            form, correlation_id, client_id, position = fields
            route = (self._broker_routes if connection.is_broker else self._routes).get(form)
            if route is None:
                self._refuse_form(connection, fields, reply)
                return
            handler, request_class, version, elements_max, decode, encode, shortcut, times, _ = route
            client_id = client_id or ""
            if connection.client_id != client_id:
                connection.client_id = client_id
            if shortcut is not None and quotas is None:
                if begun is False:
                    begun = shortcut(connection, frame, version, position, correlation_id)
                if isinstance(begun, list):
                    if untimed := times.untimed:
                        times.untimed = untimed - 1
                    else:
                        self.note_time(connection, times)
                    reply.send(begun)
                    return
                if isinstance(begun, Begun):
                    known = begun.request
                    call = RemoteCall(
                        self, connection, version, client_id, correlation_id, known, reply, encode, times
                    )
                    self._run(handler, call, known, finish=begun.finish)
                    if reply.parts is None:
                        call.parked_s = self.clock_s()
                    return
                if begun is not None:
                    begun.wait(self, reply, encode, times)
                    return
            connection.may_take_long()
            if len(frame) > CLIENT_BYTES_MAX and not _may_be_large(connection, handler):
                name = handler.request.api.name
                reason = f"its {name} request has {len(frame)} bytes; allowed are {CLIENT_BYTES_MAX}"
                connection.refuse(f"{name} requests that are too large", reason)
                return
            request = None
            if decode is not None and (
                len(frame) <= _COMPILED_BYTES_MAX or _may_be_large(connection, handler)
            ):
                request = decode(frame, version, position)
            if request is None and len(frame) < LONG_BYTES:
                request, _ = decode_from(request_class, version, frame, position, elements_max)
        except MalformedMessage as error:
            self._refuse_bytes(connection, route, error)
            return
        received = _Received(connection, route, client_id, correlation_id, reply, len(frame))
        if request is not None:
            self._begin(received, request, quotas, began_s)
            return

        steps = decode_in_steps(request_class, version, frame, position, elements_max)
        LongDecoding(
            connection,
            steps,
            self.clock_s,
            lambda request, spent_s: self._begin_decoded(received, request, quotas, began_s, spent_s),
            lambda error: self._refuse_bytes(connection, route, error),
        ).begin()

    def _begin_decoded(
        self,
        received: _Received,
        request: Request[Any],
        quotas: ClientQuotas | None,
        began_s: float | None,
        spent_s: float,
    ) -> None:
        """Handle a request that was decoded in turns, which has taken `spent_s` so far."""
        if quotas is not None and began_s is not None:
            began_s = quotas.seconds() - spent_s
        self._begin(received, request, quotas, began_s)

    def _refuse_bytes(
        self, connection: ServerConnection, route: _Route | None, error: MalformedMessage
    ) -> None:
        """Close the connection, which has sent bytes that are no valid request, or one that is too long."""
        if route is None or not isinstance(error, TooManyElements):
            reason = f"it sent bytes that are not a valid request: {error}"
            connection.refuse("bytes that are not a valid request", reason)
            return
        limit = f"socket.request.max.elements={self._elements_max}"
        if route.elements_max < self._elements_max:
            limit = f"{route.handler.request.api.name} requests may have {route.elements_max}"
        reason = f"its request has too many elements: {error} ({limit})"
        connection.refuse("requests with too many elements", reason)

    def _begin(
        self, received: _Received, request: Request[Any], quotas: ClientQuotas | None, began_s: float | None
    ) -> None:
        """Handle a request that has been decoded. `began_s` is when that began, if its time is measured."""
        connection, route, client_id, correlation_id, reply, size = received
        handler, version, times = route.handler, route.version, route.times
        if route.follower_times is not None and _is_of_follower(request, version):
            times = route.follower_times
        if quotas is None:
            plain = RemoteCall(
                self, connection, version, client_id, correlation_id, request, reply, route.encode, times
            )
            self._run(handler, plain, request, size)
            if reply.parts is None:
                plain.parked_s = self.clock_s()
            return
        charged = ChargedCall(
            self, connection, version, client_id, correlation_id, request, reply, route.encode, times
        )
        charged.begin(quotas, began_s)
        self._run(handler, charged, request, size)
        charged.suspend()
        if reply.parts is None:
            charged.parked_s = self.clock_s()

    def note_time(self, connection: ServerConnection, times: RequestTimes) -> None:
        """Add the time that the connection's present request has taken, which is answered now."""
        arrived_s = connection.began_s or connection.last_request_s
        times.add(connection.queued_s, arrived_s, 0.0, self.clock_s(), 0)

    def _refuse_form(self, connection: ServerConnection, fields: RequestFields, reply: ReplySlot) -> None:
        """Refuse a request of an API or a version that does not exist here.

        A client may send ApiVersions in any version: the response, of version 0, lists the versions that
        exist (KIP-511). For any other API the client would understand no response, so the connection is
        closed."""
        form, correlation_id, client_id, _position = fields
        api_key, version = key_and_version(form)
        handler = self._handlers.get(api_key)
        if handler is None:
            reason = f"it sent a request of API {api_key}, which this broker does not have"
            connection.refuse("requests of APIs that this broker does not have", reason)
            return
        api = handler.request.api
        if api.key != API_VERSIONS_KEY:
            first, last = api.min_version, api.max_version
            reason = f"it sent version {version} of {api.name}; supported are {first} to {last}"
            connection.refuse(f"{api.name} requests of unsupported versions", reason)
            return
        request = api.request()
        times = self._routes[form_of(api.key, api.min_version)].times
        context = RemoteCall(
            self, connection, 0, client_id or "", correlation_id, request, reply, None, times
        )
        error = BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        response = handler.failed(context, request, error)
        assert response is not None
        context.answer(response)

    # -- requests from this broker to itself -------------------------------------------------------------

    def call_local(self, request: Request[Any]) -> Deferred[Any]:
        """The response to a request from this broker to itself."""
        done: Deferred[Response] = Deferred()
        self._run(self._handlers[request.api.key], LocalCall(request, done), request)
        return done

    # -- requests of both kinds --------------------------------------------------------------------------

    def _run(
        self,
        handler: AnyHandler,
        context: RequestContext,
        request: Request[Any],
        size: int = 0,
        finish: Callable[[RequestContext], Answer[Any]] | None = None,
    ) -> None:
        """Handle a request, or `finish` one that has been begun, and answer it. Its `size` in bytes says
        whether it may have many rows."""
        try:
            if finish is not None:
                answer = finish(context)
            elif self._parted is None or not handler.parts:
                answer = handler.handle(context, request)
            elif handler.may_ask_for_all and (named := handler.named(context, request)) is not None:
                answer = _holding(context, self._parted.answer_named(handler, context, named))
            elif size > PART_BYTES and (paths := long_rows(handler, request)) is not None:
                answer = _holding(context, self._parted.answer(handler, context, request, paths))
            else:
                answer = handler.handle(context, request)
        except Exception as error:
            self._fail(handler, context, request, error)
            return
        if answer is None:
            return
        if isinstance(answer, Response):
            context.answer(answer)
            return
        answer.addCallbacks(
            lambda response: _give(context, response),
            lambda failure: self._fail_later(handler, context, request, failure),
        )
        answer.addErrback(
            lambda failure: self.log.error(
                _log, "responses that could not be sent", "Sending a response failed", exc_info=failure.value
            )
        )

    def _fail_later(
        self, handler: AnyHandler, context: RequestContext, request: Request[Any], failure: Failure
    ) -> None:
        error = failure.value
        if not isinstance(error, Exception):
            failure.raiseException()
        self._fail(handler, context, request, error)

    def _fail(
        self, handler: AnyHandler, context: RequestContext, request: Request[Any], error: Exception
    ) -> None:
        if not isinstance(error, BrokerError):
            name = request.api.name
            self.log.error(
                _log,
                f"{name} requests whose handling failed",
                "Handling a %s request, version %d, failed",
                name,
                context.version,
                exc_info=error,
            )
            error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if context.is_closed:
            return  # Nobody reads the answer, which may be long.
        try:
            response = handler.failed(context, request, error)
        except Exception as failed:
            name = request.api.name
            cause = f"error responses to {name} requests that could not be built"
            self.log.error(
                _log, cause, "Building the error response to a %s request failed", name, exc_info=failed
            )
            response = None
        if response is None:
            context.close(f"{request.api.name} failed: {error}")
        else:
            context.answer(response)


def _new_times(api: Api, version: int) -> tuple[RequestTimes, RequestTimes | None]:
    """What counts the requests of an API and version: those of clients, and those of followers."""
    if api.key != FETCH_KEY:
        return RequestTimes(api.name, version), None
    return RequestTimes("FetchConsumer", version), RequestTimes("FetchFollower", version)


def _holding(
    context: RequestContext, work: Coroutine[Deferred[Any], Any, Response | None]
) -> Deferred[Response | None]:
    """The answer to a request of many rows. Later requests of its connection wait for it."""
    connection = context.connection
    answer = ensureDeferred(work)
    if connection is None or answer.called:
        return answer

    def go_on(outcome: Any) -> Any:
        connection.go_on()
        return outcome

    connection.hold()
    return answer.addBoth(go_on)


def _give(context: RequestContext, response: Response | None) -> None:
    """Answer a request. None: its parts want no answer."""
    if response is None:
        context.answer_nothing()
    else:
        context.answer(response)


def _may_be_large(connection: ServerConnection, handler: AnyHandler) -> bool:
    """Whether a request of the connection to this handler may have as many bytes as the network takes."""
    return connection.is_broker or handler.request.api.key == PRODUCE_KEY


def _is_of_follower(fetch: Any, version: int) -> bool:
    """Whether a follower has sent this fetch."""
    with_state = version >= _FETCH_WITH_REPLICA_STATE
    replica_id: int = fetch.replica_state.replica_id if with_state else fetch.replica_id
    return replica_id >= 0
