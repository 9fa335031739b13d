"""Offsets that count once the transaction that commits them is committed.

A partition of a group may wait for several transactions at once. What the log has last for it counts,
because compaction keeps that: an offset that is committed or deleted later, by whomever, takes the place of
those that wait, and the end of a transaction does not bring an older one back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from holdfast_log.coordinator.groups.records import CommittedOffset
from holdfast_log.protocol.topic_partition import TopicPartition


class PendingKey(NamedTuple):
    """An offset of a group in a transaction. `transaction` is a number that the shard has given it."""

    transaction: int
    group_id: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """`number` rises in the order of the log."""

    number: int
    committed: CommittedOffset


class PendingOffsets:
    """The offsets of transactions, of all groups of a shard."""

    def __init__(self) -> None:
        self._number = 0
        self._transactions = 0
        self._open: dict[int, int] = {}
        """By producer, the number of its open transaction. It may have no offsets."""
        self._by_transaction: dict[int, dict[PendingKey, PendingOffset]] = {}
        self._by_group: dict[str, dict[TopicPartition, set[int]]] = {}
        """The transactions that have offsets of a group, by partition."""

    def __len__(self) -> int:
        return sum(map(len, self._by_transaction.values()))

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

    def key(self, producer_id: int, group_id: str, partition: TopicPartition) -> PendingKey:
        """The key of an offset in the open transaction of a producer, which begins with it if need be."""
        transaction = self._open.get(producer_id)
        if transaction is None:
            self._transactions += 1
            transaction = self._open[producer_id] = self._transactions
        return PendingKey(transaction, group_id, partition)

    def find(self, producer_id: int, group_id: str, partition: TopicPartition) -> PendingOffset | None:
        """What the open transaction of a producer commits for a partition."""
        transaction = self._open.get(producer_id)
        return None if transaction is None else self.get(PendingKey(transaction, group_id, partition))

    def get(self, key: PendingKey) -> PendingOffset | None:
        return self._by_transaction.get(key.transaction, {}).get(key)

    def keys_of(self, group_id: str, partition: TopicPartition) -> list[PendingKey]:
        """What waits for a partition of a group."""
        transactions = self._by_group.get(group_id, {}).get(partition, ())
        return [PendingKey(transaction, group_id, partition) for transaction in transactions]

    def set(self, key: PendingKey, pending: PendingOffset | None) -> None:
        """Set what a transaction commits for a partition; None: nothing."""
        transaction, group_id, partition = key
        if pending is not None:
            self._by_transaction.setdefault(transaction, {})[key] = pending
            self._by_group.setdefault(group_id, {}).setdefault(partition, set()).add(transaction)
            return
        if self._by_transaction.get(transaction, {}).pop(key, None) is None:
            return
        if not self._by_transaction[transaction]:
            del self._by_transaction[transaction]
        transactions = self._by_group[group_id][partition]
        transactions.discard(transaction)
        if not transactions:
            del self._by_group[group_id][partition]
            if not self._by_group[group_id]:
                del self._by_group[group_id]

    def end(self, producer_id: int) -> int | None:
        """End the open transaction of a producer. Returns its number; None if it has no offsets. What it has
        stays until it is set to None."""
        transaction = self._open.pop(producer_id, None)
        return transaction if transaction in self._by_transaction else None

    def some_of(self, transaction: int, at_most: int) -> list[tuple[PendingKey, PendingOffset]]:
        """Some of the offsets of a transaction, the oldest keys first."""
        return list(islice(self._by_transaction.get(transaction, {}).items(), at_most))
