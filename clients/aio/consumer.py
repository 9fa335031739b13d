"""The consumer for asyncio.

    async with AsyncConsumer({"bootstrap.servers": "localhost:9092", "group.id": "readers"}) as consumer:
        await consumer.add_topic("flights")
        async for record in consumer:
            print(record.offset, record.value)

A thread runs the ordinary consumer, and the coroutines wait for it. A record counts as returned, for
`commit` and `position`, once the caller has it: what a cancelled `poll` has taken, and what `async for` has
not come to yet, is given back to the consumer first.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Self, TypeAlias, TypeVar

from holdfast_log.clients.aio.calls import awaited
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.aio.listener import AsyncRebalanceListener, ListenerInLoop
from holdfast_log.clients.aio.worker import ThreadedJob, Worker
from holdfast_log.clients.arguments import A_WAIT
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.consumer import BaseConsumer, Consumer
from holdfast_log.clients.errors import ConcurrentUseError, RecordDeserializationError
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.deserialization import DeadLetter, Deserializer
from holdfast_log.clients.fetching.fetched import EncodedBatch, FetchedBatch
from holdfast_log.clients.groups.listener import RebalanceListener
from holdfast_log.clients.message import ConsumerRecord
from holdfast_log.clients.settings import Settings

T = TypeVar("T")
AnyListener: TypeAlias = AsyncRebalanceListener | RebalanceListener
AsyncDeadLetter: TypeAlias = Callable[[RecordDeserializationError], Awaitable[object]] | DeadLetter
_ITERATION_WAIT_MS = 60_000
_CLOSE_MS = 5_000
"""Default timeout of `close`, in ms."""


class ConsumerInThread:
    """What the thread of an asyncio consumer runs, and how others stop it."""

    consumer: BaseConsumer
    worker: Worker

    def interrupt(self, thread: int) -> None:
        self.consumer._connection.interrupt(thread)

    def forget_interruption(self) -> None:
        self.consumer._connection.forget_interruption()

    def discard(self) -> None:
        self.consumer._connection.close()

    def call_back(self, call: Callable[[], object], what: str, *, serves: bool = True) -> Any:
        """Have the loop call the application back, and wait, as long as a group waits for its member."""
        return self.worker.call_back(call, what, self.limit_ms, serves=serves)

    @property
    def limit_ms(self) -> int:
        limit_ms: int = self.consumer.settings["max.poll.interval.ms"]
        return limit_ms

    def dead_letter(self, store: AsyncDeadLetter, error: RecordDeserializationError) -> None:
        """Store an unreadable record: a function does in the thread, a coroutine in the loop."""
        outcome = store(error)
        if isinstance(outcome, Awaitable):
            self.call_back(lambda: outcome, "dead_letter", serves=False)


class AsyncBaseConsumer:
    """Every method of a consumer, as a coroutine over the ordinary one that is given to it.

    Any number of tasks may use it, but only one at a time may `poll` or iterate: raises ConcurrentUseError.
    Raises WrongLoopError in another loop than its own.
    """

    def __init__(self, home: HomeLoop, in_thread: ConsumerInThread) -> None:
        self._client = in_thread.consumer
        self._worker = in_thread.worker
        self._home = home
        self._is_polling = False
        self._is_woken = False
        self._ahead: deque[ConsumerRecord] = deque()
        """Records that `async for` has not come to yet."""

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._client.settings

    # Records ------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int = 0, max_records: int | None = None) -> list[ConsumerRecord]:
        """As `Consumer.poll`. If it is cancelled, no record is lost: the next `poll` returns what this one
        has taken, and `commit` does not cover it. Calls of other tasks need not wait for its end."""
        take = partial(_poll, self._client, max_records)
        return await self._take("poll", take, self._client._buffer.give_back, timeout_ms)

    async def poll_batches(self, timeout_ms: int = 0) -> list[FetchedBatch]:
        """As `Consumer.poll_batches`. If it is cancelled, the next one returns what this one has taken."""
        take = partial(_poll_whole, self._client, self._client.poll_batches)
        return await self._take("poll_batches", take, self._client._buffer.give_back_batches, timeout_ms)

    async def poll_encoded(self, timeout_ms: int = 0) -> list[EncodedBatch]:
        """As `Consumer.poll_encoded`. If it is cancelled, the next one returns what this one has taken."""
        take = partial(_poll_whole, self._client, self._client.poll_encoded)
        return await self._take("poll_encoded", take, self._client._buffer.give_back_batches, timeout_ms)

    def __aiter__(self) -> Self:
        """The records, one after the other, without end. Each counts as returned when its turn comes."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        while not self._ahead:
            records = await self._take(
                "poll",
                partial(_poll, self._client, None),
                self._client._buffer.give_back,
                _ITERATION_WAIT_MS,
                self._others_than_first,
            )
            self._ahead.extend(records)
        return self._ahead.popleft()

    def _others_than_first(self, records: list[ConsumerRecord]) -> list[ConsumerRecord] | None:
        """What goes back to the consumer at once, because another task's call is waiting for it."""
        if not self._worker.is_busy():
            return None
        rest = records[1:]
        del records[1:]
        return rest

    async def _take(
        self,
        name: str,
        take: Callable[[int], list[T]],
        give_back: Callable[[list[T]], None],
        timeout_ms: int,
        what_stays: Callable[[list[T]], list[T] | None] | None = None,
    ) -> list[T]:
        wait_ms: int = A_WAIT.check(f"{type(self).__name__}.{name}()", "timeout_ms", timeout_ms)
        loop = self._home.enter()
        self._worker.check(may_nest=False)
        if self._is_polling:
            raise ConcurrentUseError(
                f"{name}() was called while another task is in poll() or iterates: records come in order, so "
                "one task at a time may take them"
            )
        self._is_polling = True
        try:
            until_s = loop.time() + wait_ms / 1000
            while True:
                self._give_ahead_back()
                taken = await self._worker.run(
                    partial(take, 0 if self._is_woken else wait_ms),
                    give_back=give_back,
                    what_stays=what_stays,
                    interrupt=self._client.wake,
                    may_nest=False,
                )
                wait_ms = int((until_s - loop.time()) * 1000)
                if taken or self._is_woken or wait_ms <= 0:
                    self._is_woken = False
                    return taken
                # Woken for a call of another task, which has its turn before the next one.
        finally:
            self._is_polling = False

    async def _call(self, call: Callable[[], T], *, may_nest: bool = True) -> T:
        self._home.enter()
        self._give_ahead_back()
        if self._is_polling:
            self._client.wake()  # The call is behind the `poll` under way, which goes on afterwards.
        return await self._worker.run(call, may_nest=may_nest)

    def _give_ahead_back(self) -> None:
        if self._ahead:
            records = list(self._ahead)
            self._ahead.clear()
            self._worker.submit(ThreadedJob(partial(self._client._buffer.give_back, records)))

    def wake(self) -> None:
        """Make the `poll` in progress, or else the next one, return at once. Thread-safe."""
        self._is_woken = True
        self._client.wake()

    # The others ---------------------------------------------------------------------------------------

    add_topic = awaited(BaseConsumer.add_topic)
    remove_topic = awaited(BaseConsumer.remove_topic)
    add_pattern = awaited(BaseConsumer.add_pattern)
    remove_pattern = awaited(BaseConsumer.remove_pattern)
    assignment = awaited(BaseConsumer.assignment)
    pause = awaited(BaseConsumer.pause)
    resume = awaited(BaseConsumer.resume)
    seek = awaited(BaseConsumer.seek)
    seek_to_beginning = awaited(BaseConsumer.seek_to_beginning)
    seek_to_end = awaited(BaseConsumer.seek_to_end)
    position = awaited(BaseConsumer.position)
    lag = awaited(BaseConsumer.lag)
    last_error = awaited(BaseConsumer.last_error)
    feedback = awaited(BaseConsumer.feedback)
    commit = awaited(BaseConsumer.commit)
    committed = awaited(BaseConsumer.committed)
    partitions_for = awaited(BaseConsumer.partitions_for)
    topics = awaited(BaseConsumer.topics)
    beginning_offsets = awaited(BaseConsumer.beginning_offsets)
    end_offsets = awaited(BaseConsumer.end_offsets)
    offsets_for_times = awaited(BaseConsumer.offsets_for_times)
    group_identity = awaited(BaseConsumer.group_identity)
    group_metadata = awaited(BaseConsumer.group_metadata)

    rewind = awaited(BaseConsumer.rewind, may_nest=False)

    @property
    def last_commit_error(self) -> Exception | None:
        """Why the last automatic commit failed; None after one that succeeded."""
        return self._client.last_commit_error

    # The end ------------------------------------------------------------------------------------------

    async def close(self, timeout_ms: int = _CLOSE_MS) -> None:
        """As `Consumer.close`. Calls of other tasks that are under way fail with ClosedError. If it is
        cancelled, the consumer is closed nevertheless."""
        wait_ms: int = A_WAIT.check(f"{type(self).__name__}.close()", "timeout_ms", timeout_ms)
        await self._close(wait_ms, has_failed=False)

    async def __aenter__(self) -> Self:
        self._home.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """As `close`, but without the commit if the block ended with an exception."""
        await self._close(_CLOSE_MS, has_failed=kind is not None)

    async def _close(self, timeout_ms: int, *, has_failed: bool) -> None:
        self._home.enter()
        self._give_ahead_back()
        await self._worker.run_last(partial(self._client._close, timeout_ms, has_failed=has_failed))


