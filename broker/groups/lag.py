"""How far the groups of this broker are behind the ends of the partitions that they read.

The offsets are the coordinator's, the ends the leaders'. This broker asks the other leaders for them before a
page of metrics is made, and only then: without monitoring it asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, NamedTuple

from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.forwarding import SendToBroker
from holdfast_log.broker.metrics.settings import SETTINGS
from holdfast_log.broker.network.outbound import ChannelError
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.offset_lookup import LATEST
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition

WAIT_S = 2.0
"""Longest time in seconds for which a page waits for other leaders. Partitions of leaders that have not
answered then have no lag on it."""

_ASKED_AT_ONCE = 5_000
"""Maximum number of partitions in one request."""
_CONSUMER = -1


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class LagSettings:
    """How many committed offsets are shown."""

    offsets_max: Annotated[int, "metrics.lag.partitions.max"] = 10_000


class GroupPosition(NamedTuple):
    """A group's committed offset in one partition, and how many records the group has left to read there;
    None if the partition's end is not known."""

    group: str
    partition: TopicPartition
    offset: int
    lag: int | None


class GroupLag:
    """The positions of the groups that this broker coordinates."""

    def __init__(
        self,
        groups: GroupService,
        replicas: Replicas,
        metadata: MetadataCache,
        send: SendToBroker,
        clock: Clock,
        settings: LagSettings,
    ) -> None:
        self.groups = groups
        self._replicas = replicas
        self._metadata = metadata
        self._send = send
        self._clock = clock
        self._settings = settings
        self._ends: dict[TopicPartition, int] = {}
        """The ends of partitions that other brokers lead, as they were when `look` was last called."""

    def look(self) -> Deferred[None]:
        """Ask the other leaders for the ends of their partitions. Fires when all have answered, and after
        `WAIT_S` at the latest; never fails."""
        ends = self._ends = {}
        asked = [
            self._send(leader, _request(partitions)).addCallbacks(_take, _no_answer, (ends,))
            for leader, partitions in self._by_leader()
        ]
        if not asked:
            return succeed(None)
        done: Deferred[None] = Deferred()

        def finish(_: object = None) -> None:
            if timer.active():
                timer.cancel()
            if not done.called:
                done.callback(None)

        timer = self._clock.callLater(WAIT_S, finish)
        DeferredList(asked, consumeErrors=True).addCallback(finish)
        return done

    def positions(self) -> Iterator[GroupPosition]:
        """The positions at present, up to the maximum. The lag is counted from an end that is no older than
        the last `look`, so it is never too high."""
        for group, partition, offset in self._committed():
            end = self._end(partition)
            yield GroupPosition(group, partition, offset, None if end is None else max(0, end - offset))

    @property
    def omitted(self) -> int:
        """Committed offsets that are beyond the maximum."""
        return max(0, self.groups.offset_count - self._settings.offsets_max)

    def _committed(self) -> Iterator[tuple[str, TopicPartition, int]]:
        return islice(self.groups.committed_offsets(), self._settings.offsets_max)

    def _end(self, at: TopicPartition) -> int | None:
        partition = self._replicas.find(*at)
        if partition is not None and isinstance(partition.role, Leadership):
            return partition.high_watermark
        return self._ends.get(at)

    def _by_leader(self) -> Iterator[tuple[int, list[TopicPartition]]]:
        """The partitions that other brokers lead, by leader, in lists that fit into a request."""
        found: dict[int, dict[TopicPartition, None]] = {}
        for _, at, _ in self._committed():
            leader = self._metadata.leader_of(*at)
            if leader is not None and leader >= 0 and leader != self._replicas.local_id:
                found.setdefault(leader, {})[at] = None
        for leader, partitions in found.items():
            rest = iter(partitions)
            while chunk := list(islice(rest, _ASKED_AT_ONCE)):
                yield leader, chunk


def _request(partitions: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in partitions:
        if topic not in topics:
            topics[topic] = ListOffsetsTopic(name=topic, partitions=[])
        topics[topic].partitions.append(ListOffsetsPartition(partition_index=index, timestamp=LATEST))
    return ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def _take(response: ListOffsetsResponse, ends: dict[TopicPartition, int]) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE and partition.offset >= 0:
                ends[TopicPartition(topic.name, partition.partition_index)] = partition.offset


def _no_answer(failure: Failure) -> None:
    """The leader cannot be reached: its partitions have no lag on this page."""
    failure.trap(ChannelError, BrokerError)
