"""The controller: one pure machine that decides for the cluster. Events go in, effects come out.

`handle` takes one event and yields effects (`effects.py`), whose results are sent back into it; the next
event is handled when it has returned. This file dispatches events and orders the steps. The decisions are in
`leaders`, `yields`, `recovery`, `isr`, `reassignments`, `topics` (creation and new partitions) and
`deletions`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_log.coordinator.controller.deletions import Deletions
from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    DecisionSteps,
    ReadZnodeRequest,
    RecordBrokers,
    RemoveTopic,
    RemoveZnodeRequests,
    SetBrokers,
    ZnodeRequest,
)
from holdfast_log.coordinator.controller.eligible import EligibleReplicas
from holdfast_log.coordinator.controller.events import (
    AlterPartitions,
    AlterReassignments,
    BalanceDue,
    BrokerAnswered,
    BrokersChanged,
    ControlledShutdown,
    ControllerEvent,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Elected,
    ElectLeaders,
    ListReassignments,
    MinInSyncChanged,
    RecoveryCheckDue,
    ShutdownResult,
    TopicReadAgain,
    UncleanElectionEnabled,
    YieldDue,
    ZnodeRequested,
)
from holdfast_log.coordinator.controller.features import decide
from holdfast_log.coordinator.controller.isr import InSyncSets
from holdfast_log.coordinator.controller.leaders import ELECTION_PENDING, Leaders
from holdfast_log.coordinator.controller.partition_limits import PartitionLimits
from holdfast_log.coordinator.controller.reassignments import Reassignments
from holdfast_log.coordinator.controller.recovery import UncleanRecovery
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState, LiveBroker, Snapshot, TopicDeletion
from holdfast_log.coordinator.controller.topic_rules import TopicDefaults, ValidateConfigs
from holdfast_log.coordinator.controller.topics import TopicChanges
from holdfast_log.coordinator.controller.unanswered import UnansweredRequests
from holdfast_log.coordinator.controller.yields import Yields
from holdfast_log.coordinator.znodes.admin import PREFERRED_REPLICA_ELECTION
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
)
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from holdfast_log.protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from holdfast_log.protocol.messages.yield_leadership import YieldLeadershipRequest, YieldLeadershipResponse
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class ControllerPolicy:
    """The settings that the controller follows, and its source of topic ids.

    `inter_broker_listener` is the name of the listener through which brokers reach each other;
    `unclean_allowed(topic)` is the topic's unclean.leader.election.enable, `min_in_sync(topic)` its
    min.insync.replicas; `imbalance_percentage_max()` is leader.imbalance.per.broker.percentage. `limits` is
    how many partitions clients may create.
    """

    inter_broker_listener: str
    defaults: TopicDefaults
    validate_configs: ValidateConfigs
    unclean_allowed: Callable[[str], bool]
    new_topic_id: Callable[[], uuid.UUID]
    imbalance_percentage_max: Callable[[], float] = lambda: 10.0
    min_in_sync: Callable[[str], int] = lambda topic: 1
    limits: PartitionLimits = field(default_factory=PartitionLimits)


class Controller:
    """The controller during one term."""

    def __init__(self, controller_id: int, controller_epoch: int, policy: ControllerPolicy) -> None:
        self.state = ControllerState(controller_id, controller_epoch)
        self._policy = policy
        self._recorded_epochs: Mapping[int, int] | None = None
        self._batch = RequestBatch(self.state, policy.inter_broker_listener)
        self._eligible = EligibleReplicas(self.state, policy.min_in_sync)
        self._recovery = UncleanRecovery(self.state, self._batch)
        self._yields = Yields(self.state, self._batch)
        self._leaders = Leaders(
            self.state, self._batch, self._eligible, self._recovery, self._yields, policy.unclean_allowed
        )
        self._elections: UnansweredRequests[ErrorCode] = UnansweredRequests()
        self._isr = InSyncSets(self.state, self._batch, self._leaders)
        self._deletions = Deletions(self.state, self._batch)
        self._topics = TopicChanges(
            self.state,
            self._batch,
            self._leaders,
            self._deletions,
            policy.defaults,
            policy.limits,
            policy.validate_configs,
            policy.new_topic_id,
        )
        self._reassignments = Reassignments(self.state, self._batch, self._leaders, self._yields)

    def handle(self, event: ControllerEvent) -> DecisionSteps[None]:
        """Handle one event. The next event may be handled only after this has returned."""
        self._eligible.begin_event()
        match event:
            case Elected():
                yield from self._begin(event.snapshot)
            case BrokersChanged():
                yield from self._brokers_changed(event.brokers)
                self._yields.cluster_changed()
            case TopicReadAgain():
                yield from self._take_up(event)
            case BrokerAnswered():
                yield from self._answered(event)
            case CreateTopics():
                yield from self._topics.create(event)
            case CreatePartitions():
                yield from self._topics.grow(event)
            case DeleteTopics():
                yield from self._deletions.delete(event)
                self._yields.cluster_changed()
                yield from self._reassignments.forget_deleted()
            case AlterPartitions():
                changed = yield from self._isr.alter(event.requests)
                yield from self._reassignments.advance(changed)
            case ControlledShutdown():
                yield from self._shut_down(event)
            case UncleanElectionEnabled():
                yield from self._elect_in_topic(event.name)
            case MinInSyncChanged():
                yield from self._leaders.review_eligible(event.name)
            case ElectLeaders():
                yield from self._elect(event)
            case AlterReassignments():
                yield from self._reassignments.alter(event)
            case ListReassignments():
                yield from self._reassignments.listed(event)
            case ZnodeRequested():
                yield from self._handle_znode_request(event.request)
            case BalanceDue():
                lost = self._leaders.imbalanced(self._policy.imbalance_percentage_max())
                yield from self._leaders.elect_preferred(lost)
            case RecoveryCheckDue():
                yield from self._leaders.elect_leaderless(self._recovery.check())
            case YieldDue():
                self._yields.due()
        while outdated := self._yields.outdated():
            yield from self._decide_again(outdated)
        yield from self._yields.ask()
        yield from self._recovery.ask()
        yield from self._batch.flush()

    def _begin(self, snapshot: Snapshot) -> DecisionSteps[None]:
        """Take over: finish what the last controller left undone, then send every broker the full state."""
        state = self.state
        self._recorded_epochs = snapshot.recorded_epochs
        state.features = snapshot.features
        state.brokers = dict(snapshot.brokers)
        state.unreadable = dict(snapshot.unreadable)
        state.first_leader_epoch = snapshot.first_leader_epoch
        for topic in snapshot.topics.values():
            state.add_topic(topic)
        for name in snapshot.deleting:
            if name in state.topics:
                state.deletions[name] = TopicDeletion()
            elif name not in state.unreadable:
                state.first_leader_epoch = yield RemoveTopic(name)
        yield SetBrokers(state.brokers)
        yield from self._handle_missed_failures(snapshot.brokers)
        yield from self._record(state.brokers)
        yield from self._leaders.elect_leaderless()
        for broker_id in state.brokers:
            self._batch.everything(broker_id)
        yield from self._reassignments.resume()
        yield from self._reassignments.adopt_requested()
        yield from self._deletions.resume()

    def _take_up(self, event: TopicReadAgain) -> DecisionSteps[None]:
        """Take up a topic that was set aside, in the same steps as a new controller takes up all topics."""
        state = self.state
        if state.unreadable.pop(event.name, None) is None:
            return
        if event.topic is not None:
            state.add_topic(event.topic)
            marked: list[str] = yield ReadZnodeRequest(ZnodeRequest.DELETION)
            if event.name in marked:
                state.deletions[event.name] = TopicDeletion()
            taken_up = [TopicPartition(event.name, number) for number in event.topic.partitions]
            yield from self._handle_missed_failures(dict(state.brokers), taken_up)
            yield from self._leaders.elect_leaderless(taken_up)
        yield from self._record(state.brokers)
        for broker_id in state.brokers:
            self._batch.everything(broker_id)
        if event.topic is not None:
            yield from self._reassignments.resume()
            yield from self._deletions.resume()

    def _handle_missed_failures(
        self, brokers: Mapping[int, LiveBroker], among: Sequence[TopicPartition] | None = None
    ) -> DecisionSteps[None]:
        """Handle the failures of brokers that happened while no controller watched: in all partitions, or in
        those `among`.

        Some brokers have gone. Others have restarted, and may have lost unflushed records unless their
        registration says otherwise. Broker epochs (KIP-380) cannot show this: they only tell requests apart.
        """
        state = self.state
        restarted = self._restarted(among)
        unclean = {broker_id: None for broker_id, is_clean in restarted.items() if not is_clean}
        gone = {
            replica: None
            for _, partition in state.partitions()
            for replica in partition.assignment.replicas
            if replica not in state.brokers or restarted.get(replica, False)
        }
        state.brokers = {
            broker_id: broker for broker_id, broker in brokers.items() if broker_id not in restarted
        }
        # First remove the brokers that may have lost records. A broker that has only gone, or restarted with
        # everything, still has its records, and stays in sync if no other in-sync replica is left.
        yield from self._leaders.lose_brokers(unclean, unclean=True, among=among)
        yield from self._leaders.lose_brokers(gone, among=among)
        state.brokers = dict(brokers)

    def _restarted(self, among: Sequence[TopicPartition] | None = None) -> dict[int, bool]:
        """The live brokers that have restarted since the last controller handled their start: broker id →
        whether the broker certainly still has all its records.

        Brokers that only lost their session are not among them. If no controller has recorded start epochs,
        as in a cluster that Kafka has run, a broker counts as restarted if its first registration is younger
        than a partition state that has it in sync.
        """
        brokers, recorded = self.state.brokers, self._recorded_epochs
        if recorded is not None:
            return {
                broker_id: broker.continues(recorded.get(broker_id))
                for broker_id, broker in brokers.items()
                if recorded.get(broker_id) != broker.start_epoch
            }
        partitions = (
            [partition for _, partition in self.state.partitions()]
            if among is None
            else [self.state.partition(at) for at in among]
        )
        return {
            member: False
            for partition in partitions
            if partition.state is not None
            for member in (*partition.state.isr, *partition.state.eligible)
            if member in brokers and 0 <= partition.read_zxid < brokers[member].start_epoch
        }

    def _record(self, brokers: Mapping[int, LiveBroker]) -> DecisionSteps[None]:
        """Record that the start of these brokers is handled: no partition state relies on an earlier process.
        Decide on features, and tell all brokers once that is recorded.

        Brokers that have gone stay in the record: one that returns as the same process has lost nothing.
        Nothing is recorded while a topic is unreadable, as its states may rely on earlier processes.
        """
        if self.state.unreadable:
            return
        epochs = {broker_id: broker.start_epoch for broker_id, broker in brokers.items()}
        epochs = {**(self._recorded_epochs or {}), **epochs}
        before, state = self.state.features, self.state
        features = decide(before, brokers, state.partitions_on)
        if epochs != self._recorded_epochs or features != before:
            yield RecordBrokers(epochs, features)
            self._recorded_epochs, state.features = epochs, features
        if features.finalized != before.finalized:
            self._batch.metadata(())

    def _brokers_changed(self, now: Mapping[int, LiveBroker]) -> DecisionSteps[None]:
        """Handle brokers that have gone, come or registered again.

        A broker with a new epoch and the same start epoch only lost its session: it has lost no records and
        keeps its leaderships and places in sync. It is sent everything again, since requests to its earlier
        registration may not have reached it. A broker that restarted with all its records counts as one that
        has gone and come.
        """
        before = self.state.brokers
        recorded = self._recorded_epochs or {}
        restarted = {
            broker_id: broker.continues(recorded.get(broker_id))
            for broker_id, broker in now.items()
            if recorded.get(broker_id) != broker.start_epoch
        }
        unclean = [broker_id for broker_id, is_clean in restarted.items() if not is_clean]
        joined = [
            broker_id
            for broker_id, broker in now.items()
            if broker_id not in before or before[broker_id].epoch != broker.epoch
        ]
        self._deletions.lose_brokers([broker_id for broker_id in joined if broker_id in before])
        # First the brokers that may have lost records (see `_handle_missed_failures`). They include brokers
        # whose departure was handled before: such a broker may still be in sync, if all in-sync replicas went
        # at once, or eligible, while another replica has every record.
        yield from self._remove_brokers([each for each in unclean if each in before])
        yield from self._leaders.lose_brokers(unclean, unclean=True)
        yield from self._batch.flush()
        gone = [each for each in before if each not in now or restarted.get(each, False)]
        yield from self._remove_brokers(gone)
        yield from self._leaders.lose_brokers(gone)
        yield from self._batch.flush()
        yield from self._record(now)
        if joined or self.state.brokers != now:
            yield from self._add_brokers(joined, now)
        yield from self._leaders.elect_leaderless(self._recovery.partitions())

    def _remove_brokers(self, gone: list[int]) -> DecisionSteps[None]:
        """Remove brokers from the state. The caller replaces them as leaders and in-sync replicas."""
        if not gone:
            return
        state = self.state
        state.brokers = {
            broker_id: broker for broker_id, broker in state.brokers.items() if broker_id not in gone
        }
        for broker_id in gone:
            state.shutting_down.pop(broker_id, None)
            state.offline_replicas.pop(broker_id, None)
        yield SetBrokers(state.brokers)
        self._deletions.lose_brokers(gone)
        self._batch.metadata([at for broker_id in gone for at in state.partitions_on(broker_id)])

    def _add_brokers(self, joined: list[int], now: Mapping[int, LiveBroker]) -> DecisionSteps[None]:
        state = self.state
        state.brokers = dict(now)
        yield SetBrokers(state.brokers)
        self._batch.metadata([at for broker_id in joined for at in state.partitions_on(broker_id)])
        for broker_id in joined:
            self._batch.everything(broker_id)
        back = {at: None for broker_id in joined for at in state.partitions_on(broker_id)}
        yield from self._leaders.elect_leaderless(back)
        yield from self._reassignments.advance()
        yield from self._deletions.resume()

    def _answered(self, event: BrokerAnswered) -> DecisionSteps[None]:
        broker = self.state.brokers.get(event.broker_id)
        if broker is None or broker.epoch != event.broker_epoch:
            return
        match event.request, event.response:
            case LeaderAndIsrRequest() as request, LeaderAndIsrResponse() as response:
                yield from self._replicas_reported(event.broker_id, request, response)
            case StopReplicaRequest() as request, StopReplicaResponse() as response:
                yield from self._deletions.answered(event.broker_id, request, response)
            case GetReplicaLogInfoRequest() as request, GetReplicaLogInfoResponse() as response:
                decidable = self._recovery.answered(event.broker_id, event.broker_epoch, request, response)
                yield from self._leaders.elect_leaderless(decidable)
            case YieldLeadershipRequest() as request, YieldLeadershipResponse() as response:
                yielded = self._yields.answered(event.broker_id, event.broker_epoch, request, response)
                yield from self._decide_again(yielded)

    def _decide_again(self, partitions: Sequence[TopicPartition]) -> DecisionSteps[None]:
        """Decide what waited for the leaders of these partitions: they have yielded, or lead no longer."""
        yield from self._reassignments.decide_again(partitions)
        results = yield from self._leaders.elect_yielded(partitions)
        self._yields.resume(partitions)
        decided = {at: code for at, code in results.items() if code != ELECTION_PENDING}
        yield from self._batch.flush()
        for token, complete in self._elections.decided(decided):
            yield AnswerRequest(token, None, complete, after_brokers_answered=True)

    def _replicas_reported(
        self, broker_id: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
    ) -> DecisionSteps[None]:
        """Handle a broker's report on its replicas: which are online, and which are on a failed disk.

        A report on an earlier leader epoch is ignored: it may come after the answer to a later request. The
        broker gets a request for every leader epoch, and reports again.
        """
        outdated = self._outdated(request)
        offline = self.state.offline_replicas.setdefault(broker_id, {})
        lost, back = [], []
        for topic in response.topics:
            known = self.state.topic_of(topic.topic_id)
            for row in topic.partition_errors:
                if known is None or row.partition_index not in known.partitions:
                    continue
                at = TopicPartition(known.name, row.partition_index)
                if at in outdated:
                    continue
                if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR and at not in offline:
                    lost.append(at)
                elif row.error_code == ErrorCode.NONE and at in offline:
                    back.append(at)
        offline.update(dict.fromkeys(lost))
        for at in back:
            del offline[at]
        if lost:
            yield from self._leaders.lose_replicas(broker_id, lost)
            self._batch.metadata(lost)
        if back:
            yield from self._leaders.elect_leaderless(back)
            yield from self._reassignments.advance(back)
            yield from self._deletions.resume()

    def _outdated(self, request: LeaderAndIsrRequest) -> set[TopicPartition]:
        """The partitions whose leader epoch in `request` is not the latest."""
        outdated = set()
        for topic in request.topic_states:
            known = self.state.topic_of(topic.topic_id)
            if known is None:
                continue
            for row in topic.partition_states:
                partition = known.partitions.get(row.partition_index)
                state = None if partition is None else partition.state
                if state is not None and row.leader_epoch < state.leader_epoch:
                    outdated.add(TopicPartition(known.name, row.partition_index))
        return outdated

    def _shut_down(self, event: ControlledShutdown) -> DecisionSteps[None]:
        broker = self.state.brokers.get(event.broker_id)
        if broker is None:
            yield AnswerRequest(event.token, None, ShutdownResult(ErrorCode.BROKER_ID_NOT_REGISTERED))
            return
        if event.broker_epoch not in (NO_EPOCH, broker.epoch):
            yield AnswerRequest(event.token, None, ShutdownResult(ErrorCode.STALE_BROKER_EPOCH))
            return
        self.state.shutting_down[event.broker_id] = None
        remaining = yield from self._leaders.shut_down(event.broker_id)
        yield from self._batch.flush()
        yield AnswerRequest(
            event.token, None, ShutdownResult(remaining=tuple(remaining)), after_brokers_answered=True
        )

    def _handle_znode_request(self, request: ZnodeRequest) -> DecisionSteps[None]:
        """Handle a request that arrived as a znode, and remove the znode only once it is handled."""
        match request:
            case ZnodeRequest.REASSIGNMENT:
                yield from self._reassignments.adopt_requested()
            case ZnodeRequest.ELECTION:
                wanted: list[TopicPartition] = yield ReadZnodeRequest(request)
                yield from self._leaders.elect_preferred(wanted)
                yield RemoveZnodeRequests([PREFERRED_REPLICA_ELECTION])
            case ZnodeRequest.DELETION:
                names: list[str] = yield ReadZnodeRequest(request)
                yield from self._deletions.adopt_marked(names)
            case ZnodeRequest.LOG_DIRS:
                # The answers of these brokers say which replicas are lost.
                lost: dict[str, int | None] = yield ReadZnodeRequest(request)
                for broker_id in dict.fromkeys(lost.values()):
                    if broker_id is not None:
                        self._batch.leader_and_isr([broker_id], self.state.partitions_on(broker_id))
                yield RemoveZnodeRequests(list(lost))

    def _elect_in_topic(self, name: str) -> DecisionSteps[None]:
        topic = self.state.topics.get(name)
        if topic is not None:
            yield from self._leaders.elect_leaderless(
                [TopicPartition(name, number) for number in topic.partitions]
            )

    def _elect(self, event: ElectLeaders) -> DecisionSteps[None]:
        asked = event.partitions
        if asked is None:
            partitions = [at for at, _ in self.state.partitions() if not self.state.is_deleting(at)]
        else:
            partitions = list(dict.fromkeys(asked))
        elect = self._leaders.elect_unclean if event.unclean else self._leaders.elect_preferred
        results = yield from elect(partitions)
        if asked is None:
            results = {at: code for at, code in results.items() if code != ErrorCode.ELECTION_NOT_NEEDED}
        yield from self._batch.flush()
        pending = [at for at, code in results.items() if code == ELECTION_PENDING]
        if pending:
            self._elections.add(event.token, results, pending)
        yield AnswerRequest(
            event.token, None, results, after_brokers_answered=not pending, is_provisional=bool(pending)
        )
