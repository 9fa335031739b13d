"""Checks in-sync sets and eligible replicas at every step.

Three rules hold. A leader waits for every member of the in-sync set in ZooKeeper. No leader raises its high
watermark past the end of an eligible replica's log (KIP-966). A reassignment is completed only when all its
target replicas are in sync (KIP-455), because then the other replicas lose their logs.

A leader commits a record when every member of its maximal in-sync set has it, but the controller elects the
next leader from the set in ZooKeeper. If that set has a member for which the leader does not wait, the
controller may elect a replica that lacks committed records. The same can happen if the leader commits records
that an eligible replica lacks.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.topics import (
    TOPICS,
    PartitionState,
    decode_partition_state,
    decode_topic,
    topic_path,
)
from holdfast_log.coordinator.zookeeper.interface import Create, Delete, SetData, WriteOperation
from tests.sim.cluster import Cluster


@dataclass(slots=True)
class _Known:
    """A partition's state in ZooKeeper. The same broker has led in every epoch since `first_epoch`."""

    topic_id: uuid.UUID | None
    state: PartitionState
    first_epoch: int


class InSyncJudge:
    """Compares the in-sync sets in ZooKeeper with the leaders' sets, whenever one of the two changes.

    A leader may not know its latest leader epochs yet. If no other broker has led since the epoch that it
    knows, its set must still include the one in ZooKeeper.
    """

    def __init__(self, cluster: Cluster, violation: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._violation = violation
        self._known: dict[tuple[str, int], _Known] = {}
        self._last_epochs: dict[tuple[str, int], int] = {}
        """The last leader epochs of deleted partitions."""
        self._assignments: dict[tuple[str, int], ReplicaAssignment] = {}
        cluster.zookeeper.observers.append(self._written)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within this context, judge every change of a leader's set too."""
        with ExitStack() as stack:
            for owner, name in ((Leadership, "settle"), (Leadership, "withdraw"), (Partition, "lead")):
                stack.enter_context(self._checked(owner, name))
            stack.enter_context(self._advance_checked())
            yield

    def _advance_checked(self) -> Any:
        advance = Partition.advance_high_watermark

        def advance_and_check(partition: Partition, *arguments: Any) -> bool:
            rose = advance(partition, *arguments)
            if rose:
                self._check_eligible(partition)
            return rose

        return mock.patch.object(Partition, "advance_high_watermark", advance_and_check)

    def _check_eligible(self, leader: Partition) -> None:
        """Check, after a leader's high watermark rose, that every eligible replica that is up has all records
        below it."""
        known = self._known.get(leader.key)
        if known is None or not known.state.eligible or not self._is_current(leader, known):
            return
        for member in known.state.eligible:
            machine = self._cluster.machine(member)
            replica = machine.partition(leader.key)
            if (
                replica is not None
                and replica.log.log_end_offset < leader.high_watermark
                and self._cluster.is_start_recorded(machine)
            ):
                self._violation(
                    f"{leader.topic}-{leader.index}: the high watermark of leader {leader.local_id} rose to "
                    f"{leader.high_watermark}, eligible replica {member} ends at "
                    f"{replica.log.log_end_offset}"
                )

    def _checked(self, owner: type, name: str) -> Any:
        changed = getattr(owner, name)

        def change_and_check(changing: object, *arguments: Any) -> Any:
            result = changed(changing, *arguments)
            self._check(self._place(changing))
            return result

        return mock.patch.object(owner, name, change_and_check)

    def _place(self, changed: object) -> tuple[str, int] | None:
        for machine in self._cluster.machines:
            for partition in machine.partitions():
                if changed is partition or changed is partition.role:
                    return partition.key
        return None

    def _written(self, operations: Sequence[WriteOperation]) -> None:
        for operation in operations:
            if operation.path.startswith(TOPICS) and operation.path.endswith("/state"):
                *_, topic, _, number, _ = operation.path.split("/")
                at = (topic, int(number))
                match operation:
                    case Create() | SetData():
                        self._learn(at, decode_partition_state(*at, operation.data))
                        self._check(at)
                    case Delete():
                        gone = self._known.pop(at, None)
                        if gone is not None:
                            self._last_epochs[at] = gone.state.leader_epoch

            elif operation.path.rpartition("/")[0] == TOPICS:
                topic = operation.path.rpartition("/")[2]
                match operation:
                    case Create() | SetData():
                        for number, assignment in decode_topic(topic, operation.data).partitions.items():
                            self._check_assignment((topic, number), assignment)
                    case Delete():
                        self._assignments = {
                            at: each for at, each in self._assignments.items() if at[0] != topic
                        }

    def _check_assignment(self, at: tuple[str, int], now: ReplicaAssignment) -> None:
        """Check, where a reassignment has ended and was not cancelled, that all new replicas are in sync."""
        before, known = self._assignments.get(at), self._known.get(at)
        self._assignments[at] = now
        if before is None or known is None or now.is_reassigning or not before.is_reassigning:
            return
        missing = set(now.replicas) - set(known.state.isr)
        if now.replicas == before.target and missing:
            self._violation(
                f"{at[0]}-{at[1]}: the reassignment to {list(now.replicas)} is completed, but only "
                f"{list(known.state.isr)} are in sync"
            )

    def _learn(self, at: tuple[str, int], state: PartitionState) -> None:
        known = self._known.get(at)
        if known is None:
            topic = decode_topic(at[0], self._cluster.zookeeper.read(topic_path(at[0])).data)
            self._known[at] = _Known(topic.topic_id, state, state.leader_epoch)
            if state.leader_epoch <= self._last_epochs.get(at, -1):
                self._violation(
                    f"{at[0]}-{at[1]}: created again in leader epoch {state.leader_epoch}, though the "
                    f"deleted partition had {self._last_epochs[at]}"
                )
            return
        if known.state.leader != state.leader:
            known.first_epoch = state.leader_epoch
        known.state = state

    def _check(self, at: tuple[str, int] | None) -> None:
        known = self._known.get(at) if at is not None else None
        if at is None or known is None or known.state.leader <= 0:
            return
        state = known.state
        partition = self._cluster.machine(state.leader).partition(at)
        role = None if partition is None else partition.role
        if partition is None or not isinstance(role, Leadership) or not self._is_current(partition, known):
            return
        uncounted = set(state.isr) - role.maximal_isr
        if uncounted:
            self._violation(
                f"{at[0]}-{at[1]}: ZooKeeper has {list(state.isr)} in sync in epoch {state.leader_epoch}, "
                f"its leader {state.leader} in epoch {role.leader_epoch} does not count {sorted(uncounted)}"
            )

    @staticmethod
    def _is_current(partition: Partition, known: _Known) -> bool:
        """Whether a replica is leader, and no other broker has led since the epoch that it knows."""
        role, state = partition.role, known.state
        return (
            isinstance(role, Leadership)
            and partition.local_id == state.leader
            and partition.topic_id == known.topic_id
            and known.first_epoch <= role.leader_epoch <= state.leader_epoch
        )
