"""How the admin client asks: tried again until an answer is had, each partition at its leader."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Self, TypeVar

from clients.config import Properties, admin_settings
from clients.connection.connection import Connection
from clients.connection.network import ClientNetwork
from clients.errors import RequestTimeoutError, is_retriable
from clients.feedback.events import OnEvent
from clients.fetching.offsets import wait_for_metadata
from protocol.api import Request, Response
from protocol.errors import ErrorCode, error_for

if TYPE_CHECKING:
    from clients.feedback.snapshots import AdminFeedback

R = TypeVar("R", bound=Response)
_PASSES = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class AdminBase:
    """What all the rooms of the admin client stand on: a connection, and patience."""

    def __init__(
        self,
        properties: Properties,
        *,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        self.settings = admin_settings(properties)
        self._timeout_ms: int = self.settings["default.api.timeout.ms"]
        self._retries = 0
        self._backoff_ms: int = self.settings["retry.backoff.ms"]
        self._connection = Connection(
            self.settings["bootstrap.servers"], self.settings, network=network, rng=rng, on_event=on_event
        )

    def _ask(
        self,
        node: int,
        request: Request[R],
        codes: Callable[[R], Iterable[int]] = lambda _: (),
    ) -> R:
        """The response; asked for again where the way to it failed, or where one of the `codes` in it says
        that the controller had moved or that a coordinator is not ready."""
        now_ms = self._connection.network.now_ms
        deadline_ms = now_ms() + self._timeout_ms
        while True:
            left_ms = max(0, deadline_ms - now_ms())
            try:
                response = self._connection.ask(node, request, left_ms)
                if now_ms() >= deadline_ms or not any(code in _PASSES for code in codes(response)):
                    return response
            except Exception as error:
                if not is_retriable(error) or now_ms() + self._backoff_ms >= deadline_ms:
                    raise
            self._retries += 1
            wait_for_metadata(self._connection, min(self._backoff_ms, max(0, deadline_ms - now_ms())))

    def _know_nodes(self, nodes: Iterable[int]) -> None:
        """See to it that these brokers are known by their ids. Raises RequestTimeoutError."""
        metadata = self._connection.metadata
        deadline_ms = self._connection.network.now_ms() + self._timeout_ms
        while any(node not in metadata.nodes for node in nodes):
            left_ms = deadline_ms - self._connection.network.now_ms()
            if left_ms <= 0:
                raise RequestTimeoutError("a broker that leads a partition is not to be found")
            wait_for_metadata(self._connection, left_ms)

    def feedback(self) -> AdminFeedback:
        """What has been asked so far. May be called by any thread."""
        from clients.feedback.snapshots import AdminFeedback  # Slow to import, and many do without.

        return AdminFeedback(self._connection.feedback(), self._retries)

    def close(self) -> None:
        """Close all connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def raise_first(rows: Iterable[tuple[str, int, str | None]]) -> None:
    """Raise the first error among (thing, error code, message), with the thing's name in its text."""
    for thing, code, message in rows:
        if code:
            plain = error_for(code, message)
            raise error_for(code, f"{thing}: {plain.message}")
