"""Partitions that the application reads beside those that the group assigns."""

from __future__ import annotations

from collections.abc import Collection

from holdfast_log.protocol.topic_partition import TopicPartition


class PartitionsBeside:
    """Which partitions the application has added itself: the group neither moves nor revokes them.

    One that the group still has to take back waits until that is done.
    """

    def __init__(self) -> None:
        self._read: dict[TopicPartition, None] = {}
        self._waiting: dict[TopicPartition, None] = {}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._read

    def add(self, partition: TopicPartition, owned: Collection[TopicPartition]) -> bool:
        """Read a partition from now on. Returns False if the group has it, by `owned`: `revoked` gives it
        back."""
        is_free = partition in self._read or partition not in owned
        (self._read if is_free else self._waiting)[partition] = None
        return is_free

    def revoked(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """The group has taken partitions back. Returns those to read from now on."""
        begun = [partition for partition in partitions if partition in self._waiting]
        for partition in begun:
            del self._waiting[partition]
            self._read[partition] = None
        return begun

    def remove(self, topic: str, partition: int | None = None) -> None:
        """Read a partition, or all of a topic with None, no more by itself."""
        for partitions in (self._read, self._waiting):
            for key in [key for key in partitions if key.topic == topic]:
                if partition in (None, key.partition):
                    del partitions[key]
