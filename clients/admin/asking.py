"""How the admin client asks brokers: again until one answers, or until the timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.link import Reply
from holdfast_log.clients.errors import RequestTimeoutError, is_retriable, with_cause
from holdfast_log.clients.fetching.offsets import wait_for_metadata
from holdfast_log.clients.groups.coordinator import (
    COORDINATOR_MOVED,
    GROUP_KEY_TYPE,
    coordinator_in,
    find_coordinator_request,
)
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import ErrorCode, error_for

R = TypeVar("R", bound=Response)
_PASSES = (
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_COORDINATOR_PASSES = (
    *COORDINATOR_MOVED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
_KINDS = ("group", "transactional id")
"""What a coordinator coordinates, by the type of the key."""


class Asking:
    """Sends requests and repeats them after retriable errors. All times are in ms."""

    def __init__(self, connection: Connection, timeout_ms: int, backoff_ms: int) -> None:
        self.connection = connection
        self.timeout_ms = timeout_ms
        """How long each call may take, retries included."""
        self.retries = 0
        self._backoff_ms = backoff_ms

    def ask(
        self,
        node: int,
        request: Request[R],
        codes: Callable[[R], Iterable[int]] = lambda _: (),
        timeout_ms: int | None = None,
    ) -> R:
        """The response of a broker.

        Asks again after a connection error, and while one of the `codes` in the response says that the
        controller has moved or that a coordinator is not ready. `timeout_ms` is how long that may take, by
        default as long as a whole call.
        """
        now_ms = self.connection.network.now_ms
        deadline_ms = now_ms() + (self.timeout_ms if timeout_ms is None else timeout_ms)
        for attempt in count(1):
            backoff_ms = self.connection.backoff.after(attempt)
            left_ms = max(0, deadline_ms - now_ms())
            try:
                response = self.connection.ask(node, request, left_ms)
                if now_ms() >= deadline_ms or not any(code in _PASSES for code in codes(response)):
                    return response
            except Exception as error:
                if not is_retriable(error) or now_ms() + backoff_ms >= deadline_ms:
                    raise
            self.wait(min(backoff_ms, max(0, deadline_ms - now_ms())))
        raise AssertionError

    def ask_coordinator(
        self,
        key: str,
        request: Request[R],
        codes: Callable[[R], Iterable[int]],
        key_type: int = GROUP_KEY_TYPE,
    ) -> tuple[R, int]:
        """The response of the coordinator of a group, or of a transactional id, and that broker's id.

        Asks again while the coordinator is not found, and while one of the `codes` in the response says that
        it has moved or is not ready.
        """
        now_ms = self.connection.network.now_ms
        deadline_ms = now_ms() + self.timeout_ms
        for attempt in count(1):
            backoff_ms = self.connection.backoff.after(attempt)
            left_ms = max(0, deadline_ms - now_ms())
            try:
                search = find_coordinator_request(key, key_type)
                coordinator = coordinator_in(self.connection.ask(ANY_NODE, search, left_ms))
                self.know_nodes([coordinator.node])
                response = self.connection.ask(coordinator.node, request, left_ms)
                refusal = next((code for code in codes(response) if code in _COORDINATOR_PASSES), None)
                if refusal is None:
                    return response, coordinator.node
                thing = f"{_KINDS[key_type]} {key}"
                raise error_for(refusal, f"{thing}: {error_for(refusal).message}")
            except Exception as error:
                if not is_retriable(error) or now_ms() + backoff_ms >= deadline_ms:
                    raise
            self.wait(min(backoff_ms, max(0, deadline_ms - now_ms())))
        raise AssertionError

    def wait(self, wait_ms: int) -> None:
        """Wait before a repeated request, and count a retry. Replies to other calls are kept."""
        self.retries += 1
        self.connection.metadata.renew()
        now_ms = self.connection.network.now_ms
        until_ms = now_ms() + wait_ms
        others: list[Reply] = []
        try:
            while (left_ms := until_ms - now_ms()) > 0:
                others += self.connection.poll(left_ms)
        finally:
            self.connection.keep(others)

    def pause(self) -> None:
        """Wait for the backoff between two attempts, and count a retry."""
        self.retries += 1
        wait_for_metadata(self.connection, self._backoff_ms)

    def know_nodes(self, nodes: Iterable[int]) -> None:
        """Wait until the metadata has the addresses of these brokers. Raises RequestTimeoutError."""
        metadata = self.connection.metadata
        deadline_ms = self.connection.network.now_ms() + self.timeout_ms
        while any(node not in metadata.nodes for node in nodes):
            left_ms = deadline_ms - self.connection.network.now_ms()
            if left_ms <= 0:
                missing = ", ".join(str(node) for node in nodes if node not in metadata.nodes)
                raise RequestTimeoutError(
                    with_cause(
                        f"broker {missing} was not in the cluster's metadata within {self.timeout_ms} ms: "
                        "check that it runs",
                        self.connection.standing(ANY_NODE),
                    )
                )
            wait_for_metadata(self.connection, left_ms)


def raise_first(rows: Iterable[tuple[str, int, str | None]]) -> None:
    """Raise the first error among (thing, error code, message), with the thing's name in its text."""
    for thing, code, message in rows:
        if code:
            plain = error_for(code, message)
            raise error_for(code, f"{thing}: {plain.message}")
