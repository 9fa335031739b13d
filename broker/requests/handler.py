"""The base class of request handlers, and the context of one request."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.network.connection import ANONYMOUS, ServerConnection
from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import Part

Q = TypeVar("Q", bound=Request[Any])
R = TypeVar("R", bound=Response)

Answer: TypeAlias = "R | Deferred[R] | None"
"""Result of a handler: the response, a Deferred of it, or None if the handler answers through the context."""


_DENIED = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class RequestContext:
    """The version, client and connection of one request, which is answered exactly once.

    `connection` is None for a request from this broker to itself.
    """

    __slots__ = ("client_id", "connection", "version")

    def __init__(self, version: int, client_id: str, connection: ServerConnection | None) -> None:
        self.version = version
        self.client_id = client_id
        self.connection = connection

    @property
    def principal(self) -> str:
        return ANONYMOUS if self.connection is None else self.connection.principal

    @property
    def source(self) -> str:
        """Who the client is, for limits that each client has for itself (`ServerConnection.source`); empty
        for a request from this broker to itself."""
        return "" if self.connection is None else self.connection.source

    @property
    def listener(self) -> str | None:
        """Name of the listener that received the request; None for a request from this broker to itself."""
        return None if self.connection is None else self.connection.listener

    @property
    def is_broker(self) -> bool:
        """Whether another broker sent the request, or this broker itself. See
        `ServerConnection.is_broker`."""
        return self.connection is None or self.connection.is_broker

    @property
    def client_host(self) -> str:
        """The client's address as Kafka writes it for group members; empty for a request from this broker to
        itself."""
        return "" if self.connection is None else f"/{self.connection.peer.host}"

    @property
    def is_closed(self) -> bool:
        """Whether the connection of the request is closed."""
        return self.connection is not None and self.connection.is_closed

    @property
    def is_judged(self) -> bool:
        """Whether `may` depends on rules: not without an authorizer, and not for brokers."""
        return False

    def may(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        """Whether the client may do this to the resource of that kind and name. Without an authorizer, and
        for brokers, everything is allowed. A denied operation goes to the audit log if it `is_noted`."""
        return True

    def may_some(self, operation: AclOperation, resource: AclResource) -> bool:
        """Whether the client may do this to any resource of the kind."""
        return True

    def denial(
        self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME
    ) -> BrokerError | None:
        """The error for a client that may not do this; None if it may. It does not tell whether the resource
        exists."""
        if self.may(operation, resource, name):
            return None
        kind = resource.name.lower().replace("_", " ")
        what = f"{self.principal} may not {operation.name} this {kind}: its access control list must allow it"
        return BrokerError(_DENIED[resource], what)

    def check(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> None:
        """Raises BrokerError as `denial` returns it."""
        denied = self.denial(operation, resource, name)
        if denied is not None:
            raise denied

    def note_refused(self, cause: str, reason: str) -> None:
        """Log that the request is refused, once for each connection and cause (a phrase as for
        `RepeatedLog`)."""
        if self.connection is not None:
            self.connection.note_refused_request(cause, reason)

    def throttle(self, key: QuotaKey, throttle_ms: int) -> None:
        """Throttle the client by a quota for this time from now on; the longest of several applies. Call it
        before the answer. No effect on a request from this broker to itself."""

    def answer(self, response: Response) -> None:
        raise NotImplementedError

    def answer_encoded(self, encode: Callable[..., Sequence[Part] | None], *arguments: Any) -> bool:
        """Answer with the frame that `encode(version, correlation id, *arguments)` returns, without a
        response object. Returns whether that was done: it is not if `encode` returns None, nor where the
        response has to say more than `encode` knows. Then call `answer`."""
        return False

    def answer_nothing(self) -> None:
        """End the request without a response (Produce with acks=0)."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close the connection of the request, with one log line."""
        raise NotImplementedError


class InnerContext(RequestContext):
    """The context of a part of a request: all but the answer is the request's."""

    __slots__ = ("whole",)

    def __init__(self, whole: RequestContext) -> None:
        super().__init__(whole.version, whole.client_id, whole.connection)
        self.whole = whole

    @property
    def is_judged(self) -> bool:
        return self.whole.is_judged

    def may(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str = CLUSTER_NAME,
        *,
        is_noted: bool = True,
    ) -> bool:
        return self.whole.may(operation, resource, name, is_noted=is_noted)

    def may_some(self, operation: AclOperation, resource: AclResource) -> bool:
        return self.whole.may_some(operation, resource)

    def throttle(self, key: QuotaKey, throttle_ms: int) -> None:
        self.whole.throttle(key, throttle_ms)

    def answer_nothing(self) -> None:
        self.whole.answer_nothing()

    def close(self, reason: str) -> None:
        self.whole.close(reason)


class JoinedContext(InnerContext):
    """The context of the allowed rows of a request: `join` adds the others to their answer."""

    __slots__ = ("_join",)

    def __init__(self, whole: RequestContext, join: Callable[[Any], Response]) -> None:
        super().__init__(whole)
        self._join = join

    def answer(self, response: Response) -> None:
        self.whole.answer(self._join(response))


