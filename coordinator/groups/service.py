"""The group coordinator of one broker: a shard for each partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator
from functools import partial

from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, DelayedCall, TimeOfDay
from holdfast_log.coordinator.groups.consumer_topics import ClusterTopics
from holdfast_log.coordinator.groups.effects import ShardResult
from holdfast_log.coordinator.groups.member_memory import MemberMemory
from holdfast_log.coordinator.groups.offsets import OffsetMemory
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.reader_claimer import ReaderClaimer
from holdfast_log.coordinator.groups.settings import GroupSettings
from holdfast_log.coordinator.groups.shard import GroupShard
from holdfast_log.coordinator.groups.views import Group
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.shards.hosted_shard import HostedShard
from holdfast_log.coordinator.shards.log import ShardLog
from holdfast_log.coordinator.shards.service import ShardHosts
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_LOOKED_AT_PER_TURN = 4_000
"""Offsets that are looked at, whether they have expired, in one reactor turn. A group is looked at as a
whole."""

_PER_GROUP = 20
"""A group costs as much as so many offsets."""


class GroupService(ShardHosts[GroupShard]):
    """Routes requests to shards, and events of topics to all shards.

    `date_ms` dates what is stored; `partition_of(group_id)` is the partition that stores a
    group, None while `__consumer_offsets` does not exist; `new_id` makes the random part of member ids;
    `partition_count(topic)` is a topic's number of partitions; `cluster` has
    the topics for consumer groups. `new_claimer` makes the claimer of each shard;
    without it no claims are made.
    """

    def __init__(
        self,
        config: GroupSettings,
        clock: Clock,
        date_ms: TimeOfDay,
        *,
        partition_of: Callable[[str], int | None],
        new_id: Callable[[], str],
        partition_count: Callable[[str], int],
        commit_timeout_ms: int,
        cluster: ClusterTopics | None = None,
        new_claimer: Callable[[], ReaderClaimer] | None = None,
    ) -> None:
        super().__init__(partition_of)
        self._config = config
        self._clock = clock
        self._date_ms = date_ms
        self._new_id = new_id
        self._partition_count = partition_count
        self._commit_timeout_ms = commit_timeout_ms
        self._cluster = cluster
        self._new_claimer = new_claimer
        self._repeated_log = RepeatedLog(clock)
        self._expiring: DelayedCall | None = None
        self._backlogs: deque[int] = deque()
        """The partitions whose shards have more to do than a turn's work."""
        self._working = Alarm(clock, self._work_off)
        self._offset_memory = OffsetMemory()
        self._memory = MemberMemory(
            config.all_groups_bytes_max,
            lambda: sum(host.shard.member_bytes() for host in self._hosts.values()),
        )

    # Leadership

    def lead(self, partition: int, log: ShardLog) -> None:
        """This broker leads a partition of `__consumer_offsets` in a new leader epoch: load its shard."""
        self.resign(partition)
        host = HostedShard(
            f"{OFFSETS_TOPIC}-{partition}",
            GroupShard(
                self._config,
                new_id=self._new_id,
                partition_count=self._partition_count,
                memory=self._memory,
                offset_memory=self._offset_memory,
                cluster=self._cluster,
                backlog_began=partial(self._backlog_began, partition),
            ),
            log,
            self._clock,
            self._date_ms,
            commit_timeout_ms=self._commit_timeout_ms,
            repeated_log=self._repeated_log,
            claimer=None if self._new_claimer is None else self._new_claimer(),
        )
        self._begin(partition, host)

    def stop(self) -> None:
        super().stop()
        self._working.end()
        if self._expiring is not None:
            self._expiring.cancel()
            self._expiring = None

    # Events for all shards

    def topics_changed(self, topics: Collection[str]) -> None:
        """`topics` have been created or given more partitions."""
        for host in list(self._hosts.values()):
            host.apply(lambda shard, now: shard.topics_changed(topics, now))

    def topics_deleted(self, topics: Collection[str]) -> None:
        """`topics` have been deleted."""
        for host in list(self._hosts.values()):
            host.apply(lambda shard, now: shard.topics_deleted(topics, now))

    def markers_applied(
        self, partition_index: int, producer_id: int, producer_epoch: int, is_commit: bool
    ) -> None:
        """The log of a partition of `__consumer_offsets` has the end marker of a producer's transaction."""
        host = self._hosts.get(partition_index)
        if host is not None:
            host.apply(
                lambda shard, now_ms: shard.transaction_ended(producer_id, is_commit=is_commit, now_ms=now_ms)
            )

    def expire_offsets(self) -> None:
        """Delete expired offsets of all groups, in batches over several reactor turns."""
        if self._expiring is None:
            self._expire_batch(self._all_groups())

    # To look at, for metrics. What is iterated may change between two steps.

    def groups(self) -> Iterator[Group]:
        """The groups that this broker coordinates."""
        for shard in self._served():
            yield from shard.groups()

    def committed_offsets(self) -> Iterator[tuple[str, TopicPartition, int]]:
        """Group, partition and offset of everything that those groups have committed."""
        for shard in self._served():
            for group_id in list(shard.offsets.group_ids()):
                for partition, committed in list(shard.offsets.of_group(group_id).items()):
                    yield group_id, partition, committed.offset

    @property
    def offset_count(self) -> int:
        """How many offsets those groups have committed."""
        return sum(
            shard.offsets.count_of(group_id)
            for shard in self._served()
            for group_id in shard.offsets.group_ids()
        )

    # What takes more than a turn

    def _backlog_began(self, partition: int) -> None:
        self._backlogs.append(partition)
        if not self._working.is_set:
            self._working.set(0)

    def _work_off(self) -> None:
        """Have one of the shards do a step: all of them together would take as many times as long."""
        partition = self._backlogs.popleft()
        host = self._hosts.get(partition)
        if host is not None and host.served is not None:
            host.apply(GroupShard.work_off)
            if host.shard.has_backlog:
                self._backlogs.append(partition)
        if self._backlogs and not self._working.is_set:
            self._working.set(0)

    # Expiry

    def _all_groups(self) -> Iterator[tuple[HostedShard[GroupShard], str]]:
        for host in list(self._hosts.values()):
            for group_id in [] if host.served is None else host.served.group_ids():
                yield host, group_id

    def _expire_batch(self, groups: Iterator[tuple[HostedShard[GroupShard], str]]) -> None:
        self._expiring = None
        looked_at = 0
        while looked_at < _LOOKED_AT_PER_TURN:
            found = next(groups, None)
            if found is None:
                return
            host, group_id = found
            if host.served is not None:
                looked_at += _PER_GROUP + host.served.offsets.count_of(group_id)
                host.apply(partial(_expire, group_id))
        self._expiring = self._clock.callLater(0, self._expire_batch, groups)


def _expire(group_id: str, shard: GroupShard, now_ms: int) -> ShardResult:
    return shard.expire_offsets(group_id, now_ms)
