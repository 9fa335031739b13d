"""The committed offsets of one coordinator shard, and their expiry."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.pending_offsets import PendingKey, PendingOffset, PendingOffsets
from holdfast_log.coordinator.groups.records import CommittedOffset, offset_record
from holdfast_log.coordinator.shards.effects import ProducerStamp
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
        self.pending = PendingOffsets()
        """Those of open transactions; read only."""
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

    def growth(
        self,
        group_id: str,
        partition: TopicPartition,
        metadata: str,
        stamp: ProducerStamp | None = None,
    ) -> int:
        """By how many bytes an offset with this metadata would make the group's offsets larger; with a
        `stamp`, one in the transaction of that producer."""
        before = self.get(group_id, partition)
        if stamp is not None:
            pending = self.pending.get(PendingKey(stamp.producer_id, group_id, partition))
            before = None if pending is None else pending.committed
        return OFFSET_BYTES + len(metadata) - _price(before)

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
        self._replace_pending(result, group_id, partition)
        self.restore(group_id, partition, committed)
        result.records.append(offset_record(group_id, partition, committed))

    def commit_pending(
        self,
        result: ShardResult,
        producer_id: int,
        group_id: str,
        partition: TopicPartition,
        committed: CommittedOffset,
    ) -> None:
        """Commit an offset in the open transaction of a producer."""
        key = PendingKey(producer_id, group_id, partition)
        result.pending_before.setdefault(key, self.pending.get(key))
        self.restore_pending(key, self.pending.next(committed))
        result.records.append(offset_record(group_id, partition, committed))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """The transaction of a producer has ended: its offsets count if it was committed, else they are gone.
        Returns the groups concerned."""
        ended = self.pending.end(producer_id)
        for key, pending in ended.items():
            self._count(key.group_id, -_price(pending.committed))
            if is_commit:
                self.restore(key.group_id, key.partition, pending.committed)
                for other in self.pending.keys_of(key.group_id, key.partition):
                    found = self.pending.get(other)
                    if found is not None and found.number < pending.number:
                        self.restore_pending(other, None)
        return list(dict.fromkeys(key.group_id for key in ended))

    def restore_pending(self, key: PendingKey, pending: PendingOffset | None) -> None:
        """Set what an open transaction commits for a partition, or remove it with None, without a record."""
        before = self.pending.get(key)
        self._count(
            key.group_id,
            _price(None if pending is None else pending.committed)
            - _price(None if before is None else before.committed),
        )
        self.pending.set(key, pending)

    def delete(self, result: ShardResult, group_id: str, partition: TopicPartition) -> None:
        """Delete one offset, if there is one, and those that wait for transactions."""
        if self.get(group_id, partition) is None and not self.pending.has(group_id, partition):
            return
        self._remember(result, group_id, partition)
        self._replace_pending(result, group_id, partition)
        self.restore(group_id, partition, None)
        result.records.append(offset_record(group_id, partition, None))

    def delete_group(self, result: ShardResult, group_id: str) -> None:
        for partition in dict.fromkeys([*self.of_group(group_id), *self.pending.partitions_of(group_id)]):
            self.delete(result, group_id, partition)

    def delete_topics(self, result: ShardResult, topics: Collection[str]) -> None:
        """Delete all offsets of deleted topics."""
        for topic in sorted(topics):
            for group_id in list(self._readers.get(topic, ())):
                for partition in [each for each in self.of_group(group_id) if each.topic == topic]:
                    self.delete(result, group_id, partition)
        for group_id in list(self.pending.group_ids()):
            for partition in self.pending.partitions_of(group_id):
                if partition.topic in topics:
                    self.delete(result, group_id, partition)

    def restore(self, group_id: str, partition: TopicPartition, committed: CommittedOffset | None) -> None:
        """Set an offset, or remove it with None, without a record."""
        offsets = self._groups.get(group_id)
        grown = _price(committed) - _price(None if offsets is None else offsets.get(partition))
        self._count(group_id, grown)
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

    def _count(self, group_id: str, grown: int) -> None:
        """Count the bytes by which a group's offsets have grown."""
        if grown:
            self._memory.bytes += grown
            self._bytes[group_id] = self._bytes.get(group_id, 0) + grown
            if not self._bytes[group_id]:
                del self._bytes[group_id]

    def _replace_pending(self, result: ShardResult, group_id: str, partition: TopicPartition) -> None:
        """A record of the partition follows, which counts instead of those that wait for transactions."""
        for key in self.pending.keys_of(group_id, partition):
            result.pending_before.setdefault(key, self.pending.get(key))
            self.restore_pending(key, None)

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
        in `still_read` do not expire, nor do those that an open transaction may replace.
        """
        expired: list[TopicPartition] = []
        for partition, committed in self.of_group(group_id).items():
            if partition.topic in still_read or self.pending.has(group_id, partition):
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
