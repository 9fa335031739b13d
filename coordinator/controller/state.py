"""The controller's state: brokers, topics, partitions. Nothing here decides.

Topics and partitions are copies of their znodes, as this controller has last read or written them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_log.coordinator.placement import ReplicaAssignment, Site
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH, BrokerInfo
from holdfast_log.coordinator.znodes.controller import FeatureRecord
from holdfast_log.coordinator.znodes.topics import NO_LEADER, PartitionState, TopicAssignment
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker: its registration, and its broker epoch (the czxid of its znode)."""

    info: BrokerInfo
    epoch: int

    @property
    def start_epoch(self) -> int:
        """The broker epoch of its process's first registration, which identifies the process.

        A broker with a new epoch and an unchanged start epoch only lost its session and has lost no records.
        A changed start epoch means a restart: unflushed records may be lost, unless `continues` says no.
        """
        return self.epoch if self.info.start_epoch == NO_EPOCH else self.info.start_epoch

    def continues(self, start_epoch: int | None) -> bool:
        """Whether the broker still has every record of its process with that start epoch: it is that process,
        or it started with all that process's writes. `None` stands for an unknown process."""
        if start_epoch is None:
            return False
        earlier = self.info.previous_start_epoch, *self.info.earlier_start_epochs
        return start_epoch == self.start_epoch or start_epoch in earlier


@dataclass(slots=True)
class PartitionRecord:
    """A partition: its replicas and its state.

    `state` is None until the first leader is written; `version` is the version of the state's znode, which is
    the partition epoch in AlterPartition. `read_zxid` is the transaction that had last written the state when
    this controller read it, -1 if it has not read one.
    """

    assignment: ReplicaAssignment
    state: PartitionState | None = None
    version: int = -1
    read_zxid: int = -1


@dataclass(slots=True)
class Topic:
    """A topic and its partitions by number."""

    name: str
    topic_id: uuid.UUID
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)

    def assignment(self) -> TopicAssignment:
        """The content of the topic's znode."""
        return TopicAssignment(
            self.topic_id, {number: partition.assignment for number, partition in self.partitions.items()}
        )


@dataclass(slots=True)
class TopicDeletion:
    """A topic that is being deleted.

    `started`: its brokers have been asked to remove the logs. `waiting` are the replicas whose brokers have
    not answered yet. `requests` are the tokens of the requests to answer when the topic is removed.
    """

    started: bool = False
    waiting: dict[tuple[int, TopicPartition], None] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a new controller reads from ZooKeeper.

    `recorded_epochs` are the start epochs that the last controller recorded (`RecordBrokers`), or None.
    `unreadable` has the topics with znodes that cannot be decoded, each with a sentence that says which and
    why; they are not in `topics`. `first_leader_epoch` is the leader epoch in which new partitions begin.
    `features` is what the last controller recorded about them.
    """

    brokers: Mapping[int, LiveBroker]
    topics: Mapping[str, Topic]
    deleting: tuple[str, ...] = ()
    recorded_epochs: Mapping[int, int] | None = None
    unreadable: Mapping[str, str] = field(default_factory=dict)
    first_leader_epoch: int = 0
    features: FeatureRecord = field(default_factory=FeatureRecord)


class ControllerState:
    """The cluster as known to the controller."""

    def __init__(self, controller_id: int, controller_epoch: int) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.brokers: dict[int, LiveBroker] = {}
        self.features = FeatureRecord()
        self.shutting_down: dict[int, None] = {}
        self.offline_replicas: dict[int, dict[TopicPartition, None]] = {}
        """Replicas whose log directory has failed, by broker id."""
        self.topics: dict[str, Topic] = {}
        self.deletions: dict[str, TopicDeletion] = {}
        self.unreadable: dict[str, str] = {}
        """The topics set aside because their znodes cannot be decoded, each with the reason."""
        self.first_leader_epoch = 0
        """The leader epoch in which new partitions begin: above those of all deleted topics."""
        self._names: dict[uuid.UUID, str] = {}
        self._by_metric_name: dict[str, dict[str, None]] = {}
        """Topic names by the form that they take in names of metrics."""

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._by_metric_name.setdefault(_metric_name(topic.name), {})[topic.name] = None

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        self.deletions.pop(name, None)
        if topic is None:
            return
        self._names.pop(topic.topic_id, None)
        names = self._by_metric_name[_metric_name(name)]
        del names[name]
        if not names:
            del self._by_metric_name[_metric_name(name)]
        for offline in self.offline_replicas.values():
            for number in topic.partitions:
                offline.pop(TopicPartition(name, number), None)

    def colliding_topic(self, name: str) -> str | None:
        """A topic whose name metrics could not tell from `name`, or None."""
        return next(iter(self._by_metric_name.get(_metric_name(name), ())), None)

    def topic_of(self, topic_id: uuid.UUID) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, at: TopicPartition) -> PartitionRecord:
        """A partition. Raises KeyError if it does not exist."""
        topic, number = at
        return self.topics[topic].partitions[number]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionRecord]]:
        """All partitions of all topics, in the order in which the topics were added."""
        for topic in self.topics.values():
            for number, partition in topic.partitions.items():
                yield TopicPartition(topic.name, number), partition

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """The partitions that have a replica on a broker."""
        return [at for at, partition in self.partitions() if broker_id in partition.assignment.replicas]

    def is_deleting(self, at: TopicPartition) -> bool:
        return at[0] in self.deletions

    def is_online(self, broker_id: int, at: TopicPartition) -> bool:
        """Whether a broker is alive and the log directory of its replica has not failed."""
        return broker_id in self.brokers and at not in self.offline_replicas.get(broker_id, ())

    def may_lead(self, at: TopicPartition) -> tuple[int, ...]:
        """The replicas of a partition that can lead it now, in the order of the assignment."""
        replicas = self.partition(at).assignment.replicas
        return tuple(
            replica
            for replica in replicas
            if self.is_online(replica, at) and replica not in self.shutting_down
        )

    def offline_replicas_of(self, at: TopicPartition) -> list[int]:
        replicas = self.partition(at).assignment.replicas
        return [replica for replica in replicas if not self.is_online(replica, at)]

    def sites(self) -> dict[int, Site]:
        """The brokers on which new replicas may be placed, and where they run."""
        return {
            broker_id: Site(broker.info.rack, broker.info.machine)
            for broker_id, broker in sorted(self.brokers.items())
            if broker_id not in self.shutting_down
        }

    def leaderless(self, among: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """The partitions without a live leader, of all or `among` some; not those being deleted."""
        found = []
        for at in [at for at, _ in self.partitions()] if among is None else among:
            state = self.partition(at).state
            without = state is None or state.leader == NO_LEADER or not self.is_online(state.leader, at)
            if without and not self.is_deleting(at):
                found.append(at)
        return found


def _metric_name(topic: str) -> str:
    """A topic's name as it appears in names of metrics."""
    return topic.replace(".", "_")
