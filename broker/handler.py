"""A request on its way through the broker, and what a handler is."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from broker.network.connection import ANONYMOUS, ServerConnection
from protocol.api import Request, Response
from protocol.errors import BrokerError

Q = TypeVar("Q", bound=Request[Any])
R = TypeVar("R", bound=Response)

Answer: TypeAlias = "R | Deferred[R] | None"
"""What a handler returns: the response, a Deferred of it, or None where the handler answers the request
through its context."""


class RequestContext:
    """One request, apart from its message: version, client, connection. It is answered exactly once.

    `connection` is None for a request that this broker makes to itself.
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
    def listener(self) -> str | None:
        """Name of the listener through which the request came; None for a request of this broker to
        itself."""
        return None if self.connection is None else self.connection.listener

    @property
    def client_host(self) -> str:
        """The client's address as Kafka writes it for group members; empty for a request of this broker to
        itself."""
        return "" if self.connection is None else f"/{self.connection.peer.host}"

    @property
    def is_closed(self) -> bool:
        """Whether the connection that the response would go to is closed."""
        return self.connection is not None and self.connection.is_closed

    def answer(self, response: Response) -> None:
        raise NotImplementedError

    def answer_nothing(self) -> None:
        """End the request without a response (Produce with acks=0)."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close the connection that the request came through, with one line in the log."""
        raise NotImplementedError


def refusal(failure: Failure) -> BrokerError:
    """The BrokerError that a Deferred failed with. Raises any other exception again."""
    failure.trap(BrokerError)
    assert isinstance(failure.value, BrokerError)
    return failure.value


class Handler(Generic[Q, R]):
    """Answers one API: translates between messages and the objects that decide.

    A module of broker/handlers with a subclass is all that a broker needs for an API:
    `broker.wiring.handlers` finds it, and gives each dataclass field the part of the broker, or the settings
    group, of its type.
    """

    request: ClassVar[type[Request[Any]]]
    """The API's request class."""

    def handle(self, context: RequestContext, request: Q) -> Answer[R]:
        """Answer the request. For a BrokerError, raised or in the Deferred, the response is that of `failed`;
        any other exception is logged, and answered by `failed` with UNKNOWN_SERVER_ERROR."""
        raise NotImplementedError

    def failed(self, context: RequestContext, request: Q, error: BrokerError) -> R | None:
        """The response to a request that failed as a whole. None where the API has no such response: the
        connection is closed then."""
        return None
