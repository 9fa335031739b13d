"""The exclusive consumer: the only reader of its partitions in a group of owners (own API).

    with ExclusiveConsumer(properties, "indexer", [TopicPartition("log", 0)], wait_ms=FOR_EVER) as consumer:
        for record in consumer.poll(1000):
            ...

`poll` sends and renews the claim, on the connections of the fetches: a consumer that takes longer than the
session timeout between two polls loses its partitions to the next claimant.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from holdfast_log.clients.arguments import (
    A_FUNCTION,
    A_NAME,
    A_PARTITION,
    A_TIMEOUT,
    PARTITIONS,
    checked,
    optional,
)
from holdfast_log.clients.config import Properties
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.consumer import BaseConsumer
from holdfast_log.clients.consuming.loop import ConsumerParts, consumer_parts
from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.arguments import (
    OF_CONSUMERS,
    OFFSETS_TO_COMMIT,
    PARTITION_OR_ALL,
    TO_COMMIT,
)
from holdfast_log.clients.groups.membership import OwnerTokens
from holdfast_log.clients.message import OffsetAndMetadata
from holdfast_log.clients.ownership.arguments import A_CLAIM_WAIT, A_GENERATION, OF_OWNERS
from holdfast_log.clients.ownership.claim import ClaimSettings
from holdfast_log.clients.ownership.claim_requests import OwnDialect
from holdfast_log.clients.ownership.claims import OwnershipClaims
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent
from holdfast_log.protocol.messages.ownership import IF_FREE, Access
from holdfast_log.protocol.topic_partition import TopicPartition

SESSION_TIMEOUT_MS = 10_000


class ExclusiveConsumer(BaseConsumer):
    """A consumer that has `partitions` to itself. It begins to read a partition when it is first granted, and
    neither fetches nor returns records of it while it is not held; the application must keep calling `poll`.

    `own_group` is the group of owners; `generation`, `wait_ms` and `owner_id` are those of a `Lease`, `more`
    the other arguments of Consumer. `poll` calls `on_ownership` for every OwnershipEvent: an application that
    stores positions elsewhere seeks when a partition is first HELD. With a `group.id`, reading begins at the
    offset that the group has committed by then.

    A lost partition is not claimed again: `poll` raises OwnershipFencedError from then on, and `close`
    commits nothing. `poll` raises OwnershipRefusedError if the claim was refused, RequestTimeoutError if it
    was not granted within `wait_ms`. The constructor raises TypeError for arguments of a wrong type.
    Otherwise as Consumer.
    """

    @checked(
        own_group=A_NAME,
        partitions=PARTITIONS,
        generation=A_GENERATION,
        wait_ms=A_CLAIM_WAIT,
        session_timeout_ms=OF_OWNERS["session_timeout_ms"],
        owner_id=OF_OWNERS["owner_id"],
        on_ownership=A_FUNCTION,
        **OF_CONSUMERS,
    )
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
        tokens = OwnerTokens(own_group)
        parts = consumer_parts(properties, tokens=tokens, **more)
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
        super().__init__(parts, _PartitionClaims(self._own, parts, tokens, on_ownership))

    @property
    def is_owner(self) -> bool:
        """Whether this consumer holds all partitions, with the caveat of `Lease.is_held`."""
        return not self._loop.is_closed and self._own.is_valid(self._network.now_ms())

    @checked(partition=A_PARTITION)
    def generation(self, partition: TopicPartition) -> int | None:
        """The generation in which a partition was granted; None before that."""
        grant = self._own.by_resource[partition].grant
        return None if grant is None else grant.generation

    @checked(partition=A_PARTITION)
    def token(self, partition: TopicPartition) -> int | None:
        """A number for storage outside, as `Lease.token`; None before the partition is granted."""
        grant = self._own.by_resource[partition].grant
        return None if grant is None else grant.incarnation

    def fence(self) -> OwnerFence:
        """What lets the Consumers of other processes read the partitions, as `Lease.fence`."""
        return self._own.fence()

    @checked(
        topic=TO_COMMIT,
        partition=PARTITION_OR_ALL,
        offsets=optional(OFFSETS_TO_COMMIT),
        timeout_ms=A_TIMEOUT,
    )
    def commit(
        self,
        topic: str | Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        partition: int | None = None,
        *,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """As `Consumer.commit`. Commits carry the token of each partition: the coordinator refuses those of
        partitions that another owner has been granted, and OwnershipFencedError is raised. Once a partition
        is known to be lost, commits nothing and raises what `poll` raises."""
        self._loop.raise_claims_error()
        super().commit(topic, partition, offsets=offsets, timeout_ms=timeout_ms)


class _PartitionClaims:
    """The claims of one exclusive consumer (`clients.consuming.loop.ReadClaims`)."""

    def __init__(
        self,
        own: OwnershipClaims,
        parts: ConsumerParts,
        tokens: OwnerTokens,
        on_ownership: Callable[[OwnershipEvent], object],
    ) -> None:
        self._tokens = tokens
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
            grant = self._own.by_resource[event.resource].grant
            assert grant is not None
            self._tokens.incarnations[event.resource] = grant.incarnation
            self._parts.add_partition(event.resource)
