"""The exclusive consumer: the only reader of its partitions in a group of owners (own API).

    with ExclusiveConsumer(properties, "indexer", [TopicPartition("log", 0)], wait_ms=FOR_EVER) as consumer:
        for record in consumer.poll(1000):
            ...

The claim goes out from `poll`, as fetches do and on the same connections, and is renewed there: a consumer
that takes longer than the session timeout between two polls loses its partitions to the next that wants
them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clients.config import Properties
from clients.connection.link import Call, Reply
from clients.consumer import BaseConsumer
from clients.consumer_loop import ConsumerParts, consumer_parts
from clients.message import OffsetAndMetadata
from clients.ownership.claim import ClaimSettings
from clients.ownership.claim_requests import OwnDialect
from clients.ownership.claims import OwnershipClaims
from clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent
from protocol.messages.ownership import IF_FREE, Access
from protocol.topic_partition import TopicPartition

SESSION_TIMEOUT_MS = 10_000


class ExclusiveConsumer(BaseConsumer):
    """A consumer that has `partitions` for itself. It consumes one from when it is first granted, and while
    it is not held nothing of it is fetched or handed out; `poll` is to be called all the same.

    `own_group` is where it owns them; `generation`, `wait_ms` and `owner_id` are those of a `Lease`, `more`
    what else a Consumer takes. `on_ownership` is called from within `poll` for every OwnershipEvent: who
    keeps positions elsewhere seeks when a partition is HELD for the first time. With a `group.id` it begins
    where the group has committed by then.

    What is lost is lost for good: `poll` then raises OwnershipFencedError, or, where the claim was refused,
    OwnershipRefusedError, and RequestTimeoutError where `wait_ms` was over first; and closing commits nothing
    any more. Otherwise as Consumer.
    """

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
        on_ownership: Callable[[OwnershipEvent], object] = lambda _: None,
        **more: Any,
    ) -> None:
        parts = consumer_parts(properties, **more)
        self.owner_id = owner_id or str(uuid.uuid4())
        dialect = OwnDialect(own_group, self.owner_id, session_timeout_ms, Access.READ)
        self._own = OwnershipClaims(
            parts.connection,
            dialect,
            dict.fromkeys(partitions, generation),
            ClaimSettings(session_timeout_ms, parts.settings["retry.backoff.ms"]),
            wait_ms=wait_ms,
            answer_timeout_ms=2 * parts.settings["request.timeout.ms"] // 3,
        )
        super().__init__(parts, _PartitionClaims(self._own, parts, on_ownership))

    @property
    def is_owner(self) -> bool:
        """Whether all partitions are believed to be this consumer's (see `Lease.is_held`)."""
        return not self._loop.is_closed and self._own.is_valid(self._network.now_ms())

    def generation(self, partition: TopicPartition) -> int | None:
        """The generation in which a partition was granted; None before that."""
        grant = self._own.by_resource[partition].grant
        return None if grant is None else grant.generation

    def commit(
        self,
        topic: str | None = None,
        partition: int | None = None,
        *,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """As Consumer's; but once a partition is known to be lost nothing is committed any more: raises what
        `poll` does. The broker does not know, see docs/ownership.md."""
        self._loop.raise_claims_error()
        super().commit(topic, partition, offsets=offsets, timeout_ms=timeout_ms)


class _PartitionClaims:
    """The claims of one exclusive consumer (`clients.consumer_loop.ReadClaims`)."""

    def __init__(
        self, own: OwnershipClaims, parts: ConsumerParts, on_ownership: Callable[[OwnershipEvent], object]
    ) -> None:
        self._own = own
        self._parts = parts
        self._network = parts.connection.network
        self._on_ownership = on_ownership
        self._partitions = [key for key in own.by_resource if isinstance(key, TopicPartition)]
        self._begun: dict[OwnedResource, None] = {}

    @property
    def error(self) -> Exception | None:
        return self._own.error

    @property
    def has_ended(self) -> bool:
        return self._own.has_ended

    def calls(self, now_ms: int) -> list[Call]:
        return self._own.calls(now_ms)

    def handle(self, reply: Reply, now_ms: int) -> bool:
        return self._own.handle(reply, now_ms)

    def next_event_ms(self, now_ms: int) -> int | None:
        return self._own.next_event_ms(now_ms)

    def release(self) -> None:
        self._own.release()

    def begin_turn(self) -> None:
        """Suspend each partition that is not held, or whose session may have expired: it is renewed first."""
        now_ms = self._network.now_ms()
        for key in self._partitions:
            position = self._parts.fetcher.positions.get(key)
            if position is not None:
                was_unowned = position.is_unowned
                position.is_unowned = not self._own.by_resource[key].is_valid(now_ms)
                if position.is_unowned and not was_unowned:
                    self._parts.buffer.put_back(position)

    def end_turn(self) -> None:
        self.begin_turn()
        events = self._own.take_events()
        for event in events:
            self._begin(event)
        for event in events:
            self._on_ownership(event)

    def _begin(self, event: OwnershipEvent) -> None:
        """Consume a partition once it is granted; its owner may commit until then."""
        if event.state is not ClaimState.HELD or event.resource in self._begun:
            return
        self._begun[event.resource] = None
        if isinstance(event.resource, TopicPartition):
            self._parts.add_partition(event.resource)
