"""Drives the controller's machine without ZooKeeper or brokers: effects are performed in memory."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    AskToYieldLater,
    CheckRecovery,
    ControllerEffect,
    CreateTopic,
    MarkDeleted,
    Pause,
    ReadZnodeRequest,
    RecordBrokers,
    RemoveTopic,
    RemoveZnodeRequests,
    SendToBrokers,
    SetBrokers,
    StateWrite,
    StateWritten,
    WriteAssignments,
    WriteReassignmentZnode,
    WriteStates,
    ZnodeRequest,
)
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    BrokerAnswered,
    BrokersChanged,
    ControllerEvent,
    CreateTopics,
    DeleteTopics,
    Elected,
    TopicCreation,
)
from holdfast_log.coordinator.controller.machine import Controller
from holdfast_log.coordinator.controller.partition_limits import PartitionLimits
from holdfast_log.coordinator.controller.state import LiveBroker, PartitionRecord, Snapshot, Topic
from holdfast_log.coordinator.znodes.controller import FeatureRecord
from holdfast_log.coordinator.znodes.topics import PartitionState, TopicAssignment
from holdfast_log.protocol.messages.alter_partition import AlterPartitionRequest
from holdfast_log.protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.coordinator.members import broker_info, healthy_answer, isr_proposal, log_ends, policy

R = TypeVar("R")


@dataclass(slots=True)
class Store:
    """The content of ZooKeeper."""

    states: dict[TopicPartition, tuple[PartitionState, int]] = field(default_factory=dict)
    topics: dict[str, TopicAssignment] = field(default_factory=dict)
    deleting: list[str] = field(default_factory=list)
    znode_requests: dict[ZnodeRequest, Any] = field(
        default_factory=lambda: {
            ZnodeRequest.REASSIGNMENT: None,
            ZnodeRequest.ELECTION: [],
            ZnodeRequest.DELETION: [],
            ZnodeRequest.LOG_DIRS: {},
        }
    )
    removed_requests: list[str] = field(default_factory=list)
    recorded_epochs: dict[int, int] | None = None
    features: FeatureRecord = field(default_factory=FeatureRecord)
    zxid: int = -1
    """The transaction id reported for all states."""
    next_epoch: int = 100
    first_leader_epoch: int = 0

    def new_epoch(self) -> int:
        """A new broker epoch."""
        self.next_epoch += 1
        return self.next_epoch - 1

    def write(self, write: StateWrite) -> StateWritten:
        there = self.states.get(write.at)
        version = there[1] if there else None
        if version != write.version:
            state = there[0] if there else None
            return StateWritten(False, state, -1 if version is None else version)
        self.states[write.at] = (write.state, 0 if version is None else version + 1)
        return StateWritten(True, write.state, self.states[write.at][1])

    def snapshot(self, brokers: dict[int, LiveBroker]) -> Snapshot:
        """The snapshot that a new controller would read."""
        topics = {}
        for name, assignment in self.topics.items():
            assert assignment.topic_id is not None
            topics[name] = Topic(name, assignment.topic_id)
            for number, replicas in assignment.partitions.items():
                state, version = self.states.get((name, number), (None, -1))
                topics[name].partitions[number] = PartitionRecord(replicas, state, version, self.zxid)
        return Snapshot(
            brokers,
            topics,
            tuple(self.deleting),
            self.recorded_epochs,
            first_leader_epoch=self.first_leader_epoch,
            features=self.features,
        )


class Machine:
    """A controller, its store and its effects. Brokers answer only when a test makes them."""

    def __init__(
        self,
        *broker_ids: int,
        store: Store | None = None,
        epoch: int = 1,
        unclean: bool = False,
        brokers: Mapping[int, LiveBroker] | None = None,
        min_in_sync: int = 1,
        limits: PartitionLimits | None = None,
    ) -> None:
        self.min_in_sync = min_in_sync
        """min.insync.replicas of every topic."""
        self.store = store or Store()
        self.effects: list[ControllerEffect] = []
        self._ids = itertools.count(1)
        self.brokers = dict(brokers or {broker_id: self.life(broker_id) for broker_id in broker_ids})
        self.controller = Controller(
            broker_ids[0],
            epoch,
            policy(
                unclean=unclean,
                new_topic_id=lambda: uuid.UUID(int=next(self._ids)),
                min_in_sync=lambda topic: self.min_in_sync,
                limits=limits,
            ),
        )
        self.handle(Elected(self.store.snapshot(self.brokers)))

    def life(self, broker_id: int) -> LiveBroker:
        """The registration of a (re)started broker, with new broker and start epochs."""
        return LiveBroker(broker_info(broker_id), self.store.new_epoch())

    def continuation(self, broker_id: int) -> LiveBroker:
        """A broker that has restarted with every record that its previous process wrote."""
        info = replace(broker_info(broker_id), previous_start_epoch=self.brokers[broker_id].start_epoch)
        return LiveBroker(info, self.store.new_epoch())

    def come(self, broker: LiveBroker) -> list[ControllerEffect]:
        """A broker registers."""
        self.brokers[broker.info.broker_id] = broker
        return self.handle(BrokersChanged(dict(self.brokers)))

    def registration(self, broker_id: int) -> LiveBroker:
        """A live broker that has registered again after its session expired."""
        known = self.brokers[broker_id]
        return LiveBroker(replace(known.info, start_epoch=known.start_epoch), self.store.new_epoch())

    def handle(self, event: ControllerEvent, *, cut: int | None = None) -> list[ControllerEffect]:
        """Handle one event completely, or until the controller dies after `cut` effects; its effects."""
        steps = self.controller.handle(event)
        effects: list[ControllerEffect] = []
        result: Any = None
        while cut is None or len(effects) < cut:
            try:
                effect = steps.send(result)
            except StopIteration:
                break
            effects.append(effect)
            result = self._perform(effect)
        self.effects += effects
        return effects

    def _perform(self, effect: ControllerEffect) -> Any:
        match effect:
            case WriteStates():
                return [self.store.write(write) for write in effect.writes]
            case CreateTopic():
                made = effect.name not in self.store.topics
                self.store.topics.setdefault(effect.name, effect.assignment)
                return made
            case WriteAssignments():
                self.store.topics.update(effect.topics)
            case WriteReassignmentZnode():
                self.store.znode_requests[ZnodeRequest.REASSIGNMENT] = dict(effect.targets) or None
            case ReadZnodeRequest():
                return self.store.znode_requests[effect.request]
            case RemoveZnodeRequests():
                self.store.removed_requests += effect.paths
            case MarkDeleted():
                self.store.deleting += effect.names
            case RemoveTopic():
                self.store.topics.pop(effect.name, None)
                if effect.name in self.store.deleting:
                    self.store.deleting.remove(effect.name)
                for at in [at for at in self.store.states if at[0] == effect.name]:
                    last_epoch = self.store.states.pop(at)[0].leader_epoch
                    self.store.first_leader_epoch = max(self.store.first_leader_epoch, last_epoch + 1)
                return self.store.first_leader_epoch
            case RecordBrokers():
                self.store.recorded_epochs, self.store.features = dict(effect.epochs), effect.features
            case (
                SendToBrokers()
                | AnswerRequest()
                | SetBrokers()
                | Pause()
                | CheckRecovery()
                | AskToYieldLater()
            ):
                pass
        return None

    # Steps of tests

    def lose(self, *broker_ids: int) -> list[ControllerEffect]:
        """Brokers lose their sessions."""
        for broker_id in broker_ids:
            del self.brokers[broker_id]
        return self.handle(BrokersChanged(dict(self.brokers)))

    def start(self, *broker_ids: int) -> list[ControllerEffect]:
        """Brokers register, for the first time or after a restart."""
        for broker_id in broker_ids:
            self.brokers[broker_id] = self.life(broker_id)
        return self.handle(BrokersChanged(dict(self.brokers)))

    def create(self, name: str, *replicas: tuple[int, ...]) -> list[ControllerEffect]:
        """Create a topic with these replicas of each partition."""
        return self.handle(CreateTopics(1, [TopicCreation(name, assignments=dict(enumerate(replicas)))]))

    def delete(self, name: str) -> list[ControllerEffect]:
        return self.handle(DeleteTopics(2, [name]))

    def answer_all(
        self, effects: list[ControllerEffect], kind: type = StopReplicaRequest
    ) -> list[ControllerEffect]:
        """Let the live brokers answer the requests of a kind among these effects."""
        answered = []
        for broker_id, request in sent(effects):
            if isinstance(request, kind) and broker_id in self.brokers:
                answered += self.answer(broker_id, request, healthy_answer(request))
        return answered

    def tell_log_ends(
        self, effects: list[ControllerEffect], ends: Mapping[int, tuple[int, int]] | None = None
    ) -> list[ControllerEffect]:
        """Let the brokers that are asked among these effects say where their logs end: at the leader epochs
        and offsets of `ends`, by broker id; by default all logs are empty."""
        answered = []
        for broker_id, request in sent(effects):
            if isinstance(request, GetReplicaLogInfoRequest) and (ends is None or broker_id in ends):
                leader_epoch, offset = (-1, 0) if ends is None else ends[broker_id]
                epoch = self.brokers[broker_id].epoch
                answered += self.answer(broker_id, request, log_ends(request, epoch, leader_epoch, offset))
        return answered

    def answer(self, broker_id: int, request: Any, response: Any) -> list[ControllerEffect]:
        epoch = self.brokers[broker_id].epoch
        return self.handle(BrokerAnswered(broker_id, epoch, request, response))

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        return self.store.states[topic, partition][0]

    def propose(self, topic: str, *isr: int, partition: int = 0) -> list[ControllerEffect]:
        """Let the leader propose this in-sync set; it may be refused."""
        return self.handle(AlterPartitions([(3, self.proposal(topic, *isr, partition=partition))]))

    def proposal(self, topic: str, *isr: int, partition: int = 0) -> AlterPartitionRequest:
        state, version = self.store.states[topic, partition]
        return isr_proposal(
            self.controller.state.topics[topic].topic_id,
            isr,
            self.epochs(),
            broker_id=state.leader,
            partition=partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=version,
        )

    def epochs(self) -> dict[int, int]:
        return {broker_id: broker.epoch for broker_id, broker in self.brokers.items()}

    def shrink(self, topic: str, *isr: int) -> None:
        """Set the in-sync set as if the leader had proposed it: in the store and in the controller."""
        state, version = self.store.states[topic, 0]
        new = PartitionState(state.leader, state.leader_epoch, isr, state.controller_epoch)
        self.store.states[topic, 0] = (new, version + 1)
        known = self.controller.state.partition((topic, 0))
        known.state, known.version = new, version + 1


def with_topic(*replicas: int, brokers: int | None = None) -> Machine:
    """Brokers 1, 2 and so on with a topic "t" of one partition, which has these replicas."""
    machine = Machine(*range(1, (brokers or max(replicas)) + 1))
    machine.create("t", replicas)
    return machine


def sent(effects: list[ControllerEffect]) -> list[tuple[int, Any]]:
    """The (broker id, request) pairs among effects."""
    return [request for effect in effects if isinstance(effect, SendToBrokers) for request in effect.requests]


def sent_to(effects: list[ControllerEffect], broker_id: int, kind: type[R]) -> list[R]:
    return [request for to, request in sent(effects) if to == broker_id and isinstance(request, kind)]


def led(effects: list[ControllerEffect], broker_id: int) -> dict[TopicPartition, int]:
    """The leaders in a broker's LeaderAndIsr requests."""
    return {
        (topic.topic_name, row.partition_index): row.leader
        for request in sent_to(effects, broker_id, LeaderAndIsrRequest)
        for topic in request.topic_states
        for row in topic.partition_states
    }


def answers(effects: list[ControllerEffect]) -> dict[Any, Any]:
    """The results among effects, by key."""
    return {effect.key: effect.result for effect in effects if isinstance(effect, AnswerRequest)}


def writes(effects: list[ControllerEffect]) -> list[WriteStates]:
    return [effect for effect in effects if isinstance(effect, WriteStates)]
