"""The exclusive consumer: the only reader of its partitions in a group of owners (own API).

    with ExclusiveConsumer(properties, "indexer", [TopicPartition("log", 0)], wait_ms=FOR_EVER) as consumer:
        for record in consumer.poll(1000):
            ...

The claim goes out from `poll`, as fetches do and on the same connections, and is renewed there: whoever takes
longer than the session timeout between two polls loses its partitions to the next that wants them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clients.config import Properties
from clients.consumer import Consumer
from clients.message import OffsetAndMetadata
from clients.ownership.claim import ClaimSettings
from clients.ownership.claim_requests import OwnDialect
from clients.ownership.claims import OwnershipClaims
from clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent
from protocol.messages.ownership import IF_FREE, Access
from protocol.topic_partition import TopicPartition

SESSION_TIMEOUT_MS = 10_000


class ExclusiveConsumer(Consumer):
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
        super().__init__(properties, **more)
        self.owner_id = owner_id or str(uuid.uuid4())
        self._on_ownership = on_ownership
        dialect = OwnDialect(own_group, self.owner_id, session_timeout_ms, Access.READ)
        self._own = OwnershipClaims(
            self._connection,
            dialect,
            dict.fromkeys(partitions, generation),
            ClaimSettings(session_timeout_ms, self.settings["retry.backoff.ms"]),
            wait_ms=wait_ms,
            answer_timeout_ms=2 * self.settings["request.timeout.ms"] // 3,
        )
        self._claims = self._own
        self._begun: dict[OwnedResource, None] = {}

    def _partitions(self) -> list[TopicPartition]:
        return [key for key in self._own.by_resource if isinstance(key, TopicPartition)]

    @property
    def is_owner(self) -> bool:
        """Whether all partitions are this consumer's, as far as can be known (see `Lease.is_held`)."""
        return not self._is_closed and self._own.is_valid(self._network.now_ms())

    def generation(self, partition: TopicPartition) -> int | None:
        """The generation in which a partition was granted; None before that."""
        grant = self._own.by_resource[partition].grant
        return None if grant is None else grant.generation

    # The loop -----------------------------------------------------------------------------------------

    def _run_until(self, timeout_ms: int, has_something: Callable[[], bool]) -> None:
        self._raise_problem()
        self._hold_back()
        super()._run_until(timeout_ms, lambda: self._own.error is not None or has_something())
        self._raise_problem()

    def _raise_problem(self) -> None:
        if not self._is_closed and self._own.error is not None:
            raise self._own.error

    def _turn(self, wait_ms: int) -> None:
        self._hold_back()
        super()._turn(wait_ms)
        self._hold_back()
        events = self._own.take_events()
        for event in events:
            self._begin(event)
        for event in events:
            self._on_ownership(event)

    def _hold_back(self) -> None:
        """Let nothing of a partition through that is not held, or that a broker may have given to another
        because nothing was heard for too long: then it is renewed first."""
        now_ms = self._network.now_ms()
        for key in self._partitions():
            position = self._fetcher.positions.get(key)
            if position is not None:
                was_unowned = position.is_unowned
                position.is_unowned = not self._own.by_resource[key].is_valid(now_ms)
                if position.is_unowned and not was_unowned:
                    self._handout.put_back(position)

    def _begin(self, event: OwnershipEvent) -> None:
        """Take up a partition that is granted: not before, since its owner may have committed until then."""
        if event.state is not ClaimState.HELD or event.resource in self._begun:
            return
        self._begun[event.resource] = None
        if isinstance(event.resource, TopicPartition):
            self.add_topic(*event.resource)

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
        self._raise_problem()
        super().commit(topic, partition, offsets=offsets, timeout_ms=timeout_ms)

    # The end ------------------------------------------------------------------------------------------

    def _close(self, timeout_ms: int, *, has_failed: bool) -> None:
        """Commits first, where that is wanted: the next owner begins there."""
        if self._is_closed:
            return
        deadline_ms = self._network.now_ms() + timeout_ms
        try:
            if self._group is not None:
                self._take_leave(self._group, timeout_ms, has_failed or self._own.error is not None)
        finally:
            self._is_closed = True
            self._own.release()
            self._let_go(deadline_ms)
            self._connection.close()

    def _let_go(self, deadline_ms: int) -> None:
        while not self._own.has_ended and (now_ms := self._network.now_ms()) < deadline_ms:
            due_ms = self._own.next_event_ms(now_ms)
            wait_ms = deadline_ms - now_ms if due_ms is None else min(deadline_ms, due_ms) - now_ms
            for reply in self._connection.poll(max(0, wait_ms), *self._own.calls(now_ms)):
                self._own.handle(reply, self._network.now_ms())
