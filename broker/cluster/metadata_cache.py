"""The brokers, topics and leaders of the cluster, as the controller last sent them (UpdateMetadata).

Every broker answers Metadata requests for the whole cluster from this cache: clients may ask any broker.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from twisted.internet.defer import Deferred

from holdfast_log.coordinator.znodes.controller import FinalizedFeatures
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)

LEADER_DURING_DELETE = -2
"""The leader in UpdateMetadata of a partition that is being deleted."""

NO_LEADER = -1

NOT_DECIDED = -1
"""The epoch of features on which no controller is known to have decided."""

ZERO_ID = uuid.UUID(int=0)


@dataclass(frozen=True, slots=True)
class BrokerNode:
    """A live broker and where it listens: (host, port) for each listener name."""

    id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None

    def endpoint(self, listener: str) -> tuple[str, int] | None:
        """Address of this broker on the listener; None if it has no such listener."""
        return self.endpoints.get(listener)


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition as clients see it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(slots=True)
class TopicMetadata:
    """A topic and its partitions by index."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionMetadata] = field(default_factory=dict)


class TopicListener(Protocol):
    """Called when topics are created, extended or deleted."""

    def topics_changed(self, topics: Collection[str]) -> None:
        """`topics` have been created or given more partitions."""
        ...

    def topics_deleted(self, topics: Collection[str]) -> None:
        """`topics` have been deleted. A topic that was deleted and created again is in both calls."""
        ...


class MetadataCache:
    """The cluster as the controller last described it."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerNode] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.controller_id = -1
        self.controller_epoch = -1
        self._features: FinalizedFeatures | None = None
        self._names: dict[uuid.UUID, str] = {}
        self._awaited: list[Deferred[None]] = []
        self._listeners: list[TopicListener] = []

    def add_listener(self, listener: TopicListener) -> None:
        self._listeners.append(listener)

    @property
    def has_been_updated(self) -> bool:
        """Whether a controller has described the cluster to this broker since it started."""
        return self.controller_epoch >= 0

    def features(self, own_transaction_version: int) -> FinalizedFeatures:
        """The features that the cluster has decided on. Before a controller has said so, those of this broker
        alone, with the epoch `NOT_DECIDED`: it offers what its file says, for clients that know of it from
        other brokers, and Kafka's clients conclude nothing from it."""
        return self._features or FinalizedFeatures(own_transaction_version, NOT_DECIDED)

    def next_update(self) -> Deferred[None]:
        """Fires at the controller's next update."""
        awaited: Deferred[None] = Deferred()
        self._awaited.append(awaited)
        return awaited

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        """Name of the topic with that id; None if there is no such topic."""
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> uuid.UUID:
        """The topic's id; the zero id if the topic is unknown."""
        topic = self.topics.get(name)
        return ZERO_ID if topic is None else topic.topic_id

    def topic_names(self) -> list[str]:
        """The names of all topics."""
        return list(self.topics)

    def partition(self, topic: str, index: int) -> PartitionMetadata | None:
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def leader_of(self, topic: str, index: int) -> int | None:
        """The leader of a partition, -1 while it has none; None if there is no such partition."""
        known = self.partition(topic, index)
        return None if known is None else known.leader

    def leader_on(self, partition: PartitionMetadata, listener: str) -> tuple[ErrorCode, int]:
        """The leader of a partition for a client of `listener`; an error and `NO_LEADER` if that client can
        reach none now."""
        leader = self.brokers.get(partition.leader)
        if leader is None:
            return ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER
        if leader.endpoint(listener) is None:
            return ErrorCode.LISTENER_NOT_FOUND, NO_LEADER
        return ErrorCode.NONE, partition.leader

    def partition_count(self, topic: str) -> int:
        """Number of partitions of a topic; 0 if there is no such topic."""
        known = self.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def is_live(self, broker_id: int) -> bool:
        return broker_id in self.brokers

    def knows_partitions_of(self, request: UpdateMetadataRequest) -> bool:
        """Whether all partitions in the request are known here."""
        for topic in request.topic_states:
            known = self.topics.get(topic.topic_name)
            if known is None or known.topic_id != topic.topic_id:
                return False
            if any(state.partition_index not in known.partitions for state in topic.partition_states):
                return False
        return True

    def update(self, request: UpdateMetadataRequest) -> list[str]:
        """Apply the controller's update. Returns the deleted topics, in the order of the request."""
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        # A request without brokers updates partitions only; one with brokers lists all live brokers.
        if request.live_brokers:
            self.brokers = {broker.id: _node(broker) for broker in request.live_brokers}
        if request.finalized_features_epoch != NOT_DECIDED:
            self._features = FinalizedFeatures(request.transaction_version, request.finalized_features_epoch)
        gone, grown = [], []
        for topic in request.topic_states:
            name = topic.topic_name
            before = self.topics.get(name)
            count_before = 0 if before is None else len(before.partitions)
            self._take_topic(name, topic.topic_id, topic.partition_states)
            known = self.topics[name]
            if count_before and known is not before:
                gone.append(name)
                count_before = 0
            if not known.partitions:
                self._forget(known)
                gone.append(name)
            elif len(known.partitions) > count_before:
                grown.append(name)
        awaited, self._awaited = self._awaited, []
        for each in awaited:
            each.callback(None)
        for listener in self._listeners:
            if gone:
                listener.topics_deleted(gone)
            if grown:
                listener.topics_changed(grown)
        return gone

    def _take_topic(self, name: str, topic_id: uuid.UUID, states: list[UpdateMetadataPartitionState]) -> None:
        topic = self.topics.get(name)
        if topic is None or topic.topic_id != topic_id:
            if topic is not None:
                self._forget(topic)
            topic = self.topics[name] = TopicMetadata(name, topic_id)
            if topic_id != ZERO_ID:
                self._names[topic_id] = name
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                topic.partitions.pop(state.partition_index, None)
            else:
                topic.partitions[state.partition_index] = _partition(state)

    def _forget(self, topic: TopicMetadata) -> None:
        del self.topics[topic.name]
        self._names.pop(topic.topic_id, None)


def _node(broker: UpdateMetadataBroker) -> BrokerNode:
    endpoints = {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in broker.endpoints}
    return BrokerNode(broker.id, endpoints, broker.rack)


def _partition(state: UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        tuple(state.offline_replicas),
    )
