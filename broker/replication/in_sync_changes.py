"""Proposals of a leader to change the in-sync set: it adds followers that have caught up, and removes those
that lag. `Leadership` decides who; `isr_proposals` sends the proposals to the controller.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.replication.leadership import IsrProposal, Leadership
from holdfast_log.broker.replication.partition import Partition


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
