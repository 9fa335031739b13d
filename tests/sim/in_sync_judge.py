"""Judges in-sync sets and eligible replicas at every moment: none in ZooKeeper has a member that its leader
does not wait for, and no high watermark passes an eligible replica.

A leader commits a record when its maximal in-sync set has it. The next leader is elected from the set in
ZooKeeper. A member of that set which the leader does not count may be elected without committed records. So
may an eligible replica (KIP-966) if the leader raises its high watermark all the same.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from broker.replication.leadership import Leadership
from broker.replication.partition import Partition
from coordinator.znodes.topics import (
    TOPICS,
    PartitionState,
    decode_partition_state,
    decode_topic,
    topic_path,
)
from coordinator.zookeeper.interface import Create, Delete, SetData, WriteOperation
from tests.sim.cluster import Cluster


@dataclass(slots=True)
class _Known:
    """A partition's state in ZooKeeper. Its leader has led without a break from `first_epoch` on."""

    topic_id: uuid.UUID | None
    state: PartitionState
    first_epoch: int


class InSyncJudge:
    """Compares the sets in ZooKeeper with the leaders' sets, whenever one of the two changes.

    A leader may not have learned of its latest leader epochs yet. Where no other broker has led since the
    epoch that it knows, its set has to include the one in ZooKeeper all the same.
    """

    def __init__(self, cluster: Cluster, violation: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._violation = violation
        self._known: dict[tuple[str, int], _Known] = {}
        cluster.zookeeper.observers.append(self._written)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Judge every change of a leader's set too, within this context."""
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
        """A leader's high watermark has risen: all eligible replicas that are up have what is below."""
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
                        self._known.pop(at, None)

    def _learn(self, at: tuple[str, int], state: PartitionState) -> None:
        known = self._known.get(at)
        if known is None:
            topic = decode_topic(at[0], self._cluster.zookeeper.read(topic_path(at[0])).data)
            self._known[at] = _Known(topic.topic_id, state, state.leader_epoch)
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
        """Whether a replica leads, and no other broker has led since the epoch that it knows."""
        role, state = partition.role, known.state
        return (
            isinstance(role, Leadership)
            and partition.local_id == state.leader
            and partition.topic_id == known.topic_id
            and known.first_epoch <= role.leader_epoch <= state.leader_epoch
        )
