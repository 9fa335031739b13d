"""Eligible leader replicas (KIP-966): replicas out of sync that have every committed record. Pure.

A leader raises its high watermark only past what every in-sync replica has. It does not raise it at all while
its partition has eligible replicas, or fewer in-sync replicas than min.insync.replicas. So a replica that
leaves the in-sync set when fewer than min.insync.replicas stay has every record below the high watermark,
until that number is reached again. If the last in-sync replica fails, it may lead.

A broker that restarts and may have lost records is removed from the in-sync set and from the eligible
replicas. If no other replica is in either, the longest log leads: see `coordinator.controller.recovery`. A
replica whose disk fails is not eligible, but that comparison waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from holdfast_log.coordinator.controller.state import ControllerState
from holdfast_log.coordinator.placement import ReplicaAssignment
from holdfast_log.coordinator.znodes.brokers import ELIGIBLE_LEADERS
from holdfast_log.coordinator.znodes.topics import PartitionState
from holdfast_log.protocol.topic_partition import TopicPartition


class EligibleReplicas:
    """Decides which replicas are eligible. `min_in_sync(topic)` is the topic's min.insync.replicas."""

    def __init__(self, state: ControllerState, min_in_sync: Callable[[str], int]) -> None:
        self._state = state
        self._min_in_sync = min_in_sync
        self._known: dict[str, int] = {}

    def begin_event(self) -> None:
        """Forget the known values of min.insync.replicas, which may have changed since the last event. During
        an event each topic's value is read only once, because a read costs more than an election."""
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

        `without` are brokers that may have lost records, or that a reassignment removes.
        """
        if isr == state.isr and not state.eligible:
            return ()
        assignment = self._state.partition(at).assignment
        if not self._is_held(at, leader, isr):
            return ()
        return tuple(
            member
            for member in dict.fromkeys((*state.isr, *state.eligible))
            if member not in isr
            and member not in without
            and member not in state.unclean
            and member in assignment.replicas
        )

    def remembered(
        self,
        at: TopicPartition,
        leader: int,
        isr: Sequence[int],
        *,
        failed: Collection[int] = (),
        without: Collection[int] = (),
    ) -> tuple[int, ...]:
        """The unclean replicas of a partition with a leader: they had every committed record before their
        disks failed, or before they restarted while there was no leader.

        They may still have every record. If the leader turns out to have lost some itself, the logs are
        compared. `failed` are brokers with a failed disk; a reassignment removes those in `without`.
        """
        partition = self._state.partition(at)
        state = partition.state
        if state is None or not (failed or state.unclean):
            return ()
        if not self._is_held(at, leader, isr):
            return ()
        lost = [member for member in (*state.isr, *state.eligible) if member in failed]
        kept = [member for member in state.unclean if member not in without]
        return tuple(
            member
            for member in dict.fromkeys((*kept, *lost))
            if member not in isr and member in partition.assignment.replicas
        )

    def _is_held(self, at: TopicPartition, leader: int, isr: Sequence[int]) -> bool:
        """Whether the leader does not raise its high watermark, so that replicas which leave keep every
        committed record."""
        needed = self._needed(at[0], self._state.partition(at).assignment)
        return len(isr) < needed and self._holds_back(leader)

    def _needed(self, topic: str, assignment: ReplicaAssignment) -> int:
        """How many in-sync replicas the leader needs to raise its high watermark: min.insync.replicas, but at
        most all replicas except those being added."""
        needed = self._known.get(topic)
        if needed is None:
            needed = self._known[topic] = self._min_in_sync(topic)
        return min(needed, len(assignment.replicas) - len(assignment.adding))

    def _holds_back(self, leader: int) -> bool:
        """Whether the leader does not raise its high watermark while there are eligible replicas. True for a
        broker with this feature, and if the leader is not alive or there is none."""
        broker = self._state.brokers.get(leader)
        return broker is None or ELIGIBLE_LEADERS in broker.info.features


def trusted(state: PartitionState, lost: Collection[int]) -> PartitionState:
    """`state` with the in-sync and eligible replicas among `lost`, which may have lost records, moved to its
    `unclean` replicas.

    If no in-sync replica is left, the eligible replicas become the in-sync set: the partition then has no
    leader, and they have every committed record. If no eligible replica is left either, the in-sync set
    still names its members, so that it is never empty for other readers of the znode.
    """
    eligible = tuple(member for member in state.eligible if member not in lost)
    isr = tuple(member for member in state.isr if member not in lost)
    new = (member for member in (*state.isr, *state.eligible) if member in lost)
    unclean = tuple(dict.fromkeys((*state.unclean, *new)))
    if not isr:
        isr, eligible = eligible or state.isr, ()
    if (isr, eligible, unclean) == (state.isr, state.eligible, state.unclean):
        return state
    return replace(state, isr=isr, eligible=eligible, unclean=unclean)
