"""What a managed group reads: the partitions of its topics as they come and go, and where each stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from coordinator.groups.effects import ShardResult
from coordinator.groups.managed_group import ManagedGroup
from coordinator.groups.offsets import GroupOffsets
from coordinator.groups.records import CommittedOffset
from protocol.topic_partition import TopicPartition

NO_OFFSET = -1
_SMALLEST_OFFSET = 0


class ManagedTopics:
    """`partition_count` says how many partitions a topic has, 0 where there is no such topic."""

    def __init__(self, offsets: GroupOffsets, partition_count: Callable[[str], int]) -> None:
        self._offsets = offsets
        self._partition_count = partition_count

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """How many partitions each of `topics` has now."""
        return {topic: self._partition_count(topic) for topic in topics}

    def has(self, group: ManagedGroup, partition: TopicPartition) -> bool:
        """Whether there is such a partition, of a topic that is the group's."""
        return partition.topic in group.partitions and 0 <= partition.partition < self._partition_count(
            partition.topic
        )

    def begin_new_partitions(
        self, group: ManagedGroup, result: ShardResult, counts: Mapping[str, int], now_ms: int
    ) -> None:
        """Commit the smallest offset for partitions that are new, so that they are read from their start.

        By a commit, not only by an answer: their first owner may die before it has committed anything.
        """
        for topic, count in counts.items():
            for number in range(group.partitions[topic], count):
                partition = TopicPartition(topic, number)
                if self._offsets.get(group.group_id, partition) is None:
                    self.commit(group, result, partition, _SMALLEST_OFFSET, now_ms)

    def forget_lost_partitions(self, group: ManagedGroup, topics: Iterable[str]) -> bool:
        """Forget partitions that are gone, so that those that come back under a topic's name are new."""
        lost = {
            topic: count
            for topic, count in self.counts(topics).items()
            if count < group.partitions.get(topic, 0)
        }
        group.partitions.update(lost)
        return bool(lost)

    def is_fully_owned(self, group: ManagedGroup) -> bool:
        """Whether the members own all that there is between them, and nothing else."""
        owned = {partition for member in group.members.values() for partition in member.owned}
        counts = self.counts(group.partitions)
        return len(owned) == sum(counts.values()) and all(
            partition.partition < counts.get(partition.topic, 0) for partition in owned
        )

    def offset(self, group: ManagedGroup, partition: TopicPartition) -> int:
        """Where the group stands in a partition; `NO_OFFSET` where nobody has committed anything."""
        committed = self._offsets.get(group.group_id, partition)
        return NO_OFFSET if committed is None else committed.offset

    def commit(
        self, group: ManagedGroup, result: ShardResult, partition: TopicPartition, offset: int, now_ms: int
    ) -> None:
        self._offsets.commit(result, group.group_id, partition, CommittedOffset(offset, -1, "", now_ms))

    def delete_offsets(self, group: ManagedGroup, result: ShardResult) -> None:
        """Forget where the group stands, everywhere."""
        self._offsets.delete_group(result, group.group_id)
