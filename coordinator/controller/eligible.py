"""Eligible leader replicas (KIP-966): replicas out of sync that have every committed record. Pure.

A leader raises its high watermark only past what every in-sync replica has. It does not raise it at all while
its partition has eligible replicas, or fewer in-sync replicas than min.insync.replicas. So a replica that
leaves the in-sync set when fewer than min.insync.replicas stay has every record below the high watermark,
and keeps having it until that number is reached again. It may lead after the last in-sync replica.

A broker that restarts and may have lost records is neither in sync nor eligible, while another replica is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from coordinator.controller.state import ControllerState
from coordinator.placement import ReplicaAssignment
from coordinator.znodes.brokers import ELIGIBLE_LEADERS
from coordinator.znodes.topics import PartitionState
from protocol.topic_partition import TopicPartition


class EligibleReplicas:
    """Decides which replicas are eligible. `min_in_sync(topic)` is the topic's min.insync.replicas."""

    def __init__(self, state: ControllerState, min_in_sync: Callable[[str], int]) -> None:
        self._state = state
        self._min_in_sync = min_in_sync
        self._known: dict[str, int] = {}

    def begin_event(self) -> None:
        """Read min.insync.replicas anew where it is needed: a setting may have changed since the last event.
        During an event each topic's is read once, because that costs more than an election."""
        self._known.clear()

    def after(
        self,
        at: TopicPartition,
        state: PartitionState,
        leader: int,
        isr: Sequence[int],
        *,
        without: Collection[int] = (),
    ) -> tuple[int, ...]:
        """The eligible replicas after a change of `state` to this leader and in-sync set.

        `without` are brokers that may have lost records, or are no longer to be replicas.
        """
        if isr == state.isr and not state.eligible:
            return ()
        assignment = self._state.partition(at).assignment
        if len(isr) >= self._needed(at[0], assignment) or not self._holds_back(leader):
            return ()
        return tuple(
            member
            for member in dict.fromkeys((*state.isr, *state.eligible))
            if member not in isr and member not in without and member in assignment.replicas
        )

    def _needed(self, topic: str, assignment: ReplicaAssignment) -> int:
        """How many in-sync replicas the leader needs to raise its high watermark: a replica that is being
        added does not raise that number."""
        needed = self._known.get(topic)
        if needed is None:
            needed = self._known[topic] = self._min_in_sync(topic)
        return min(needed, len(assignment.replicas) - len(assignment.adding))

    def _holds_back(self, leader: int) -> bool:
        """Whether a leader keeps its high watermark where it is while there are eligible replicas. One that
        has gone, or none, does."""
        broker = self._state.brokers.get(leader)
        return broker is None or ELIGIBLE_LEADERS in broker.info.features


def trusted(state: PartitionState, lost: Collection[int]) -> PartitionState:
    """The state without brokers that may have lost records, in the in-sync set and among the eligible.

    If no in-sync replica is left, the eligible ones take their place: the partition has no leader then, so
    they have as much as any. If nobody else is left, the in-sync set stays unchanged, as a last resort.
    """
    eligible = tuple(member for member in state.eligible if member not in lost)
    isr = tuple(member for member in state.isr if member not in lost)
    if not isr:
        isr, eligible = eligible or state.isr, ()
    if (isr, eligible) == (state.isr, state.eligible):
        return state
    return replace(state, isr=isr, eligible=eligible)