def _poll(consumer: BaseConsumer, max_records: int | None, timeout_ms: int) -> list[ConsumerRecord]:
    return consumer.poll(timeout_ms, max_records)


def _poll_whole(consumer: BaseConsumer, poll: Callable[[int], list[T]], timeout_ms: int) -> list[T]:
    stored = consumer._fetcher.stored
    stored.forget_taken()
    stored.keeps_taken = True
    try:
        return poll(timeout_ms)
    finally:
        stored.keeps_taken = False


class AsyncConsumer(AsyncBaseConsumer):
    """Reads messages in an event loop: every method of Consumer, as a coroutine.

    The arguments are those of Consumer. The methods of `rebalance_listener` are called in the loop, and may
    be coroutines (AsyncRebalanceListener), and so may `on_event`, for which the consumer does not wait. The
    deserializers are called in the consumer's thread, and so is `dead_letter`, unless it is a coroutine.
    Belongs to the event loop that runs when it is made, or in which it is first used. Raises ConfigError.
    """

    def __init__(
        self,
        properties: Properties,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        rebalance_listener: AnyListener | None = None,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
        fence: OwnerFence | None = None,
        dead_letter: AsyncDeadLetter | None = None,
    ) -> None:
        home, in_thread = HomeLoop(type(self).__name__), ConsumerInThread()
        in_thread.consumer = Consumer(
            properties,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            network=network,
            rng=rng,
            fence=fence,
            **in_loop(home, in_thread, rebalance_listener, on_event, dead_letter),
        )
        in_thread.worker = Worker(home, in_thread, self)
        super().__init__(home, in_thread)


def in_loop(
    home: HomeLoop,
    in_thread: ConsumerInThread,
    rebalance_listener: Any,
    on_event: Any,
    dead_letter: Any,
) -> dict[str, Any]:
    """The application's callbacks as an ordinary consumer takes them. What is no callback is passed on, for
    the error that says so."""
    found: dict[str, Any] = {
        "rebalance_listener": rebalance_listener,
        "on_event": on_event,
        "dead_letter": dead_letter,
    }
    if not isinstance(rebalance_listener, type) and hasattr(rebalance_listener, "on_partitions_revoked"):
        found["rebalance_listener"] = ListenerInLoop(rebalance_listener, in_thread.call_back)
    if callable(on_event):
        found["on_event"] = partial(home.tell, on_event)
    if callable(dead_letter):
        found["dead_letter"] = partial(in_thread.dead_letter, dead_letter)
    return found
