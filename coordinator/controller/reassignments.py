"""The controller's decisions on partition reassignments (KIP-455). Pure.

A reassignment goes through these steps, each durable in ZooKeeper before the next:

1. the topic's znode gets the target and old replicas, with the lists of those being added and removed;
2. the added replicas copy from the leader; replicas to remove stay in sync, and may lead, meanwhile;
3. when all target replicas are in sync, one write reduces the in-sync set to them and moves leadership, once
   a leader that is no target has yielded;
4. the brokers of removed replicas are asked to remove their logs, and the znode drops those replicas.

A new controller finds the progress in ZooKeeper and repeats the rest. Cancelling reverts at once; it is
refused if no in-sync replica would be left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from holdfast_log.coordinator.controller import election
from holdfast_log.coordinator.controller.effects import (
    AnswerRequest,
    DecisionSteps,
    ReadZnodeRequest,
    WriteAssignments,
    WriteReassignmentZnode,
    ZnodeRequest,
)
from holdfast_log.coordinator.controller.election import ElectedLeader
from holdfast_log.coordinator.controller.events import AlterReassignments, ListReassignments
from holdfast_log.coordinator.controller.leaders import Leaders
from holdfast_log.coordinator.controller.partition_limits import check_znode_size
from holdfast_log.coordinator.controller.requests import RequestBatch
from holdfast_log.coordinator.controller.state import ControllerState, PartitionRecord
from holdfast_log.coordinator.controller.topic_rules import check_machines
from holdfast_log.coordinator.controller.unanswered import UnansweredRequests
from holdfast_log.coordinator.controller.yields import Yields
from holdfast_log.coordinator.placement import ReplicaAssignment, Site
from holdfast_log.coordinator.znodes.topics import PartitionState, encode_topic
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

ReassignmentTarget: TypeAlias = Sequence[int] | None
"""The target replicas, the preferred leader first; None cancels: the replicas from before."""

_log = logging.getLogger(__name__)


class Reassignments:
    """Starts, cancels and completes reassignments."""

    def __init__(self, state: ControllerState, batch: RequestBatch, leaders: Leaders, yields: Yields) -> None:
        self._state = state
        self._batch = batch
        self._leaders = leaders
        self._yields = yields
        self._waiting: dict[TopicPartition, ReassignmentTarget] = {}
        """The targets that can be judged once the present leader, an abandoned replica, has yielded."""
        self._unanswered: UnansweredRequests[BrokerError | None] = UnansweredRequests()
        self._requested: dict[TopicPartition, tuple[int, ...]] = {}
        """The unfinished targets of /admin/reassign_partitions."""

    def alter(self, event: AlterReassignments) -> DecisionSteps[None]:
        """Start and cancel reassignments; answer with an error for each refused partition."""
        results: dict[TopicPartition, BrokerError | None] = yield from self._move(event.targets)
        withdrawn = [at for at in event.targets if at in self._requested and results[at] is None]
        yield from self._forget_requested(withdrawn)
        yield from self._batch.flush()
        waiting = [at for at in results if at in self._waiting]
        if waiting:
            self._unanswered.add(event.token, results, waiting)
        yield AnswerRequest(event.token, None, results, is_provisional=bool(waiting))
        yield from self._answer({at: result for at, result in results.items() if at not in self._waiting})

    def decide_again(self, partitions: Sequence[TopicPartition]) -> DecisionSteps[None]:
        """Decide what waited for the leaders of these partitions: they have yielded, or lead no longer."""
        targets = {at: self._waiting[at] for at in partitions if at in self._waiting}
        results: dict[TopicPartition, BrokerError | None] = yield from self._move(targets)
        decided = {at: result for at, result in results.items() if at not in self._waiting}
        running = self._reassigning()
        yield from self._forget_requested([at for at in decided if at not in running])
        yield from self.advance([at for at in partitions if at in running])
        yield from self._batch.flush()
        yield from self._answer(decided)

    def _answer(self, results: Mapping[TopicPartition, BrokerError | None]) -> DecisionSteps[None]:
        """Answer the requests that waited for nothing but these partitions."""
        for token, complete in self._unanswered.decided(results):
            yield AnswerRequest(token, None, complete)

    def listed(self, event: ListReassignments) -> DecisionSteps[None]:
        """Answer with the running reassignments."""
        found = {at: self._state.partition(at).assignment for at in self._reassigning()}
        yield AnswerRequest(event.token, None, found)

    def adopt_requested(self) -> DecisionSteps[None]:
        """Start what /admin/reassign_partitions requests; remove from it what is refused."""
        asked: dict[TopicPartition, tuple[int, ...]] | None = yield ReadZnodeRequest(
            ZnodeRequest.REASSIGNMENT
        )
        self._requested = dict(asked or {})
        new = {
            at: target
            for at, target in self._requested.items()
            if not self._is_known(at) or self._state.partition(at).assignment.target != target
        }
        refused: dict[TopicPartition, BrokerError | None] = yield from self._move(new)
        for at, error in refused.items():
            if error is not None and at not in self._waiting:
                _log.warning("%s-%d cannot be reassigned to %s: %s", *at, new[at], error)
        running = self._reassigning()
        yield from self._forget_requested(
            [at for at in self._requested if at not in running and at not in self._waiting]
        )
        if asked is not None and not asked:
            yield WriteReassignmentZnode({})  # It was empty or malformed.

    def resume(self) -> DecisionSteps[None]:
        """Continue the reassignments of the last controller."""
        reassigning = list(self._reassigning())
        if reassigning:
            yield from self.advance(reassigning)
            yield from self._announce([at for at in reassigning if at in self._reassigning()])

    def advance(self, partitions: Iterable[TopicPartition] | None = None) -> DecisionSteps[None]:
        """Complete the reassignments whose targets are in sync, among these partitions or all."""
        ready = [
            at
            for at in (self._reassigning() if partitions is None else partitions)
            if self._is_known(at) and _is_complete(self._state.partition(at))
        ]
        if not ready:
            return
        ended = yield from self._leaders.write(ready, self._final_state)
        for at in ended:
            partition = self._state.partition(at)
            for replica in partition.assignment.removing:
                self._batch.stop_replica(replica, [at], delete=True)
            partition.assignment = ReplicaAssignment(partition.assignment.target)
        # Before the znode is written: it lists the brokers that must remove logs.
        yield from self._batch.flush()
        yield from self._write(ended)
        yield from self._forget_requested(ended)

    def forget_deleted(self) -> DecisionSteps[None]:
        """Remove deleted topics from /admin/reassign_partitions."""
        yield from self._forget_requested([at for at in self._requested if not self._is_known(at)])

    # Start

    def _move(
        self, targets: Mapping[TopicPartition, ReassignmentTarget]
    ) -> DecisionSteps[dict[TopicPartition, BrokerError | None]]:
        """Start reassignments; for each partition the error if it was refused, else None."""
        results: dict[TopicPartition, BrokerError | None] = dict.fromkeys(targets)
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for at, target in targets.items():
            self._waiting.pop(at, None)
            try:
                move = self._judge(at, target)
            except BrokerError as error:
                results[at] = error
            else:
                if move != self._state.partition(at).assignment:
                    moves[at] = move
        for at, refusal in self._too_large(moves).items():
            results[at] = refusal
            del moves[at]
        abandoned = {at: gone for at, move in moves.items() if (gone := self._abandoned(at, move))}
        yield from self._leave(abandoned, moves)
        for at, gone in abandoned.items():
            state = self._state.partition(at).state
            if state is not None and any(replica in (state.leader, *state.isr) for replica in gone):
                del moves[at]
                if self._yields.is_asked(at):
                    self._waiting[at] = targets[at]
                    results[at] = BrokerError(
                        ErrorCode.REQUEST_TIMED_OUT,
                        f"broker {state.leader}, which leads the partition, has not answered the request of "
                        "the controller to yield it; the reassignment begins once it has",
                    )
                    continue
                results[at] = BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"no replica that would be left is alive and in sync; in sync are {state.isr}",
                )
        for at, move in moves.items():
            self._state.partition(at).assignment = move
            for replica in abandoned.get(at, ()):
                self._batch.stop_replica(replica, [at], delete=True)
        if abandoned:
            yield from self._batch.flush()  # Before the znode is written: it lists the brokers to tell.
        yield from self._write(moves)
        yield from self._announce([at for at in moves if not _is_complete(self._state.partition(at))])
        yield from self.advance(moves)
        return results

    def _judge(self, at: TopicPartition, target: ReassignmentTarget) -> ReplicaAssignment:
        """The assignment while replicas move to `target`. Raises BrokerError."""
        if not self._is_known(at):
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now = self._state.partition(at).assignment
        if target is None:
            if not now.is_reassigning:
                raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
            return ReplicaAssignment(now.original)
        if not target or len(set(target)) != len(target):
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "a partition needs at least one replica, each on a different broker",
            )
        brokers = self._state.brokers.items()
        check_machines(at[1], target, {id_: Site(machine=live.info.machine) for id_, live in brokers})
        move = now.reassigned_to(target)
        missing = [replica for replica in move.adding if replica not in self._state.brokers]
        if missing:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"target broker {missing[0]} is not alive"
            )
        return move

    def _too_large(
        self, moves: Mapping[TopicPartition, ReplicaAssignment]
    ) -> dict[TopicPartition, BrokerError]:
        """The moves of topics whose znodes would be larger than ZooKeeper takes, with an error for each."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for at, move in moves.items():
            by_topic.setdefault(at[0], {})[at[1]] = move
        errors: dict[TopicPartition, BrokerError] = {}
        for name, moved in by_topic.items():
            now = self._state.topics[name].assignment()
            try:
                check_znode_size(name, encode_topic(replace(now, partitions={**now.partitions, **moved})))
            except BrokerError as error:
                errors |= dict.fromkeys([at for at in moves if at[0] == name], error)
        return errors

    def _abandoned(self, at: TopicPartition, move: ReplicaAssignment) -> tuple[int, ...]:
        """The replicas that an earlier reassignment added and `move` no longer includes."""
        now = self._state.partition(at).assignment
        return tuple(replica for replica in now.replicas if replica not in move.replicas)

    def _leave(
        self,
        abandoned: Mapping[TopicPartition, Sequence[int]],
        moves: Mapping[TopicPartition, ReplicaAssignment],
    ) -> DecisionSteps[None]:
        """Where possible, remove abandoned replicas from leadership and in-sync sets.

        This is written before the assignment, so that a broker without a replica never leads.
        """

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state, gone = partition.state, abandoned[at]
            if state is None or not any(replica in (state.leader, *state.members) for replica in gone):
                return None
            isr = tuple(member for member in state.isr if member not in gone)
            if not isr:
                return None
            found: ElectedLeader | None = ElectedLeader(state.leader, isr)
            if state.leader in gone:
                found = election.elect_for_reassignment(moves[at].replicas, isr, self._state.may_lead(at))
            left = replace(state, unclean=tuple(each for each in state.unclean if each not in gone))
            return self._leaders.next_state(at, left, found, without=gone)

        yield from self._leaders.write(abandoned, decide)

    def _announce(self, partitions: Sequence[TopicPartition]) -> DecisionSteps[None]:
        """Send the new assignment to its brokers under a new leader epoch: they ignore requests without
        one."""

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state = partition.state
            return state and self._leaders.next_state(at, state, ElectedLeader(state.leader, state.isr))

        announced = yield from self._leaders.write(partitions, decide)
        for at in announced:
            self._batch.leader_and_isr(self._state.partition(at).assignment.adding, [at], is_new=True)

    # Completion

    def _final_state(self, at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
        """The state with only target replicas in sync; None while no target replica can lead."""
        state, target = partition.state, partition.assignment.target
        if state is None or not _is_complete(partition):
            return None
        isr = tuple(member for member in state.trusted_isr if member in target)
        may_lead = self._state.may_lead(at)
        found: ElectedLeader | None = ElectedLeader(state.leader, isr)
        if state.leader not in target or state.leader not in may_lead:
            found = election.elect_for_reassignment(target, isr, may_lead)
        # Removed replicas lose their logs: they are not eligible afterwards.
        return self._leaders.next_state(at, state, found, without=partition.assignment.removing)

    def _write(self, partitions: Iterable[TopicPartition]) -> DecisionSteps[None]:
        """Write the znodes of these partitions' topics."""
        names = dict.fromkeys(name for name, _ in partitions)
        if names:
            yield WriteAssignments({name: self._state.topics[name].assignment() for name in names})

    def _forget_requested(self, partitions: Iterable[TopicPartition]) -> DecisionSteps[None]:
        done = [at for at in partitions if at in self._requested]
        for at in done:
            del self._requested[at]
        if done:
            yield WriteReassignmentZnode(dict(self._requested))

    # Queries

    def _is_known(self, at: TopicPartition) -> bool:
        topic = self._state.topics.get(at[0])
        return topic is not None and at[1] in topic.partitions and not self._state.is_deleting(at)

    def _reassigning(self) -> dict[TopicPartition, None]:
        return {
            at: None
            for at, partition in self._state.partitions()
            if partition.assignment.is_reassigning and not self._state.is_deleting(at)
        }


def _is_complete(partition: PartitionRecord) -> bool:
    """Whether a reassignment runs and all its target replicas are in sync."""
    assignment, state = partition.assignment, partition.state
    if state is None or not assignment.is_reassigning:
        return False
    return all(replica in state.trusted_isr for replica in assignment.target)
