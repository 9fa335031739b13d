"""Bugs of controllers: elections that are wrong or missing, and work that stays undone for ever."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from twisted.python.failure import Failure

from holdfast_log.coordinator.cluster.candidacy import Candidacy
from holdfast_log.coordinator.controller import election, reassignments, writes
from holdfast_log.coordinator.controller.channel import ControllerChannel
from holdfast_log.coordinator.controller.deletions import Deletions
from holdfast_log.coordinator.controller.effects import DecisionSteps, StateWrite, StateWritten
from holdfast_log.coordinator.controller.election import ElectedLeader
from holdfast_log.coordinator.controller.isr import InSyncSets
from holdfast_log.coordinator.controller.machine import Controller
from holdfast_log.coordinator.controller.state import LiveBroker, PartitionRecord, Topic
from holdfast_log.coordinator.zookeeper.interface import WatchEvent, ZooKeeperSession
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.alter_partition import AlteredPartition, ProposedPartition
from tests.sim.mutation import Mutation, Patch

# Elections


def _prefer_replicas_out_of_sync() -> Sequence[Patch]:
    def mutant(replicas: Sequence[int], isr: Sequence[int], live: Collection[int]) -> ElectedLeader | None:
        preferred = replicas[0]
        members = tuple(isr) if preferred in isr else (preferred, *isr)
        return ElectedLeader(preferred, members) if preferred in live else None

    return [(election, "elect_preferred", mutant)]


def _keep_dead_members() -> Sequence[Patch]:
    elect = election.elect_after_failure

    def mutant(
        replicas: Sequence[int], isr: Sequence[int], live: Collection[int], **more: Any
    ) -> ElectedLeader | None:
        found = elect(replicas, isr, live, **more)
        return None if found is None else ElectedLeader(found.leader, tuple(isr), found.unclean)

    return [(election, "elect_after_failure", mutant)]


def _overlook_missed_failures() -> Sequence[Patch]:
    def mutant(self: Controller, brokers: Mapping[int, LiveBroker], among: object = None) -> Iterator[None]:
        self.state.brokers = dict(brokers)
        yield from ()

    return [(Controller, "_handle_missed_failures", mutant)]


def _elect_nobody_who_returns() -> Sequence[Patch]:
    add = Controller._add_brokers

    def mutant(self: Controller, joined: list[int], now: Mapping[int, LiveBroker]) -> DecisionSteps[None]:
        elect = self._leaders.elect_leaderless
        self._leaders.elect_leaderless = lambda among=None: iter(())  # type: ignore[assignment,method-assign,return-value]
        try:
            yield from add(self, joined, now)
        finally:
            self._leaders.elect_leaderless = elect  # type: ignore[method-assign]

    return [(Controller, "_add_brokers", mutant)]


def _accept_outdated_proposals() -> Sequence[Patch]:
    judge = InSyncSets._judge

    def mutant(
        self: InSyncSets, broker_id: int, topic: Topic | None, proposal: ProposedPartition, accepted: Any
    ) -> AlteredPartition:
        known = None if topic is None else topic.partitions.get(proposal.partition_index)
        if known is not None and known.state is not None:
            proposal.leader_epoch, proposal.partition_epoch = known.state.leader_epoch, known.version
        return judge(self, broker_id, topic, proposal, accepted)

    return [(InSyncSets, "_judge", mutant)]


# Work that stays undone


def _take_a_lost_answer_for_a_failure() -> Sequence[Patch]:
    settle = writes._settle_from_znodes

    async def mutant(
        session: ZooKeeperSession, open_writes: Sequence[tuple[int, StateWrite]]
    ) -> dict[int, StateWritten]:
        settled = await settle(session, open_writes)
        return {index: StateWritten(False, found.state, found.version) for index, found in settled.items()}

    return [(writes, "_settle_from_znodes", mutant)]


def _refuse_repeated_proposals() -> Sequence[Patch]:
    judge = InSyncSets._judge

    def mutant(self: InSyncSets, *arguments: Any) -> AlteredPartition:
        row = judge(self, *arguments)
        if row.leader_id >= 0:
            row.error_code = ErrorCode.INVALID_UPDATE_VERSION
        return row

    return [(InSyncSets, "_judge", mutant)]


def _wait_for_lost_answers() -> Sequence[Patch]:
    return [(Deletions, "lose_brokers", lambda self, gone: None)]


def _send_requests_once() -> Sequence[Patch]:
    def mutant(self: ControllerChannel, failure: Failure) -> None:
        self._in_flight -= 1
        if not self._closed:
            self._unanswered.popleft().done.callback(False)
            self._next()

    return [(ControllerChannel, "_failed", mutant)]


def _miss_changes_while_reading() -> Sequence[Patch]:
    look = Candidacy._look

    def mutant(self: Candidacy, event: WatchEvent | None = None) -> None:
        if not self._looking:
            look(self, event)

    return [(Candidacy, "_look", mutant)]


def _complete_when_any_is_in_sync() -> Sequence[Patch]:
    def mutant(partition: PartitionRecord) -> bool:
        assignment, state = partition.assignment, partition.state
        if state is None or not assignment.is_reassigning:
            return False
        return any(replica in state.isr for replica in assignment.target)

    return [(reassignments, "_is_complete", mutant)]


MUTATIONS = (
    Mutation(
        "moved-when-one-is-in-sync",
        "a reassignment is completed when any of its new replicas is in sync, not all (KIP-455)",
        _complete_when_any_is_in_sync,
    ),
    Mutation(
        "preferred-out-of-sync",
        "the preferred replica is elected although it is not in sync",
        _prefer_replicas_out_of_sync,
    ),
    Mutation(
        "dead-members-kept",
        "a leader that is elected after a failure keeps the dead brokers in its in-sync set",
        _keep_dead_members,
    ),
    Mutation(
        "missed-failures-overlooked",
        "a new controller does not handle failures that happened while no controller watched",
        _overlook_missed_failures,
    ),
    Mutation(
        "returned-member-not-elected",
        "a partition stays without a leader when one of its in-sync replicas returns",
        _elect_nobody_who_returns,
    ),
    Mutation(
        "outdated-proposal-accepted",
        "the controller writes an in-sync set that its leader proposed in an earlier state (KIP-497)",
        _accept_outdated_proposals,
    ),
    Mutation(
        "lost-answer-taken-for-failure",
        "the controller sends brokers nothing about a state if ZooKeeper's answer to its write was lost",
        _take_a_lost_answer_for_a_failure,
    ),
    Mutation(
        "repeated-proposal-refused",
        "the controller refuses to repeat a lost answer, and the leader keeps an outdated partition epoch",
        _refuse_repeated_proposals,
    ),
    Mutation(
        "deletion-not-restarted",
        "a deletion waits for ever for the answer of a broker that has restarted",
        _wait_for_lost_answers,
    ),
    Mutation(
        "controller-request-not-repeated",
        "the controller does not repeat a request whose connection broke",
        _send_requests_once,
    ),
    Mutation(
        "controller-change-missed",
        "a broker misses a change of controller that happens while it reads who the controller is",
        _miss_changes_while_reading,
    ),
)
