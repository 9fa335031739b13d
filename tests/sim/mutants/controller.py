"""Bugs of the controller, and of brokers that handle its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.replication.roles import Roles
from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.coordinator.cluster.membership import ClusterMembership
from holdfast_log.coordinator.controller import election, machine, reassignments, recovery, topics
from holdfast_log.coordinator.controller import writes as controller_writes
from holdfast_log.coordinator.controller.effects import DecisionSteps
from holdfast_log.coordinator.controller.election import ElectedLeader, ReplicaEnd
from holdfast_log.coordinator.controller.eligible import EligibleReplicas
from holdfast_log.coordinator.controller.features import decide
from holdfast_log.coordinator.controller.isr import InSyncSets
from holdfast_log.coordinator.controller.leaders import Leaders
from holdfast_log.coordinator.controller.machine import Controller
from holdfast_log.coordinator.controller.partition_limits import PartitionBudget
from holdfast_log.coordinator.controller.runtime import ControllerRuntime
from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.controller import FeatureRecord
from holdfast_log.coordinator.znodes.topics import PartitionState
from holdfast_log.coordinator.zookeeper import sizes
from holdfast_log.coordinator.zookeeper.interface import SessionExpired, SetData, ZooKeeperConnectionLost
from tests.sim.mutation import Mutation, Patch


def _accept_replaced_controller() -> Sequence[Patch]:
    """The controller writes unguarded on any session, and brokers obey any controller."""

    async def unguarded(term: Any, operations: Sequence[Any]) -> Any:
        while True:
            session = term.session._owner.session
            try:
                return await session.multi(operations)
            except SessionExpired:
                if not term.session._owner.process.alive:
                    raise
            except ZooKeeperConnectionLost:
                continue

    write = controller_writes._state_operations

    def unversioned(state_write: Any, existing: Any) -> Any:
        return [
            SetData(operation.path, operation.data) if isinstance(operation, SetData) else operation
            for operation in write(state_write, existing)
        ]

    return [
        (controller_writes, "_guarded", unguarded),
        (controller_writes, "_state_operations", unversioned),
        *_obey_anyone(),
    ]


def _obey_anyone() -> Sequence[Patch]:
    apply, one = Roles.apply_leader_and_isr, Roles._apply

    def any_controller(self: Roles, request: Any, *more: Any) -> Any:
        self.controller_epoch = min(self.controller_epoch, request.controller_epoch)
        return apply(self, request, *more)

    def any_epoch(
        self: Roles, topic: str, topic_id: Any, index: int, assignment: LeaderAndIsr, *more: Any
    ) -> None:
        partition = self._replicas.find(topic, index)
        if partition is not None and assignment.leader_epoch < partition.leader_epoch:
            partition.leader_epoch = assignment.leader_epoch
        one(self, topic, topic_id, index, assignment, *more)

    return [(Roles, "apply_leader_and_isr", any_controller), (Roles, "_apply", any_epoch)]


def _accept_any_broker_epoch() -> Sequence[Patch]:
    """Broker epochs are not checked in requests to a broker, from a broker, or in proposed in-sync sets."""
    changed = Controller._brokers_changed

    def by_name(self: Controller, now: Any) -> Any:
        before = self.state.brokers
        recorded = dict(self._recorded_epochs or {})
        for broker_id, broker in now.items():
            if broker_id in before:
                before[broker_id] = broker
                recorded[broker_id] = broker.start_epoch
        self._recorded_epochs = recorded
        return changed(self, now)

    def eligible(self: InSyncSets, at: Any, members: Any, isr: Sequence[int]) -> bool:
        return all(member in self._state.may_lead(at) for member in members if member not in isr)

    def unseen(self: Controller, brokers: Any, among: Any = None) -> Any:
        gone = {
            replica: None
            for _, partition in self.state.partitions()
            for replica in partition.assignment.replicas
            if replica not in self.state.brokers
        }
        yield from self._leaders.lose_brokers(gone, among=among)

    return [
        (Controller, "_brokers_changed", by_name),
        (Controller, "_handle_missed_failures", unseen),
        (InSyncSets, "_eligible", eligible),
        (ControllerOrders, "_check_broker_epoch", lambda self, requested: None),
    ]


def _take_a_start_for_a_registration() -> Sequence[Patch]:
    """A restarted broker, which may have lost its tail, counts as the same process."""
    return [(LiveBroker, "start_epoch", property(lambda self: self.info.broker_id))]


def _trust_returned_members() -> Sequence[Patch]:
    """The controller treats the restart of a broker that had gone as handled already."""
    changed = Controller._brokers_changed

    def mutant(self: Controller, now: Mapping[int, LiveBroker]) -> DecisionSteps[None]:
        returned = {each: now[each].start_epoch for each in now if each not in self.state.brokers}
        self._recorded_epochs = {**(self._recorded_epochs or {}), **returned}
        yield from changed(self, now)

    return [(Controller, "_brokers_changed", mutant)]


def _record_before_losing() -> Sequence[Patch]:
    changed = Controller._brokers_changed

    def mutant(self: Controller, now: Mapping[int, LiveBroker]) -> DecisionSteps[None]:
        recorded = self._recorded_epochs
        yield from self._record(now)
        self._recorded_epochs = recorded
        yield from changed(self, now)

    return [(Controller, "_brokers_changed", mutant)]


def _believe_late_reports() -> Sequence[Patch]:
    return [(Controller, "_outdated", lambda self, request: set())]


def _elect_anyone() -> Sequence[Patch]:
    elect = election.elect_after_failure

    def mutant(replicas: Sequence[int], isr: Sequence[int], live: Sequence[int], **more: Any) -> Any:
        found = elect(replicas, isr, live, **more)
        unclean = (ElectedLeader(each, (each,), unclean=True) for each in replicas if each in live)
        return found or next(unclean, None)

    return [(election, "elect_after_failure", mutant)]


def _prefer_the_last_leader() -> Sequence[Patch]:
    """Every log counts as equally long."""
    elect = election.elect_longest

    def mutant(replicas: Sequence[int], ends: Mapping[int, ReplicaEnd], last_known_leader: int) -> Any:
        return elect(replicas, dict.fromkeys(ends, ReplicaEnd(-1, -1)), last_known_leader)

    return [(recovery, "elect_longest", mutant)]


def _continue_after_expiry() -> Sequence[Patch]:
    """A controller continues after its session has expired."""

    def expired(self: Candidacy) -> None:
        self._session = None

    return [
        (Candidacy, "expired", expired),
        (ControllerRuntime, "end", lambda self: None),
        *_accept_replaced_controller(),
    ]


def _overlook_a_removed_registration() -> Sequence[Patch]:
    return [(ClusterMembership, "_watch", lambda self, session, epoch: None)]


def _forget_eligible_replicas() -> Sequence[Patch]:
    """Only in-sync replicas may lead, even if the last one may have lost the end of its log."""
    return [(EligibleReplicas, "after", lambda self, *arguments, **more: ())]


def _trust_every_restart() -> Sequence[Patch]:
    """The controller assumes that every restarted broker still has all its records."""
    return [(LiveBroker, "continues", lambda self, start_epoch: True)]


def _trust_unclean_members() -> Sequence[Patch]:
    """The start of such a member is recorded, and the in-sync set names it: only `unclean` says more."""
    return [(PartitionState, "trusted_isr", property(lambda self: self.isr))]


def _begin_in_epoch_zero() -> Sequence[Patch]:
    def mutant(self: Leaders, first: ElectedLeader) -> PartitionState:
        return PartitionState(first.leader, 0, first.isr, self._state.controller_epoch)

    return [(Leaders, "_first_state", mutant)]


MUTATIONS = (
    Mutation(
        "elr-ignored",
        "replicas that left the in-sync set with every committed record may not lead (KIP-966)",
        _forget_eligible_replicas,
    ),
    Mutation(
        "unclean-restart-trusted",
        "a broker that lost power counts as one that was stopped cleanly (KIP-966)",
        _trust_every_restart,
    ),
    Mutation(
        "stale-controller",
        "a replaced controller's writes and requests are accepted (KAFKA-6082)",
        _continue_after_expiry,
    ),
    Mutation(
        "any-broker-epoch",
        "registrations of a broker are not told apart (KIP-380, KIP-903)",
        _accept_any_broker_epoch,
    ),
    Mutation(
        "forgotten-start",
        "a restarted broker counts as one that only lost its session",
        _take_a_start_for_a_registration,
    ),
    Mutation(
        "overlooked-removal",
        "a broker whose registration was deleted by hand does not register again",
        _overlook_a_removed_registration,
    ),
    Mutation(
        "returned-member-trusted",
        "a restarted broker leads where all members were lost at once, though another may have more",
        _trust_returned_members,
    ),
    Mutation(
        "recorded-before-lost",
        "the controller records a broker's new start before it removes the broker from in-sync sets",
        _record_before_losing,
    ),
    Mutation(
        "leader-epochs-begin-anew",
        "a topic that is created again begins in leader epoch 0, as the deleted one did",
        _begin_in_epoch_zero,
    ),
    Mutation("unclean-election", "any live replica may lead", _elect_anyone),
)


# In random plans all members of a partition lose power only where each has flushed what it acknowledged. A
# late report on a replica is soon corrected by the next one.
def _keep_the_epoch_of_features() -> Sequence[Patch]:
    def mutant(before: FeatureRecord, *more: Any) -> FeatureRecord:
        decided = decide(before, *more)
        if before.finalized is None or decided.finalized is None:
            return decided
        return replace(decided, finalized=replace(decided.finalized, epoch=before.finalized.epoch))

    return [(machine, "decide", mutant)]


RARE = (
    Mutation(
        "late-report-believed",
        "the controller believes a broker's late report on a replica in an earlier leader epoch",
        _believe_late_reports,
    ),
    Mutation(
        "failed-disk-forgotten",
        "the last member in sync leads with what it has left, though a failed disk may have every record",
        lambda: [(EligibleReplicas, "remembered", lambda self, at, leader, isr, **more: ())],
    ),
    Mutation(
        "unclean-member-trusted",
        "a member that may have lost records leads without a comparison of logs, as the znode has it in sync",
        _trust_unclean_members,
    ),
    Mutation(
        "last-leader-preferred",
        "the last leader leads after all members lost power, though another has a longer log (KIP-966)",
        _prefer_the_last_leader,
    ),
    Mutation(
        "placed-before-limited",
        "a request for very many partitions is refused only after all of them have been placed",
        lambda: [(PartitionBudget, "check", lambda self, new, total: None)],
    ),
    Mutation(
        "too-large-for-zookeeper",
        "a request that ZooKeeper does not take is sent, and again after each connection that it costs",
        lambda: [(sizes, "check_size", lambda operations: None)],
    ),
    Mutation(
        "large-znode-written",
        "the controller writes a topic's znode of any size",
        lambda: [
            (topics, "check_znode_size", lambda topic, data: None),
            (reassignments, "check_znode_size", lambda topic, data: None),
        ],
    ),
    Mutation(
        "features-of-one-epoch",
        "another version of transactions has the epoch of the one before: running clients do not learn of it",
        _keep_the_epoch_of_features,
    ),
    Mutation(
        "absent-broker-not-counted",
        "the version of transactions rises while a broker is away that announces a lower one when it is back",
        lambda: [(machine, "decide", lambda before, brokers, _: decide(before, brokers, lambda broker: ()))],
    ),
)
