"""Blocking questions in worker threads, a bounded number at a time, and clients that they use.

A client serves one thread at a time. Clients of the console itself are kept, and lent to one question after
the other; those of a person who has logged in are made for one question and closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

from holdfast_log.clients.admin import Admin
from holdfast_log.clients.consumer import Consumer

T = TypeVar("T")

THREADS = 6
"""How many questions may be asked at the same time."""
WAITING_MAX = 60
"""How many more may wait for their turn; further ones are refused."""
API_TIMEOUT_MS = 10_000
"""How long a question may take."""
FIRST_CONTACT_MS = 4_000
"""How long to wait for the first answer of any broker."""

CREDENTIALS = ("sasl.username", "sasl.password", "sasl.jaas.config")
"""The properties that say who the console is."""

FETCH = {
    "max.partition.fetch.bytes": 1024 * 1024,
    "fetch.max.bytes": 4 * 1024 * 1024,
    "batch.max.bytes": 32 * 1024 * 1024,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
}
"""Bounds of the consumers that read messages for a page."""


class Busy(Exception):
    """Too many questions wait already."""


class RunBlocking(Protocol):
    """Calls a blocking function without holding up the event loop."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


class QuestionWorkers:
    """Runs blocking functions in at most `threads` worker threads. Raises Busy if `waiting_max` more wait."""

    def __init__(self, threads: int = THREADS, waiting_max: int = WAITING_MAX) -> None:
        self._threads = threads
        self._waiting_max = waiting_max
        self._limiter: anyio.CapacityLimiter | None = None

    async def __call__(self, function: Callable[[], T], /) -> T:
        if self._limiter is None:  # It belongs to the event loop that runs now.
            self._limiter = anyio.CapacityLimiter(self._threads)
        if self._limiter.statistics().tasks_waiting >= self._waiting_max:
            raise Busy
        return await anyio.to_thread.run_sync(function, limiter=self._limiter)


class Clients:
    """Makes clients of the cluster. `properties` are those of the console; a person's come on top of them."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        *,
        make_admin: Callable[[Mapping[str, Any]], Admin] = Admin,
        make_consumer: Callable[[Mapping[str, Any]], Consumer] = Consumer,
    ) -> None:
        self.properties = {
            "default.api.timeout.ms": API_TIMEOUT_MS,
            "request.timeout.ms": API_TIMEOUT_MS,
            "bootstrap.timeout.ms": FIRST_CONTACT_MS,
            **properties,
        }
        self._make_admin = make_admin
        self._make_consumer = make_consumer
        self._idle: SimpleQueue[Admin] = SimpleQueue()

    @contextmanager
    def shared_admin(self) -> Iterator[Admin]:
        """An admin client with the console's own rights."""
        try:
            admin = self._idle.get_nowait()
        except Empty:
            admin = self._make_admin(self.properties)
        try:
            yield admin
        except BaseException:
            admin.close()  # The next question begins with new connections.
            raise
        self._idle.put(admin)

    @contextmanager
    def admin(self, personal: Mapping[str, Any]) -> Iterator[Admin]:
        """An admin client with the rights of a person: the shared one where nobody logs in."""
        if not personal:
            with self.shared_admin() as admin:
                yield admin
            return
        with self._make_admin(self._of(personal)) as admin:
            yield admin

    def consumer(self, personal: Mapping[str, Any]) -> Consumer:
        """A consumer without a group, with the rights of a person. The caller closes it."""
        return self._make_consumer({**self._of(personal), **FETCH})

    def _of(self, personal: Mapping[str, Any]) -> dict[str, Any]:
        """The properties of a person's clients: with their own credentials, and none of the console's."""
        left = self.properties
        if personal:
            left = {name: value for name, value in left.items() if name.replace("_", ".") not in CREDENTIALS}
        return {**left, **personal}

    def close(self) -> None:
        """Close the idle clients."""
        while True:
            try:
                self._idle.get_nowait().close()
            except Empty:
                return
