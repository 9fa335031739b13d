"""What the controller knows: brokers, topics, partitions. Nothing here decides anything.

Topics and partitions are copies of what stands in ZooKeeper, as this controller has last read or written it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from coordinator.placement import ReplicaAssignment
from coordinator.znodes.brokers import NO_EPOCH, BrokerInfo
from coordinator.znodes.topics import NO_LEADER, PartitionState, TopicAssignment
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registered broker: what it says of itself, and its epoch (the czxid of its znode)."""

    info: BrokerInfo
    epoch: int

    @property
    def start_epoch(self) -> int:
        """The epoch under which its process registered first, which tells processes apart.

        One that has another epoch than before, and the same of these, has only lost its session: it has all
        that it ever had. One with another of these has started anew, and may have lost what was not flushed.
        """
        return self.epoch if self.info.start_epoch == NO_EPOCH else self.info.start_epoch


@dataclass(slots=True)
class PartitionRecord:
    """A partition: where it is kept, and who leads it.

    `state` is None until the first leader has been written; `version` is the version of the state's znode,
    the partition epoch that leaders name when they propose another in-sync set. `read_zxid` is the
    transaction that had last written the state when this controller read it; -1: it has never read one.
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
        """As it stands in the topic's znode."""
        return TopicAssignment(
            self.topic_id, {number: partition.assignment for number, partition in self.partitions.items()}
        )


@dataclass(slots=True)
class TopicDeletion:
    """A topic that is on its way out.

    `waiting` are the replicas that have been told to go and have not answered; `started` is whether they have
    been told. `requests` are the tokens of those who want to know when it is over.
    """

    started: bool = False
    waiting: dict[tuple[int, TopicPartition], None] = field(default_factory=dict)
    requests: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a new controller reads from ZooKeeper.

    `recorded_epochs` are those that the last controller recorded (`RecordBrokers`); None: it recorded none.
    """

    brokers: Mapping[int, LiveBroker]
    topics: Mapping[str, Topic]
    deleting: tuple[str, ...] = ()
    recorded_epochs: Mapping[int, int] | None = None


class ControllerState:
    """The cluster as the controller sees it."""

    def __init__(self, controller_id: int, controller_epoch: int) -> None:
        self.controller_id = controller_id
        self.controller_epoch = controller_epoch
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: dict[int, None] = {}
        self.offline_replicas: dict[int, dict[TopicPartition, None]] = {}
        """Replicas whose log directory has failed, by broker."""
        self.topics: dict[str, Topic] = {}
        self.deletions: dict[str, TopicDeletion] = {}
        self._names: dict[uuid.UUID, str] = {}
        self._alike: dict[str, dict[str, None]] = {}
        """By what metrics make of them, the names of the topics."""

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self._names[topic.topic_id] = topic.name
        self._alike.setdefault(_metric_name(topic.name), {})[topic.name] = None

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        self.deletions.pop(name, None)
        if topic is None:
            return
        self._names.pop(topic.topic_id, None)
        alike = self._alike[_metric_name(name)]
        del alike[name]
        if not alike:
            del self._alike[_metric_name(name)]
        for offline in self.offline_replicas.values():
            for number in topic.partitions:
                offline.pop(TopicPartition(name, number), None)

    def alike(self, name: str) -> str | None:
        """A topic that metrics would not tell from one of this name, if there is one."""
        return next(iter(self._alike.get(_metric_name(name), ())), None)

    def topic_of(self, topic_id: uuid.UUID) -> Topic | None:
        name = self._names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, at: TopicPartition) -> PartitionRecord:
        """Raises KeyError where there is none."""
        topic, number = at
        return self.topics[topic].partitions[number]

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionRecord]]:
        """Every partition of every topic, in the order in which the controller learned of them."""
        for topic in self.topics.values():
            for number, partition in topic.partitions.items():
                yield TopicPartition(topic.name, number), partition

    def partitions_on(self, broker_id: int) -> list[TopicPartition]:
        """The partitions of which a broker keeps a replica."""
        return [at for at, partition in self.partitions() if broker_id in partition.assignment.replicas]

    def is_deleting(self, at: TopicPartition) -> bool:
        return at[0] in self.deletions

    def has_log(self, broker_id: int, at: TopicPartition) -> bool:
        """Whether a broker is alive and its replica's log directory too."""
        return broker_id in self.brokers and at not in self.offline_replicas.get(broker_id, ())

    def may_lead(self, at: TopicPartition) -> tuple[int, ...]:
        """The replicas of a partition that could lead it now, in the order of the assignment."""
        replicas = self.partition(at).assignment.replicas
        return tuple(
            replica for replica in replicas if self.has_log(replica, at) and replica not in self.shutting_down
        )

    def offline_replicas_of(self, at: TopicPartition) -> list[int]:
        replicas = self.partition(at).assignment.replicas
        return [replica for replica in replicas if not self.has_log(replica, at)]

    def racks(self) -> dict[int, str | None]:
        """The brokers that new replicas may be placed on, and their racks."""
        return {
            broker_id: broker.info.rack
            for broker_id, broker in sorted(self.brokers.items())
            if broker_id not in self.shutting_down
        }

    def leaderless(self, among: Iterable[TopicPartition] | None = None) -> list[TopicPartition]:
        """The partitions without a leader that could lead, deletions aside."""
        found = []
        for at in [at for at, _ in self.partitions()] if among is None else among:
            state = self.partition(at).state
            without = state is None or state.leader == NO_LEADER or not self.has_log(state.leader, at)
            if without and not self.is_deleting(at):
                found.append(at)
        return found


def _metric_name(topic: str) -> str:
    """What names of metrics make of a topic's name."""
    return topic.replace(".", "_")
