"""The exclusive consumer for asyncio.

async with AsyncExclusiveConsumer(properties, "indexers", [TopicPartition("log", 0)]) as consumer:
    async for record in consumer:
        ...
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

from holdfast_log.clients.aio.calls import awaited, passed_on
from holdfast_log.clients.aio.consumer import (
    AnyListener,
    AsyncBaseConsumer,
    AsyncDeadLetter,
    ConsumerInThread,
    in_loop,
)
from holdfast_log.clients.aio.home_loop import HomeLoop
from holdfast_log.clients.aio.ownership_events import OnOwnership, OwnershipEvents
from holdfast_log.clients.aio.worker import Worker
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.network import ClientNetwork
from holdfast_log.clients.exclusive_consumer import SESSION_TIMEOUT_MS, ExclusiveConsumer
from holdfast_log.clients.feedback.events import OnEvent
from holdfast_log.clients.fetching.deserialization import Deserializer
from holdfast_log.clients.ownership.events import OwnershipEvent
from holdfast_log.protocol.messages.ownership import IF_FREE
from holdfast_log.protocol.topic_partition import TopicPartition


class AsyncExclusiveConsumer(AsyncBaseConsumer):
    """A consumer that has `partitions` to itself, in an event loop: every method of ExclusiveConsumer, as a
    coroutine. The other arguments are those of ExclusiveConsumer and AsyncConsumer.

    `poll` waits for `on_ownership`, which is called in the loop, may be a coroutine, and may use the
    consumer, for example to seek. `ownership_events` has the same events for a task that awaits them.
    """

    _client: ExclusiveConsumer

    def __init__(
        self,
        properties: Properties,
        own_group: str,
        partitions: Iterable[TopicPartition],
        *,
        generation: int = IF_FREE,
        wait_ms: int = 0,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        owner_id: str | None = None,
        on_ownership: OnOwnership = lambda _: None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        rebalance_listener: AnyListener | None = None,
        network: ClientNetwork | None = None,
        rng: random.Random | None = None,
        on_event: OnEvent | None = None,
        dead_letter: AsyncDeadLetter | None = None,
    ) -> None:
        home, in_thread = HomeLoop(type(self).__name__), ConsumerInThread()
        self._events = OwnershipEvents(home)
        in_thread.consumer = ExclusiveConsumer(
            properties,
            own_group,
            partitions,
            generation=generation,
            wait_ms=wait_ms,
            session_timeout_ms=session_timeout_ms,
            owner_id=owner_id,
            on_ownership=_told(self._events, in_thread, on_ownership),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            network=network,
            rng=rng,
            **in_loop(home, in_thread, rebalance_listener, on_event, dead_letter),
        )
        in_thread.worker = Worker(home, in_thread, self)
        super().__init__(home, in_thread)

    commit = awaited(ExclusiveConsumer.commit)
    generation = passed_on(ExclusiveConsumer.generation)
    token = passed_on(ExclusiveConsumer.token)
    fence = passed_on(ExclusiveConsumer.fence)

    @property
    def owner_id(self) -> str:
        """What names this owner to others."""
        return self._client.owner_id

    @property
    def is_owner(self) -> bool:
        """Whether this consumer holds all partitions, with the caveat of `Lease.is_held`."""
        return self._client.is_owner

    def ownership_events(self) -> AsyncIterator[OwnershipEvent]:
        """The ownership events as they happen, without end; at first those since the consumer was made, the
        last 1,000. They happen while a task polls."""
        return self._events.all()


def _told(events: OwnershipEvents, in_thread: ConsumerInThread, application: Any) -> Any:
    if not callable(application):
        return application  # The ordinary consumer says what is wrong with it.

    def call(event: OwnershipEvent) -> Any:
        events.note(event)
        return application(event)

    def tell(event: OwnershipEvent) -> None:
        in_thread.call_back(lambda: call(event), "on_ownership")

    return tell
