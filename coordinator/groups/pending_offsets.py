"""Offsets that count once the transaction that commits them is committed.

A partition of a group may wait for several transactions at once. What the log has last for it counts,
because compaction keeps that: an offset that is committed or deleted later, by whomever, takes the place of
those that wait, and the end of a transaction does not bring an older one back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast_log.coordinator.groups.records import CommittedOffset
from holdfast_log.protocol.topic_partition import TopicPartition


class PendingKey(NamedTuple):
    """An offset of a group in a transaction of a producer."""

    producer_id: int
    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """`number` rises in the order of the log."""

    number: int
    committed: CommittedOffset


class PendingOffsets:
    """The offsets of open transactions, of all groups of a shard."""

    def __init__(self) -> None:
        self._number = 0
        self._by_producer: dict[int, dict[PendingKey, PendingOffset]] = {}
        self._by_group: dict[str, dict[TopicPartition, set[int]]] = {}
        """The producers whose transactions have offsets of a group, by partition."""

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def has(self, group_id: str, partition: TopicPartition) -> bool:
        return partition in self._by_group.get(group_id, ())

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def group_ids(self) -> Iterator[str]:
        return iter(self._by_group)

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        return list(self._by_group.get(group_id, ()))

    def next(self, committed: CommittedOffset) -> PendingOffset:
        """An offset that comes after all others in the log."""
        self._number += 1
        return PendingOffset(self._number, committed)

    def get(self, key: PendingKey) -> PendingOffset | None:
        return self._by_producer.get(key.producer_id, {}).get(key)

    def keys_of(self, group_id: str, partition: TopicPartition) -> list[PendingKey]:
        """What waits for a partition of a group."""
        producers = self._by_group.get(group_id, {}).get(partition, ())
        return [PendingKey(producer_id, group_id, partition) for producer_id in producers]

    def set(self, key: PendingKey, pending: PendingOffset | None) -> None:
        """Set what a transaction commits for a partition; None: nothing."""
        producer_id, group_id, partition = key
        if pending is not None:
            self._by_producer.setdefault(producer_id, {})[key] = pending
            self._by_group.setdefault(group_id, {}).setdefault(partition, set()).add(producer_id)
            return
        if self._by_producer.get(producer_id, {}).pop(key, None) is None:
            return
        if not self._by_producer[producer_id]:
            del self._by_producer[producer_id]
        producers = self._by_group[group_id][partition]
        producers.discard(producer_id)
        if not producers:
            del self._by_group[group_id][partition]
            if not self._by_group[group_id]:
                del self._by_group[group_id]

    def end(self, producer_id: int) -> dict[PendingKey, PendingOffset]:
        """What the transaction of a producer has; it waits no more."""
        ended = dict(self._by_producer.get(producer_id, {}))
        for key in ended:
            self.set(key, None)
        return ended
