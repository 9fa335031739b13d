"""The committed offsets of one coordinator shard, and their expiry."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from holdfast_log.coordinator.groups.doomed_offsets import DoomedOffsets
from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.pending_offsets import PendingKey, PendingOffset, PendingOffsets
from holdfast_log.coordinator.groups.records import CommittedOffset, offset_record
from holdfast_log.coordinator.shards.effects import ProducerStamp
from holdfast_log.protocol.topic_partition import TopicPartition

OFFSET_BYTES = 300
"""What a committed offset costs in memory besides its metadata."""

GROUP_BYTES = 800
"""What a group with offsets costs in memory besides them and its id."""

STEP = 250
"""How many offsets are deleted, or counted, in a turn at most: each takes 4 µs, and a record in the log."""

_LOOKS = 16
"""So many offsets are looked at in the time in which one is deleted."""

_NONE: dict[TopicPartition, CommittedOffset] = {}
_NOBODY: dict[str, int] = {}
_END: Any = object()


@dataclass(slots=True)
class OffsetMemory:
    """Bytes of the committed offsets of all shards of a broker."""

    bytes: int = 0


class GroupOffsets:
    """Offsets by group and partition. Their bytes are counted in `memory`, which shards share, and for each
    group.

    `commit` and `delete` add a record to the result; `restore` writes none, for records read from the log.

    What would take longer than a turn is done in steps (`work_off`): deleting the offsets of a topic or of a
    group, and counting or dropping those of a transaction. Readers see it done at once.
    """

    def __init__(
        self,
        memory: OffsetMemory | None = None,
        step: int = STEP,
        backlog_began: Callable[[], None] = lambda: None,
    ) -> None:
        """`backlog_began` is called when there is something for `work_off`; again only after that is done."""
        self._memory = memory or OffsetMemory()
        self._step = step
        self._backlog_began = backlog_began
        self._is_told = False
        self._bytes: dict[str, int] = {}
        self._groups: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self.pending = PendingOffsets()
        """Those of transactions that are open, or ended but not worked off; read only."""
        self._readers: dict[str, dict[str, int]] = {}
        """For each topic, the number of its partitions in which each group has an offset."""
        self._doomed = DoomedOffsets()
        self._sweep: Iterator[tuple[str, TopicPartition] | None] = iter(())
        self._ended: dict[int, bool] = {}
        """Transactions that have ended, in that order, and whether they were committed."""
        self._expiring: deque[tuple[str, TopicPartition, CommittedOffset]] = deque()

    def get(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        if self.is_doomed(group_id, partition):
            return None
        if self._ended:
            ended = self._ended_last(group_id, partition)
            if ended is not None:
                return ended.committed
        return self._stored(group_id, partition)

    def of_group(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """All of a group's offsets; read only."""
        stored = self._groups.get(group_id, _NONE)
        if not self._doomed and not self._ended:
            return stored
        partitions = dict.fromkeys([*stored, *(self.pending.partitions_of(group_id) if self._ended else ())])
        found = ((each, self.get(group_id, each)) for each in partitions)
        return {partition: committed for partition, committed in found if committed is not None}

    def is_doomed(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether an offset that counts as deleted is still to be deleted."""
        return bool(self._doomed) and self._doomed.has(group_id, partition)

    def bytes_of(self, group_id: str) -> int:
        """Bytes of a group's offsets with their metadata."""
        return self._bytes.get(group_id, 0)

    def count_of(self, group_id: str) -> int:
        """How many offsets a group has in memory."""
        return len(self._groups.get(group_id, _NONE))

    def growth(
        self,
        group_id: str,
        partition: TopicPartition,
        metadata: str,
        stamp: ProducerStamp | None = None,
    ) -> int:
        """By how many bytes an offset with this metadata would make the group's offsets larger; with a
        `stamp`, one in the transaction of that producer."""
        before = self._stored(group_id, partition)
        if stamp is not None:
            pending = self.pending.find(stamp.producer_id, group_id, partition)
            before = None if pending is None else pending.committed
        first = 0 if group_id in self._bytes else _group_price(group_id)
        return first + OFFSET_BYTES + len(metadata) - _price(before)

    def close(self) -> None:
        """The shard is closed: its offsets count no more."""
        self._memory.bytes -= sum(self._bytes.values())
        self._memory = OffsetMemory()

    def has_any(self, group_id: str) -> bool:
        return group_id in self._groups and not self._doomed.has_all_of(group_id)

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def commit(
        self, result: ShardResult, group_id: str, partition: TopicPartition, committed: CommittedOffset
    ) -> None:
        self._settle(result, group_id, partition)
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
        """Commit an offset in the open transaction of a producer. The partition must not be doomed: what is
        doomed has to be deleted by a record outside of the transaction."""
        key = self.pending.key(producer_id, group_id, partition)
        result.pending_before.setdefault(key, self.pending.get(key))
        self.restore_pending(key, self.pending.next(committed))
        result.records.append(offset_record(group_id, partition, committed))

    def undo(self, result: ShardResult) -> None:
        """The log has refused the records of `result`: everything is as before."""
        for (group_id, partition), committed in result.offsets_before.items():
            self.restore(group_id, partition, committed)
        for key, pending in result.pending_before.items():
            self.restore_pending(key, pending)
        for group_id, partition in result.settled:
            self._doomed.unsettle(group_id, partition)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> list[str]:
        """The transaction of a producer has ended: its offsets count if it was committed, else they are gone.
        Returns the groups concerned; if there is more than a step's work, `work_off` does."""
        transaction = self.pending.end(producer_id)
        if transaction is None:
            return []
        self._ended[transaction] = is_commit
        if len(self._ended) > 1 or len(self.pending.some_of(transaction, self._step + 1)) > self._step:
            self._tell()
            return []
        return self._count_ended(self._step)[1]

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
        if self._stored(group_id, partition) is None and not self.pending.has(group_id, partition):
            return
        self._remember(result, group_id, partition)
        self._replace_pending(result, group_id, partition)
        self.restore(group_id, partition, None)
        result.records.append(offset_record(group_id, partition, None))

    def delete_group(self, result: ShardResult, group_id: str) -> None:
        """Delete all offsets of a deleted group. `is_deleting` says whether some are left to `work_off`."""
        stored, pending = self._groups.get(group_id, _NONE), self.pending.partitions_of(group_id)
        if len(stored) + len(pending) > self._step:
            self._doomed.add_group(group_id)
            self._tell()
            return
        for partition in dict.fromkeys([*stored, *pending]):
            self.delete(result, group_id, partition)

    def is_deleting(self, group_id: str) -> bool:
        """Whether offsets of a deleted group are still to be deleted."""
        return group_id in self._doomed.groups

    def delete_topics(self, result: ShardResult, topics: Collection[str]) -> None:
        """Delete all offsets of deleted topics."""
        readers = [self._readers.get(topic, _NOBODY) for topic in topics]
        if sum(map(len, readers)) + len(self.pending) > self._step or (
            sum(sum(each.values()) for each in readers) > self._step
        ):
            self._doomed.add_topics(topics)
            self._tell()
            return
        for topic in sorted(topics):
            for group_id in list(self._readers.get(topic, ())):
                for partition in [each for each in self._groups[group_id] if each.topic == topic]:
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

    # What takes more than a turn

    @property
    def has_backlog(self) -> bool:
        """Whether `work_off` has something to do."""
        return bool(self._ended or self._doomed or self._expiring)

    def work_off(self, result: ShardResult) -> list[str]:
        """Do a step of what is to be done. Returns the groups concerned, also with those whose offsets may
        be gone now."""
        done, concerned = self._count_ended(self._step)
        left = _LOOKS * (self._step - done)
        while left > 0 and self._expiring:
            group_id, partition, committed = self._expiring.popleft()
            left -= _LOOKS
            if self._stored(group_id, partition) is committed and not self.pending.has(group_id, partition):
                self.delete(result, group_id, partition)
                concerned.append(group_id)
        while left > 0 and self._doomed:
            found = next(self._sweep, _END)
            if found is _END:
                self._sweep = self._doomed_offsets()
            elif found is None:
                left -= 1
            else:
                left -= _LOOKS
                self.delete(result, *found)
                concerned.append(found[0])
        self._is_told = self.has_backlog
        return list(dict.fromkeys(concerned))

    def give_up(self) -> None:
        """The log has refused what a step wrote: what is left to be deleted stays."""
        self._doomed.clear()
        self._expiring.clear()
        self._sweep = iter(())
        self._is_told = self.has_backlog

    def _doomed_offsets(self) -> Iterator[tuple[str, TopicPartition] | None]:
        """One round: each doomed offset, and None for what was looked at in vain."""
        this_round = self._doomed.begin_round()
        seen: set[str] = set()
        readers = [list(self._readers.get(topic, ())) for topic in this_round.topics]
        for group_id in chain(list(this_round.groups), *readers, list(self.pending.group_ids())):
            yield None
            if group_id in seen:
                continue
            seen.add(group_id)
            for partition in [*self._groups.get(group_id, ()), *self.pending.partitions_of(group_id)]:
                yield (group_id, partition) if self._doomed.has(group_id, partition) else None
        self._doomed.end_round(this_round)

    def expire_later(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Have `work_off` delete offsets that have expired, unless they are replaced before."""
        for partition in partitions:
            committed = self._stored(group_id, partition)
            if committed is not None:
                self._expiring.append((group_id, partition, committed))
        if self._expiring:
            self._tell()

    def _tell(self) -> None:
        if not self._is_told:
            self._is_told = True
            self._backlog_began()

    def _count_ended(self, at_most: int) -> tuple[int, list[str]]:
        """Count, or drop, some offsets of transactions that have ended. Returns how many, and the groups
        concerned."""
        done, concerned = 0, []
        while self._ended and done < at_most:
            transaction, is_commit = next(iter(self._ended.items()))
            some = self.pending.some_of(transaction, at_most - done)
            for key, pending in some:
                self.restore_pending(key, None)
                concerned.append(key.group_id)
                if is_commit:
                    self._count_pending(key, pending)
            done += len(some)
            if not self.pending.some_of(transaction, 1):
                del self._ended[transaction]
        return done, list(dict.fromkeys(concerned))

    def _count_pending(self, key: PendingKey, pending: PendingOffset) -> None:
        """An offset of a committed transaction counts from now on."""
        group_id, partition = key.group_id, key.partition
        self.restore(group_id, partition, pending.committed)
        for other in self.pending.keys_of(group_id, partition):
            found = self.pending.get(other)
            if found is not None and found.number < pending.number:
                self.restore_pending(other, None)
        if self.is_doomed(group_id, partition):
            self._doomed.look_again(group_id, partition)

    def _ended_last(self, group_id: str, partition: TopicPartition) -> PendingOffset | None:
        """The last offset of a partition among those of committed transactions that are not worked off."""
        committed = (
            self.pending.get(key)
            for key in self.pending.keys_of(group_id, partition)
            if self._ended.get(key.transaction)
        )
        return max(
            (each for each in committed if each is not None), key=lambda each: each.number, default=None
        )

    def _settle(self, result: ShardResult, group_id: str, partition: TopicPartition) -> None:
        """Delete what is doomed of a partition, of which something is committed now."""
        if self.is_doomed(group_id, partition):
            self.delete(result, group_id, partition)
            self._doomed.settle(group_id, partition)
            result.settled.append((group_id, partition))

    def _stored(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        """An offset whether or not it is doomed, without what ended transactions have for it."""
        return self._groups.get(group_id, _NONE).get(partition)

    def _count(self, group_id: str, grown: int) -> None:
        """Count the bytes by which a group's offsets have grown, and those of the group with its first."""
        if grown:
            before = self._bytes.get(group_id, 0)
            after = (before or _group_price(group_id)) + grown
            if after == _group_price(group_id):
                after = 0
                del self._bytes[group_id]
            else:
                self._bytes[group_id] = after
            self._memory.bytes += after - before

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
        result.offsets_before.setdefault((group_id, partition), self._stored(group_id, partition))


def _group_price(group_id: str) -> int:
    """Bytes of a group with offsets, without them."""
    return GROUP_BYTES + len(group_id)


def _price(committed: CommittedOffset | None) -> int:
    """Bytes of an offset in memory."""
    return 0 if committed is None else OFFSET_BYTES + len(committed.metadata)
