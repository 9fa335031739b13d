"""The cluster as a client sees it: brokers, topics, and who leads which partition.

A view, renewed by Metadata responses and never quite up to date: a client that finds it wrong has it renewed.
It has no connection: it makes the request that is due, and processes the response.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from holdfast_log.clients.connection.backoff import Backoff, RepeatPace
from holdfast_log.clients.feedback.events import Events, LeaderMoved
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast_log.protocol.schema import ZERO_UUID

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Where a partition is. `leader` is -1 if there is none; `leader_epoch` is -1 if it is unknown."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic. `partitions` is ordered and complete; `available` are the numbers of those with a leader."""

    name: str
    id: UUID
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
    available: tuple[int, ...]


class Metadata:
    """The view, and when to renew it. Times are by the caller's clock, in ms."""

    def __init__(
        self,
        *,
        max_age_ms: int,
        backoff: Backoff,
        allow_auto_topic_creation: bool,
        events: Events | None = None,
    ) -> None:
        self.cluster_id: str | None = None
        self.controller_id = NO_NODE
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.errors: dict[str, BrokerError] = {}
        """By topic that is wanted and not in `topics`, the last error from a broker."""
        self.update_count = 0
        """How many responses have been processed."""
        self.doubted = NO_NODE
        """The broker whose word on who leads or coordinates has last proved wrong: others are asked instead,
        if one can be reached. It may be cut off, and not know that another has taken its place."""
        self.asked_at_ms = -1
        """When the request was made to which the last response belongs."""
        self._max_age_ms = max_age_ms
        self._pace = RepeatPace(backoff, free=0)
        self._allow_auto_topic_creation = allow_auto_topic_creation
        self._events = events or Events()
        self._wanted: dict[str, None] = {}
        self._wanted_ids: dict[UUID, None] = {}
        self._is_stale = True
        self._renewed_at_ms = 0
        self._asking_since_ms = -1
        self._not_before_ms = 0

    def want(self, topic: str) -> None:
        """Keep `topic` in the view from now on."""
        if topic not in self._wanted:
            self._wanted[topic] = None
            self._is_stale = True
            self._not_before_ms = 0

    def want_id(self, topic_id: UUID) -> None:
        """Learn the name of the topic with this id, and keep the topic in the view from then on."""
        if topic_id not in self._wanted_ids and self.name_of(topic_id) is None:
            self._wanted_ids[topic_id] = None
            self._is_stale = True
            self._not_before_ms = 0

    def forget_ids(self) -> None:
        """Look no more for the names of topics that are known by their ids only."""
        self._wanted_ids.clear()

    def renew(self) -> None:
        """Renew the view soon: something in it has proved wrong."""
        self._is_stale = True

    def doubt(self, node: int) -> None:
        """Renew the view soon, by another broker than this one, which does not do what the view says."""
        if node != NO_NODE:
            self.doubted = node
        self.renew()

    def doubt_leader(self, topic: str, partition: int) -> None:
        """Doubt the broker that leads a partition by this view: it has refused to."""
        self.doubt(self.leader(topic, partition))

    def due_at_ms(self) -> int:
        """When the next request should be sent."""
        if self._is_stale:
            return self._not_before_ms
        return self._renewed_at_ms + self._max_age_ms

    def request(self, now_ms: int) -> MetadataRequest:
        """The request that renews the view; it counts as sent from here on."""
        self._not_before_ms = now_ms + self._pace.step(now_ms)
        self._asking_since_ms = now_ms
        return MetadataRequest(
            topics=[
                *(MetadataRequestTopic(name=topic) for topic in self._wanted),
                *(MetadataRequestTopic(topic_id=each, name=None) for each in self._wanted_ids),
            ],
            allow_auto_topic_creation=self._allow_auto_topic_creation,
        )

    def update(self, response: MetadataResponse, request: MetadataRequest, now_ms: int) -> None:
        """Process the response to a request made by `request`."""
        self.nodes = {
            row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        asked = {topic.name for topic in request.topics or () if topic.name is not None}
        asked |= self._found_by_id(response)
        self._is_stale = any(topic not in asked for topic in self._wanted) or bool(self._wanted_ids)
        self._renewed_at_ms = now_ms
        self.asked_at_ms = self._asking_since_ms
        for row in response.topics:
            if row.name is not None:
                self._update_topic(row.name, row)
        if asked - {row.name for row in response.topics}:
            self._is_stale = True  # The broker has left out a topic.
        self.update_count += 1

    def _found_by_id(self, response: MetadataResponse) -> set[str]:
        """The names of topics that were known by their ids only, and are wanted by name from now on."""
        found = {
            row.topic_id: row.name
            for row in response.topics
            if row.name is not None and not row.error_code and row.topic_id in self._wanted_ids
        }
        for topic_id, name in found.items():
            del self._wanted_ids[topic_id]
            self._wanted[name] = None
        return {*found.values()}

    def _update_topic(self, name: str, row: MetadataResponseTopic) -> None:
        if row.error_code:
            self.errors[name] = error = error_for(row.error_code)
            self._is_stale = self._is_stale or error.retriable
            if row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.topics.pop(name, None)
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        if known is not None and row.topic_id not in (known.id, ZERO_UUID):
            known = None  # Deleted and created again: its leader epochs start over.
        epochs = {} if known is None else {info.partition: info for info in known.partitions}
        partitions = tuple(
            self._partition(name, partition, epochs.get(partition.partition_index))
            for partition in sorted(row.partitions, key=lambda partition: partition.partition_index)
        )
        if partitions and partitions[-1].partition != len(partitions) - 1:
            self._is_stale = True  # Some partitions are missing: `partitions` would not be complete.
            return
        available = tuple(info.partition for info in partitions if info.leader != NO_NODE)
        if any(info.leader not in self.nodes for info in partitions):
            self._is_stale = True  # No leader, or one that the broker that answered does not know yet.
        if known is not None and known.available == available:
            available = known.available  # Partitioners compare the object to notice a change.
        self.topics[name] = TopicInfo(name, row.topic_id, row.is_internal, partitions, available)

    def _partition(
        self, topic: str, row: MetadataResponsePartition, known: PartitionInfo | None
    ) -> PartitionInfo:
        if known is not None and 0 <= row.leader_epoch < known.leader_epoch:
            return known  # The broker that answered is behind: it does not know this leader yet.
        if known is not None and known.leader != row.leader_id:
            self._note_move(topic, known, row.leader_id, row.leader_epoch)
        return PartitionInfo(
            row.partition_index,
            row.leader_id,
            row.leader_epoch,
            tuple(row.replica_nodes),
            tuple(row.isr_nodes),
            tuple(row.offline_replicas),
        )

    def _note_move(self, topic: str, before: PartitionInfo, leader: int, leader_epoch: int) -> None:
        self._events.note(LeaderMoved(topic, before.partition, leader, leader_epoch, before.leader))

    def topic_error(self, topic: str) -> BrokerError | None:
        """The last error from a broker about a topic that is not in the view; None if there was none."""
        return self.errors.get(topic)

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """Where a partition is; None while that is unknown."""
        info = self.topics.get(topic)
        if info is None or not 0 <= partition < len(info.partitions):
            return None
        return info.partitions[partition]

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with this id; None while that is unknown."""
        return next((name for name, info in self.topics.items() if info.id == topic_id), None)

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic; ZERO_UUID while that is unknown."""
        info = self.topics.get(topic)
        return ZERO_UUID if info is None else info.id

    def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads a partition; -1 while that is unknown."""
        info = self.partition(topic, partition)
        return NO_NODE if info is None else info.leader

    def leader_moved(self, topic: str, partition: int, leader: int, leader_epoch: int) -> None:
        """Note the current leader that a broker named when it refused a request (KIP-951)."""
        info = self.partition(topic, partition)
        if info is None or leader not in self.nodes or leader_epoch <= info.leader_epoch:
            self.doubt_leader(topic, partition)
            return
        self._note_move(topic, info, leader, leader_epoch)
        whole = self.topics[topic]
        moved = PartitionInfo(partition, leader, leader_epoch, info.replicas, info.isr, info.offline_replicas)
        partitions = (*whole.partitions[:partition], moved, *whole.partitions[partition + 1 :])
        available = tuple(row.partition for row in partitions if row.leader != NO_NODE)
        self.topics[topic] = TopicInfo(topic, whole.id, whole.is_internal, partitions, available)
