"""Proposals of a leader to change the in-sync set: it adds followers that have caught up, and removes those
that lag. `Leadership` decides who; `isr_proposals` sends the proposals to the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast_log.broker.replication.leadership import IsrProposal, Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, now_ms

LOOKED_AT_TOGETHER = 1_000
"""Maximum number of partitions that are looked at in one turn of the reactor: 1 ms of work, or 4 ms if all of
them have followers that lag."""


def expansion(
    partition: Partition, replica_id: int, is_eligible: Callable[[int], bool]
) -> IsrProposal | None:
    """A proposal to add a follower to the in-sync set; None if it may not join."""
    role = partition.role
    if not isinstance(role, Leadership):
        return None
    isr = role.expanded_isr(replica_id, partition.high_watermark, is_eligible)
    return None if isr is None else proposal_of(partition, role, isr)


def shrink(partition: Partition, now_ms: int, lag_ms_max: int) -> IsrProposal | None:
    """A proposal to remove lagging followers from the in-sync set; None if none lags."""
    role = partition.role
    if not isinstance(role, Leadership):
        return None
    isr = role.shrunken_isr(partition.log.log_end_offset, now_ms, lag_ms_max)
    return None if isr is None else proposal_of(partition, role, isr)


def proposal_of(partition: Partition, role: Leadership, isr: tuple[int, ...]) -> IsrProposal:
    """The proposal of an in-sync set, which is pending from now on."""
    role.propose(isr)
    epochs = tuple(role.broker_epoch_of(member) for member in isr)
    return IsrProposal(partition.topic, partition.index, role.leader_epoch, role.partition_epoch, isr, epochs)


class Shrinking:
    """Looks at all partitions, in turns of the reactor, and proposes in-sync sets without those that lag."""

    def __init__(self, clock: Clock, lag_ms_max: int, propose: Callable[[IsrProposal], None]) -> None:
        self._clock = clock
        self._lag_ms_max = lag_ms_max
        self._propose = propose
        self._left: list[Partition] = []
        self._alarm = Alarm(clock, self._look)

    def begin(self, partitions: Iterable[Partition]) -> None:
        """Begin a round, unless the previous one goes on. The first are looked at before it returns."""
        if not self._left:
            self._left = list(partitions)
            self._look()

    def stop(self) -> None:
        """Look at no more of them."""
        self._left = []
        self._alarm.cancel()

    def _look(self) -> None:
        some, self._left = self._left[:LOOKED_AT_TOGETHER], self._left[LOOKED_AT_TOGETHER:]
        if self._left:
            self._alarm.set(0)
        time_ms = now_ms(self._clock)
        for partition in some:
            proposal = None if partition.is_deleted else shrink(partition, time_ms, self._lag_ms_max)
            if proposal is not None:
                self._propose(proposal)
