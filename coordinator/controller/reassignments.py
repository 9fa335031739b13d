"""Replicas moved to other brokers: the controller's decisions (KIP-455). Pure.

A reassignment is written in the topic's znode first: the target, what is still to be removed, and which of
them come and go. The new replicas copy from the leader. When the whole target is in sync, the in-sync set
and the leadership are drawn back to it in one write; then those that leave are told to remove their logs, and
last the znode loses them. Whoever takes over in between finds in ZooKeeper how far it has come, and says the
rest again. A replica that is to go stays in sync, and may lead, until all of its successors can.

A cancelled one goes back at once. That is refused where the in-sync set would be left empty.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from coordinator.controller import election
from coordinator.controller.effects import (
    AnswerRequest,
    DecisionSteps,
    Order,
    ReadOrder,
    WriteAssignments,
    WriteReassignmentOrder,
)
from coordinator.controller.election import ElectedLeader
from coordinator.controller.events import AlterReassignments, ListReassignments
from coordinator.controller.leaders import Leaders
from coordinator.controller.requests import RequestBatch
from coordinator.controller.state import ControllerState, PartitionRecord
from coordinator.placement import ReplicaAssignment
from coordinator.znodes.topics import PartitionState
from protocol.errors import BrokerError, ErrorCode
from protocol.topic_partition import TopicPartition

ReassignmentTarget: TypeAlias = Sequence[int] | None
"""Where a partition is to be kept, the preferred leader first; None: where it was before."""

_log = logging.getLogger(__name__)


class Reassignments:
    """Begins, cancels and ends reassignments."""

    def __init__(self, state: ControllerState, batch: RequestBatch, leaders: Leaders) -> None:
        self._state = state
        self._batch = batch
        self._leaders = leaders
        self._ordered: dict[TopicPartition, tuple[int, ...]] = {}
        """What stands in /admin/reassign_partitions, and is not done yet."""

    def alter(self, event: AlterReassignments) -> DecisionSteps[None]:
        """Begin and cancel; what is refused is told for each partition."""
        results: dict[TopicPartition, BrokerError | None] = yield from self._move(event.targets)
        withdrawn = [at for at in event.targets if at in self._ordered and results[at] is None]
        yield from self._done_with(withdrawn)
        yield from self._batch.flush()
        yield AnswerRequest(event.token, None, results)

    def listed(self, event: ListReassignments) -> DecisionSteps[None]:
        """Tell which partitions are on the move."""
        running = self._reassigning()
        asked = running if event.partitions is None else event.partitions
        found = {at: self._state.partition(at).assignment for at in asked if at in running}
        yield AnswerRequest(event.token, None, found)

    def order(self) -> DecisionSteps[None]:
        """Do what /admin/reassign_partitions asks for; what cannot be done is struck out."""
        asked: dict[TopicPartition, tuple[int, ...]] | None = yield ReadOrder(Order.REASSIGNMENT)
        self._ordered = dict(asked or {})
        new = {
            at: target
            for at, target in self._ordered.items()
            if not self._is_known(at) or self._state.partition(at).assignment.target != target
        }
        refused: dict[TopicPartition, BrokerError | None] = yield from self._move(new)
        for at, error in refused.items():
            if error is not None:
                _log.warning("%s-%d is not reassigned to %s: %s", *at, new[at], error)
        running = self._reassigning()
        yield from self._done_with([at for at in self._ordered if at not in running])
        if asked is not None and not asked:
            yield WriteReassignmentOrder({})  # It was empty, or not understood.

    def resume(self) -> DecisionSteps[None]:
        """Go on with what the last controller has begun."""
        reassigning = list(self._reassigning())
        if reassigning:
            yield from self.advance(reassigning)
            yield from self._announce([at for at in reassigning if at in self._reassigning()])

    def advance(self, partitions: Iterable[TopicPartition] | None = None) -> DecisionSteps[None]:
        """End the reassignments, among these partitions or all, that can be ended."""
        ready = [
            at
            for at in (self._reassigning() if partitions is None else partitions)
            if self._is_known(at) and _is_complete(self._state.partition(at))
        ]
        if not ready:
            return
        ended = yield from self._leaders.write(ready, self._draw_back)
        for at in ended:
            partition = self._state.partition(at)
            for replica in partition.assignment.removing:
                self._batch.stop_replica(replica, [at], delete=True)
            partition.assignment = ReplicaAssignment(partition.assignment.target)
        # Told before the znode forgets who has to be told.
        yield from self._batch.flush()
        yield from self._write(ended)
        yield from self._done_with(ended)

    def forget_deleted(self) -> DecisionSteps[None]:
        """Strike out what was ordered for topics that have gone."""
        yield from self._done_with([at for at in self._ordered if not self._is_known(at)])

    # Beginning

    def _move(
        self, targets: Mapping[TopicPartition, ReassignmentTarget]
    ) -> DecisionSteps[dict[TopicPartition, BrokerError | None]]:
        """Begin to move partitions; what has been refused, None where nothing was."""
        results: dict[TopicPartition, BrokerError | None] = dict.fromkeys(targets)
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for at, target in targets.items():
            try:
                move = self._judge(at, target)
            except BrokerError as error:
                results[at] = error
            else:
                if move != self._state.partition(at).assignment:
                    moves[at] = move
        abandoned = {at: gone for at, move in moves.items() if (gone := self._abandoned(at, move))}
        yield from self._leave(abandoned, moves)
        for at, gone in abandoned.items():
            state = self._state.partition(at).state
            if state is not None and any(replica in (state.leader, *state.isr) for replica in gone):
                del moves[at]
                results[at] = BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"of the replicas that would be left none is alive and in sync; in sync are {state.isr}",
                )
        for at, move in moves.items():
            self._state.partition(at).assignment = move
            for replica in abandoned.get(at, ()):
                self._batch.stop_replica(replica, [at], delete=True)
        if abandoned:
            yield from self._batch.flush()  # Told before the znode forgets who has to be told.
        yield from self._write(moves)
        yield from self._announce([at for at in moves if not _is_complete(self._state.partition(at))])
        yield from self.advance(moves)
        return results

    def _judge(self, at: TopicPartition, target: ReassignmentTarget) -> ReplicaAssignment:
        """The assignment that a request asks for. Raises BrokerError."""
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
                "a partition needs one replica or more, on as many different brokers",
            )
        move = now.reassigned_to(target)
        missing = [replica for replica in move.adding if replica not in self._state.brokers]
        if missing:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker {missing[0]}, which is named, is not alive"
            )
        return move

    def _abandoned(self, at: TopicPartition, move: ReplicaAssignment) -> tuple[int, ...]:
        """The replicas that an earlier reassignment has added, and that are not wanted any more."""
        now = self._state.partition(at).assignment
        return tuple(replica for replica in now.replicas if replica not in move.replicas)

    def _leave(
        self,
        abandoned: Mapping[TopicPartition, Sequence[int]],
        moves: Mapping[TopicPartition, ReplicaAssignment],
    ) -> DecisionSteps[None]:
        """Take leadership, and their places in sync, from replicas that are not wanted any more, if possible.

        This is written before the assignment, so that never a broker leads which keeps no replica.
        """

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state, gone = partition.state, abandoned[at]
            if state is None or not any(replica in (state.leader, *state.isr) for replica in gone):
                return None
            isr = tuple(member for member in state.isr if member not in gone)
            if not isr or state.leader not in gone:
                return self._leaders.next_state(state, ElectedLeader(state.leader, isr)) if isr else None
            found = election.elect_for_reassignment(moves[at].replicas, isr, self._state.may_lead(at))
            return self._leaders.next_state(state, found)

        yield from self._leaders.write(abandoned, decide)

    def _announce(self, partitions: Sequence[TopicPartition]) -> DecisionSteps[None]:
        """Let leaders and replicas know of their assignment, under a new leader epoch: they hear no other."""

        def decide(at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
            state = partition.state
            return state and self._leaders.next_state(state, ElectedLeader(state.leader, state.isr))

        announced = yield from self._leaders.write(partitions, decide)
        for at in announced:
            self._batch.leader_and_isr(self._state.partition(at).assignment.adding, [at], is_new=True)

    # Ending

    def _draw_back(self, at: TopicPartition, partition: PartitionRecord) -> PartitionState | None:
        """The state in which only the target is left. None while nobody of it may lead."""
        state, target = partition.state, partition.assignment.target
        if state is None or not _is_complete(partition):
            return None
        isr = tuple(member for member in state.isr if member in target)
        may_lead = self._state.may_lead(at)
        if state.leader in target and state.leader in may_lead:
            return self._leaders.next_state(state, ElectedLeader(state.leader, isr))
        return self._leaders.next_state(state, election.elect_for_reassignment(target, isr, may_lead))

    def _write(self, partitions: Iterable[TopicPartition]) -> DecisionSteps[None]:
        """Write the znodes of these partitions' topics."""
        names = dict.fromkeys(name for name, _ in partitions)
        if names:
            yield WriteAssignments({name: self._state.topics[name].assignment() for name in names})

    def _done_with(self, partitions: Iterable[TopicPartition]) -> DecisionSteps[None]:
        done = [at for at in partitions if at in self._ordered]
        for at in done:
            del self._ordered[at]
        if done:
            yield WriteReassignmentOrder(dict(self._ordered))

    # Looking

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
    """Whether all replicas of the target are in sync, and only the others have to leave."""
    assignment, state = partition.assignment, partition.state
    if state is None or not assignment.is_reassigning:
        return False
    return all(replica in state.isr for replica in assignment.target)
