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
"""What a handler returns: the response, one that will come, or None where the handler answers the call
itself."""


class RequestContext:
    """One request, as far as a handler may ask beyond the message itself. Answered exactly once.

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
        """The name of the listener that the request came through; None for this broker's own."""
        return None if self.connection is None else self.connection.listener

    @property
    def client_host(self) -> str:
        """Where the client is, as Kafka writes it of a group's members; empty for this broker's own."""
        return "" if self.connection is None else f"/{self.connection.peer.host}"

    @property
    def is_closed(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self.connection is not None and self.connection.is_closed

    def answer(self, response: Response) -> None:
        raise NotImplementedError

    def answer_nothing(self) -> None:
        """The request takes no response (Produce with acks=0)."""
        raise NotImplementedError

    def close(self, reason: str) -> None:
        """Close the connection that the request came through, with one line in the log."""
        raise NotImplementedError


def refusal(failure: Failure) -> BrokerError:
    """The BrokerError that a Deferred failed with; anything else goes on as a failure."""
    failure.trap(BrokerError)
    assert isinstance(failure.value, BrokerError)
    return failure.value


class Handler(Generic[Q, R]):
    """What answers one API. It translates between messages and the objects that decide."""

    request: ClassVar[type[Request[Any]]]
    """The API's request class."""

    def handle(self, call: RequestContext, request: Q) -> Answer[R]:
        """Answer the request. A BrokerError, raised or in the Deferred, becomes the response that `failed`
        gives; any other exception is logged and becomes one with UNKNOWN_SERVER_ERROR."""
        raise NotImplementedError

    def failed(self, call: RequestContext, request: Q, error: BrokerError) -> R | None:
        """The response that says that the whole request failed. None where the API has no way to say so: the
        connection is closed then."""
        return None
