"""The exclusive producer for asyncio (PIP-68).

async with AsyncExclusiveProducer(properties, "journal", ProducerAccessMode.WAIT_FOR_EXCLUSIVE) as producer:
    await producer.publish(Message("journal", value="I lead"))
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any, Self

from holdfast_log.clients.aio.call_threads import in_thread
from holdfast_log.clients.aio.calls import awaited, passed_on
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.aio.ownership_events import OnOwnership, OwnershipEvents
from holdfast_log.clients.aio.sender import AsyncSender
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.errors import ClosedError
from holdfast_log.clients.exclusive_producer import SESSION_TIMEOUT_MS, ExclusiveProducer
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.ownership.events import OwnershipEvent
from holdfast_log.clients.sending.message_sender import Serializer, to_bytes
from holdfast_log.clients.sending.partitioner import Partitioner, by_key
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode


class AsyncExclusiveProducer(AsyncSender):
    """A producer of one topic, with access to `partitions`, or to all that the topic has: an
    ExclusiveProducer in an event loop. The arguments are those of ExclusiveProducer.

    It begins with `async with`, or when it is awaited, which waits until access is granted (`is_waiting`), as
    the constructor of ExclusiveProducer does, and raises what that raises. If this is cancelled, nothing is
    claimed any more. `on_ownership` and `on_event` are called in the loop, and may be coroutines;
    `ownership_events` has the same events for a task that awaits them.
    """

    _client: ExclusiveProducer

    def __init__(
        self,
        properties: Properties,
        topic: str,
        mode: ProducerAccessMode = ProducerAccessMode.EXCLUSIVE,
        *,
        partitions: Iterable[int] | None = None,
        timeout_ms: int | None = None,
        is_waiting: bool = True,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        producer_id: str | None = None,
        on_ownership: OnOwnership = lambda _: None,
        key_serializer: Serializer = to_bytes,
        value_serializer: Serializer = to_bytes,
        partitioner: Partitioner = by_key,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        super().__init__(HomeLoop(type(self).__name__))
        self._events = OwnershipEvents(self._home)
        self._wait = partial(_claim, mode, timeout_ms) if is_waiting else None
        self._make: Callable[[], ExclusiveProducer] = partial(
            ExclusiveProducer,
            properties,
            topic,
            mode,
            partitions=partitions,
            timeout_ms=timeout_ms,
            is_waiting=False,
            session_timeout_ms=session_timeout_ms,
            producer_id=producer_id,
            on_ownership=self._events.tell_also(on_ownership) if callable(on_ownership) else on_ownership,
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            network=network,
            rng=rng,
            on_event=partial(self._home.tell, on_event) if callable(on_event) else on_event,
        )

    # The beginning ------------------------------------------------------------------------------------

    async def _begin(self) -> Self:
        self._home.enter()
        if self._is_closed:
            raise ClosedError("the AsyncExclusiveProducer is closed: make another one")
        if "_client" in self.__dict__:
            return self
        client = await in_thread(self._home, None, self._make, _discard)
        self._use(client)
        if self._wait is not None:
            try:
                await self._call(partial(self._wait, client))
            except BaseException:
                self._is_closed = True
                await in_thread(self._home, None, partial(client.close, 0))
                raise
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._begin().__await__()

    async def __aenter__(self) -> Self:
        return await self._begin()

    def __getattr__(self, name: str) -> Any:
        if name in ("_client", "_send", "_room", "_places"):
            raise ClosedError(
                "this AsyncExclusiveProducer has not begun: write `async with ... as producer`, or "
                "`producer = await AsyncExclusiveProducer(...)`"
            )
        raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)

    # Access -------------------------------------------------------------------------------------------

    claim = awaited(ExclusiveProducer.claim)
    epoch = passed_on(ExclusiveProducer.epoch)
    token = passed_on(ExclusiveProducer.token)
    fence = passed_on(ExclusiveProducer.fence)
    fence_offset = passed_on(ExclusiveProducer.fence_offset)

    @property
    def topic(self) -> str:
        """The topic that this producer writes to."""
        return self._client.topic

    @property
    def mode(self) -> ProducerAccessMode:
        """How it claims."""
        return self._client.mode

    @property
    def producer_id(self) -> str:
        """What names it to others."""
        return self._client.producer_id

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions that it writes to."""
        return self._client.partitions

    @property
    def has_access(self) -> bool:
        """Whether it has access to all its partitions, as `ExclusiveProducer.has_access`."""
        return self._client.has_access

    def ownership_events(self) -> AsyncIterator[OwnershipEvent]:
        """The ownership events as they happen, without end; at first those since the beginning, the last
        1,000."""
        return self._events.all()


def _claim(mode: ProducerAccessMode, timeout_ms: int | None, producer: ExclusiveProducer) -> None:
    """Wait for access as long as the constructor of an ExclusiveProducer does."""
    if timeout_ms is None and mode is not ProducerAccessMode.WAIT_FOR_EXCLUSIVE:
        timeout_ms = producer.settings["max.block.ms"]
    producer.claim(timeout_ms)


def _discard(producer: ExclusiveProducer) -> None:
    """Close a producer whose beginning nobody waited for."""
    producer.close(0)
