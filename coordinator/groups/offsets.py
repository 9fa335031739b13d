"""The committed offsets of one coordinator shard, and their expiry."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.records import CommittedOffset, offset_record
from holdfast_log.protocol.topic_partition import TopicPartition

OFFSET_BYTES = 200
"""What a committed offset costs in memory besides its metadata."""

_NONE: dict[TopicPartition, CommittedOffset] = {}


@dataclass(slots=True)
class OffsetMemory:
    """Bytes of the committed offsets of all shards of a broker."""

    bytes: int = 0


class GroupOffsets:
    """Offsets by group and partition. Their bytes are counted in `memory`, which shards share, and for each
    group.

    `commit` and `delete` add a record to the result; `restore` writes none, for records read from the log.
    """

    def __init__(self, memory: OffsetMemory | None = None) -> None:
        self._memory = memory or OffsetMemory()
        self._bytes: dict[str, int] = {}
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._readers: dict[str, dict[str, int]] = {}
        """For each topic, the number of its partitions in which each group has an offset."""

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        return self._groups.get(group_id, _NONE).get(partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All of a group's offsets; read only."""
        return self._groups.get(group_id, _NONE)

    def bytes_of(self, group_id: str) -> int:
        """Bytes of a group's offsets with their metadata."""
        return self._bytes.get(group_id, 0)

    def growth(self, group_id: str, partition: TopicPartition, metadata: str) -> int:
        """By how many bytes an offset with this metadata would make the group's offsets larger."""
        return OFFSET_BYTES + len(metadata) - _price(self.get(group_id, partition))

    def close(self) -> None:
        """The shard is closed: its offsets count no more."""
        self._memory.bytes -= sum(self._bytes.values())
        self._memory = OffsetMemory()

    def has_any(self, group_id: str) -> bool:
        return group_id in self._groups

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def commit(
        self, result: ShardResult, group_id: str, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        self._remember(result, group_id, partition)
        self.restore(group_id, partition, committed)
        result.records.append(offset_record(group_id, partition, committed))

    def delete(self, result: ShardResult, group_id: str, partition: TopicPartition) -> None:
        """Delete one offset, if there is one."""
        if self.get(group_id, partition) is None:
            return
        self._remember(result, group_id, partition)
        self.restore(group_id, partition, None)
        result.records.append(offset_record(group_id, partition, None))

    def delete_group(self, result: ShardResult, group_id: str) -> None:
        for partition in list(self.of_group(group_id)):
            self.delete(result, group_id, partition)

    def delete_topics(self, result: ShardResult, topics: Collection[str]) -> None:
        """Delete all offsets of deleted topics."""
        for topic in sorted(topics):
            for group_id in list(self._readers.get(topic, ())):
                for partition in [each for each in self.of_group(group_id) if each.topic == topic]:
                    self.delete(result, group_id, partition)

    def restore(self, group_id: str, partition: TopicPartition, committed: CommittedOffset | None) -> None:
        """Set an offset, or remove it with None, without a record."""
        offsets = self._groups.get(group_id)
        grown = _price(committed) - _price(None if offsets is None else offsets.get(partition))
        if grown:
            self._memory.bytes += grown
            self._bytes[group_id] = self._bytes.get(group_id, 0) + grown
            if not self._bytes[group_id]:
                del self._bytes[group_id]
        if committed is not None:
            if offsets is None:
                offsets = self._groups[group_id] = {}
            if partition not in offsets:
                readers = self._readers.setdefault(partition.topic, {})
                readers[group_id] = readers.get(group_id, 0) + 1
            offsets[partition] = committed
        elif offsets is not None and offsets.pop(partition, None) is not None:
            if not offsets:
                del self._groups[group_id]
            self._unread(group_id, partition.topic)

    def _unread(self, group_id: str, topic: str) -> None:
        """Count one offset less of a topic for a group."""
        readers = self._readers[topic]
        readers[group_id] -= 1
        if not readers[group_id]:
            del readers[group_id]
            if not readers:
                del self._readers[topic]

    def expired(
        self,
        group_id: str,
        *,
        retention_ms: int,
        unused_since_ms: int | None,
        still_read: Collection[str],
        now_ms: int,
    ) -> list[TopicPartition]:
        """The partitions of a group whose offsets have expired (KIP-211).

        An offset expires `retention_ms` after `unused_since_ms`, when the group became empty, or if that is
        None after its commit; a commit before OffsetCommit v5 may have set its own expiry. Offsets of topics
        in `still_read` do not expire.
        """
        expired: list[TopicPartition] = []
        for partition, committed in self.of_group(group_id).items():
            if partition.topic in still_read:
                continue
            if committed.expire_timestamp_ms is not None:
                expire_ms = committed.expire_timestamp_ms
            else:
                since_ms = committed.commit_timestamp_ms if unused_since_ms is None else unused_since_ms
                expire_ms = since_ms + retention_ms
            if expire_ms <= now_ms:
                expired.append(partition)
        return expired

    def _remember(self, result: ShardResult, group_id: str, partition: TopicPartition) -> None:
        result.offsets_before.setdefault((group_id, partition), self.get(group_id, partition))


def _price(committed: CommittedOffset | None) -> int:
    """Bytes of an offset in memory."""
    return 0 if committed is None else OFFSET_BYTES + len(committed.metadata)
