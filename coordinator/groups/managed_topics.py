"""The topics of a managed group: their partitions, as they are added and removed, and their offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.managed_group import ManagedGroup
from holdfast_log.coordinator.groups.offsets import GroupOffsets
from holdfast_log.coordinator.groups.records import CommittedOffset
from holdfast_log.protocol.topic_partition import TopicPartition

NO_OFFSET = -1
_SMALLEST_OFFSET = 0


class ManagedTopics:
    """`partition_count(topic)` is a topic's number of partitions, 0 if it does not exist."""

    def __init__(self, offsets: GroupOffsets, partition_count: Callable[[str], int]) -> None:
        self._offsets = offsets
        self._partition_count = partition_count

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """The current number of partitions of each of `topics`."""
        return {topic: self._partition_count(topic) for topic in topics}

    def has(self, group: ManagedGroup, partition: TopicPartition) -> bool:
        """Whether the partition exists and its topic belongs to the group."""
        return partition.topic in group.partitions and 0 <= partition.partition < self._partition_count(
            partition.topic
        )

    def begin_new_partitions(
        self, group: ManagedGroup, result: ShardResult, counts: Mapping[str, int], now_ms: int
    ) -> None:
        """Commit offset 0 for new partitions, so that the group reads them from their start.

        A start offset in the answer would not be enough: the first owner may die before it commits.
        """
        for topic, count in counts.items():
            for number in range(group.partitions[topic], count):
                partition = TopicPartition(topic, number)
                if self._offsets.get(group.group_id, partition) is None:
                    self.commit(group, result, partition, _SMALLEST_OFFSET, now_ms)

    def forget_lost_partitions(self, group: ManagedGroup, topics: Iterable[str]) -> bool:
        """Forget removed partitions, so that those of a topic created again count as new; whether any
        were."""
        lost = {
            topic: count
            for topic, count in self.counts(topics).items()
            if count < group.partitions.get(topic, 0)
        }
        group.partitions.update(lost)
        return bool(lost)

    def is_fully_owned(self, group: ManagedGroup) -> bool:
        """Whether the members own exactly the existing partitions of the group's topics."""
        owned = {partition for member in group.members.values() for partition in member.owned}
        counts = self.counts(group.partitions)
        return len(owned) == sum(counts.values()) and all(
            partition.partition < counts.get(partition.topic, 0) for partition in owned
        )

    def offset(self, group: ManagedGroup, partition: TopicPartition) -> int:
        """The group's committed offset in a partition, or `NO_OFFSET`."""
        committed = self._offsets.get(group.group_id, partition)
        return NO_OFFSET if committed is None else committed.offset

    def may_be_replaced(self, group: ManagedGroup) -> bool:
        """Whether an open transaction may replace an offset of the group (KIP-447)."""
        return self._offsets.pending.has_any(group.group_id)

    def commit(
        self, group: ManagedGroup, result: ShardResult, partition: TopicPartition, offset: int, now_ms: int
    ) -> None:
        self._offsets.commit(result, group.group_id, partition, CommittedOffset(offset, -1, "", now_ms))

    def delete_offsets(self, group: ManagedGroup, result: ShardResult) -> None:
        """Delete all offsets of the group."""
        self._offsets.delete_group(result, group.group_id)
