"""How long each partition takes, after a fault has ended, to accept appends with acks=all again.

A partition accepts them when the leader that ZooKeeper names leads in the leader epoch that ZooKeeper names,
has enough in-sync replicas, every one of them runs and follows in that epoch, and every record that was in
the leader's log at the previous measurement is committed. Times are measured from the end of the last fault.
If another fault begins before a partition has recovered, that partition is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.coordinator.znodes.topics import PartitionState
from tests.models.world import World
from tests.sim.cluster import Cluster
from tests.sim.history import TopicPartition

_POLL_S = 0.1
RECOVERY_S_MAX = 45.0


class RecoveryTimes:
    """Measures one cluster. `times_s` are the times in seconds that its partitions took to recover."""

    def __init__(self, cluster: Cluster, world: World) -> None:
        self.times_s: list[float] = []
        self._cluster = cluster
        self._world = world
        self._ends: dict[TopicPartition, int] = {}
        """The partitions that have not recovered, each with the end of its leader's log at the previous
        measurement."""
        self._since_s = 0.0
        self._is_looking = False

    def fault_began(self) -> None:
        """A fault begins: stop measuring. Partitions that have not recovered yet are not counted."""
        self._ends.clear()

    def faults_ended(self) -> None:
        """No fault is active any more: start to measure how long every partition takes to recover."""
        self._since_s = self._world.seconds()
        self._ends = dict.fromkeys(self._cluster.states(), -1)
        if not self._is_looking:
            self._is_looking = True
            self._world.clock.callLater(_POLL_S, self._look)

    @property
    def late(self) -> list[TopicPartition]:
        """The partitions that have not recovered within `RECOVERY_S_MAX` seconds."""
        if self._world.seconds() - self._since_s <= RECOVERY_S_MAX:
            return []
        return list(self._ends)

    def _look(self) -> None:
        states = self._cluster.states() if self._ends else {}
        for at in list(self._ends):
            if at not in states:
                del self._ends[at]  # The topic no longer exists.
            elif self._accepts(at, states[at]):
                del self._ends[at]
                self.times_s.append(self._world.seconds() - self._since_s)
        self._is_looking = bool(self._ends)
        if self._is_looking:
            self._world.clock.callLater(_POLL_S, self._look)

    def _accepts(self, at: TopicPartition, state: PartitionState) -> bool:
        if state.leader <= 0 or not self._cluster.machine(state.leader).is_running:
            return False
        leader = self._cluster.machine(state.leader).partition(at)
        role = None if leader is None else leader.role
        if leader is None or not isinstance(role, Leadership) or role.leader_epoch != state.leader_epoch:
            return False
        before, self._ends[at] = self._ends[at], leader.log.log_end_offset
        if before < 0 or leader.high_watermark < before:
            return False
        if leader.is_offline or len(role.isr) < leader.log.settings.min_insync_replicas:
            return False
        for member in role.maximal_isr:
            machine = self._cluster.machine(member)
            copy = machine.partition(at)
            if not machine.is_running or copy is None or copy.leader_epoch != role.leader_epoch:
                return False
        return True


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many recoveries were measured, and the median, the 99th percentile and the maximum of their times,
    in seconds."""

    count: int
    median_s: float
    high_s: float
    max_s: float

    def __str__(self) -> str:
        return f"p50 {self.median_s:.1f} s, p99 {self.high_s:.1f} s, max {self.max_s:.1f} s"


def distribution(times_s: Sequence[float]) -> Distribution:
    """The distribution of some times in seconds. Raises ValueError if there are none."""
    if not times_s:
        raise ValueError("no recovery was measured")
    ordered = sorted(times_s)
    return Distribution(
        len(ordered),
        ordered[math.ceil(len(ordered) * 0.5) - 1],
        ordered[math.ceil(len(ordered) * 0.99) - 1],
        ordered[-1],
    )
