"""The transaction coordinator of one broker: a shard for each partition of `__transaction_state` that it
leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.clock import Clock, TimeOfDay
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.shards.effects import Claimer
from holdfast_log.coordinator.shards.hosted_shard import HostedShard, ShardEvent
from holdfast_log.coordinator.shards.log import ShardLog
from holdfast_log.coordinator.shards.service import ShardHosts
from holdfast_log.coordinator.transactions.effects import MarkersToWrite, ProducerIdWanted
from holdfast_log.coordinator.transactions.memory import TransactionMemory
from holdfast_log.coordinator.transactions.partitions import TRANSACTIONS_TOPIC
from holdfast_log.coordinator.transactions.settings import TransactionSettings
from holdfast_log.coordinator.transactions.shard import TransactionShard
from holdfast_log.coordinator.transactions.states import TransactionState
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")

Marked = Callable[[MarkersToWrite, Collection[TopicPartition]], None]
"""Called with partitions that have a marker, or do not exist any more."""


class NewMarkers(Protocol):
    """Makes what sends the markers of one shard."""

    def __call__(self, marked: Marked, /) -> Claimer: ...


class TransactionService(ShardHosts[TransactionShard]):
    """Runs the shards. `new_markers` makes what sends their markers; `new_producer_id` assigns an id that no
    producer has had."""

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        date_ms: TimeOfDay,
        *,
        partition_of: Callable[[str], int | None],
        commit_timeout_ms: int,
        new_markers: NewMarkers,
        new_producer_id: Callable[[], Deferred[int]],
    ) -> None:
        super().__init__(partition_of)
        self._settings = settings
        self._clock = clock
        self._date_ms = date_ms
        self._commit_timeout_ms = commit_timeout_ms
        self._new_markers = new_markers
        self._new_producer_id = new_producer_id
        self._memory = TransactionMemory()
        self._repeated_log = RepeatedLog(clock)

    def lead(self, partition: int, log: ShardLog) -> None:
        """This broker leads a partition of `__transaction_state` in a new leader epoch: load its shard."""
        self.resign(partition)

        def marked(written: MarkersToWrite, partitions: Collection[TopicPartition]) -> None:
            host.apply(lambda shard, now_ms: shard.marked(written, partitions, now_ms))

        host = HostedShard(
            f"{TRANSACTIONS_TOPIC}-{partition}",
            TransactionShard(self._settings, self._memory),
            log,
            self._clock,
            self._date_ms,
            commit_timeout_ms=self._commit_timeout_ms,
            repeated_log=self._repeated_log,
            claimer=self._new_markers(marked),
            what="transactions",
        )
        self._begin(partition, host)

    def ask_with_id(
        self, transactional_id: str, event: Callable[[int | None], ShardEvent[TransactionShard]]
    ) -> Deferred[Any]:
        """Submit `event(None)`, and `event(new producer id)` if that is answered with `ProducerIdWanted`.
        Fails as `ask` does, and as the assignment of an id does."""

        def answered(answer: T) -> T | Deferred[Any]:
            if not isinstance(answer, ProducerIdWanted):
                return answer
            return self._new_producer_id().addCallback(
                lambda producer_id: self.ask(transactional_id, event(producer_id))
            )

        return self.ask(transactional_id, event(None)).addCallback(answered)

    # To look at, for metrics

    def states(self) -> Counter[TransactionState]:
        """How many transactional ids that this broker coordinates are in each state."""
        return Counter(each.state for shard in self._served() for each in shard.transactions.values())

    def longest_open_ms(self) -> int:
        """For how long the oldest transaction that this broker coordinates has not ended: it is open, or
        partitions lack its marker. 0 if there is none."""
        now_ms = self._date_ms()
        return max(
            (
                now_ms - each.started_ms
                for shard in self._served()
                for each in shard.transactions.values()
                if each.is_unfinished
            ),
            default=0,
        )

    @property
    def state_bytes(self) -> int:
        return self._memory.bytes

    @property
    def state_bytes_left(self) -> int:
        """How many bytes more the transactional ids of all clients together may take."""
        return max(0, self._settings.state_bytes_max - self._memory.bytes)