def check_replica(context: RequestContext, replica_id: int) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED if a client claims to be a replica. A replica reads records that are
    not committed, and its position commits them."""
    if replica_id >= 0 and not context.is_broker:
        context.note_refused("clients that pose as replicas", f"it says that it is broker {replica_id}")
        raise BrokerError(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "only brokers may use a replica id: send -1, as clients do",
        )


def refusal(failure: Failure) -> BrokerError:
    """The BrokerError that a Deferred failed with. Raises any other exception again."""
    failure.trap(BrokerError)
    assert isinstance(failure.value, BrokerError)
    return failure.value


class Begun(NamedTuple):
    """A request that a `Shortcut` has begun to handle: what has been decoded of it, and `finish`, which
    continues as `Handler.handle` would."""

    request: Request[Any]
    finish: Callable[[RequestContext], Answer[Any]]


class Waits(Protocol):
    """A request that a `Shortcut` has begun to handle, and that is answered later."""

    def wait(self, dispatcher: Any, reply: Any, encode: Any, times: Any, /) -> None:
        """Wait from now on. `reply` is answered later, and `times` gets the times of the request then;
        `dispatcher` and `encode` are as for `RemoteCall`, where the answer is not usual."""
        ...


Shortcut: TypeAlias = (
    "Callable[[ServerConnection, memoryview, int, int, int], list[Part] | Begun | Waits | None]"
)
"""Handles the usual requests of an API without decoding them into a message: called with the connection, the
frame, the version, the position of the body and the correlation id. Returns the response as a whole frame, a
request to finish, one that waits, or None if the request is not usual; then nothing has been done. Raises
nothing."""


MayDo: TypeAlias = "Callable[[ServerConnection, AclOperation, AclResource, str], bool]"
"""Whether the client of a connection may do something to a resource. It logs nothing."""


@dataclass(frozen=True, slots=True)
class RowPaths:
    """Where the rows of a request are, and those of its answer: the names of the arrays, from the outermost
    to the one whose elements are the rows. The arrays of the answer are as deep."""

    asked: tuple[str, ...]
    answered: tuple[str, ...]


PLAIN_ELEMENTS_MAX = 2_000
"""Maximum number of elements in a client's request to a handler that handles it in one turn."""

ANY_ELEMENTS = sys.maxsize

DIVISION_STEP_ROWS = 200
"""So many rows are looked at in one step, in a tenth of a millisecond: whether they may be handled apart."""


class Handler(Generic[Q, R]):
    """Answers the requests of one API: translates between messages and the objects that decide.

    `broker.wiring.handlers` finds each subclass in broker/handlers, and fills each dataclass field with the
    part of the broker, or the settings group, of the field's type.
    """

    request: ClassVar[type[Request[Any]]]
    """The API's request class."""
    protocol: ClassVar[str | None] = None
    """The protocol of groups that the API is for. The broker has no such API unless
    `group.coordinator.rebalance.protocols` names the protocol."""
    is_for_everybody: ClassVar[bool] = False
    """Whether also a client may send the requests of an internal API."""
    is_long_from_brokers: ClassVar[bool] = False
    """Whether brokers send requests of an API of clients that are as long as those of internal APIs."""

    parts: ClassVar[tuple[RowPaths, ...]] = ()
    """For a handler whose rows do not depend on one another: a long request is handled in parts, by calls of
    `handle` with a few rows each. Of several entries the first whose outermost array has elements counts."""

    may_ask_for_all: ClassVar[bool] = False
    """Whether a request may ask for everything of a kind (`named`)."""

    whole_rows_max: ClassVar[int] = 25
    """A request of so many rows, 100 at most, is handled as a whole though it could be divided."""

    parts_overlap: ClassVar[bool] = False
    """Whether a part of a long request is handled before the one before it is answered. It is for parts that
    wait for replication: they wait together."""

    elements_max: ClassVar[int] = PLAIN_ELEMENTS_MAX
    """Maximum number of elements in a client's request, beside `socket.request.max.elements`. It is small
    unless long requests are handled in parts, or the handler itself makes its answer in turns
    (`LongAnswers`): then it is `ANY_ELEMENTS`."""

    def handle(self, context: RequestContext, request: Q) -> Answer[R]:
        """Answer the request.

        If this raises a BrokerError, or the Deferred fails with one, `failed` builds the response. Any other
        exception is logged, and `failed` gets UNKNOWN_SERVER_ERROR.
        """
        raise NotImplementedError

    def divisible_steps(self, context: RequestContext, request: Q) -> Generator[None, None, bool]:
        """Returns whether this request with many rows is handled in parts, and pauses after each
        `DIVISION_STEP_ROWS` rows that it has looked at. A BrokerError is the answer to each of its rows, of
        which none is handled."""
        yield from ()
        return True

    def named(self, context: RequestContext, request: Q) -> Deferred[Q] | None:
        """A request that asks for everything as one that names it: a short request with a long answer is
        handled in parts like a long request. None if the request names what it asks for."""
        return None

    def shortcut(self) -> Shortcut | None:
        """The shortcut for usual requests; None if there is none."""
        return None

    def judged_shortcut(self, may: MayDo) -> Shortcut | None:
        """The shortcut for usual requests of clients that an authorizer judges; None if there is none. It
        leaves a request that is denied to `handle`."""
        return None

    def failed(self, context: RequestContext, request: Q, error: BrokerError) -> R | None:
        """The response to a request that failed as a whole. None closes the connection: the API has no error
        response."""
        return None
