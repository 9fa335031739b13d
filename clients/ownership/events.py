"""The states of a claim, and the events of an owner or a claimant."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TypeAlias

from holdfast_log.protocol.messages.ownership import NO_PARTITION, LossReason, ResourceStanding
from holdfast_log.protocol.topic_partition import TopicPartition

OwnedResource: TypeAlias = TopicPartition | str
"""A partition, or a name that the application chooses."""


class ClaimState(enum.Enum):
    """The state of a claim."""

    CLAIMING = "claiming"
    """The client is asking for the resource."""
    QUEUED = "queued"
    """Another owner has the resource; the claim waits in the broker's queue."""
    HELD = "held"
    """The client owns the resource, on the current connection."""
    DETACHED = "detached"
    """The connection broke or another broker decides now; the client is resuming its grant."""
    LOST = "lost"
    """The client owned the resource and lost it. Final."""
    REFUSED = "refused"
    """The claim was refused, or its wait expired. Final."""
    RELEASING = "releasing"
    """The client is giving the resource up."""
    RELEASED = "released"
    """The client has given the resource up. Final."""


TenureState: TypeAlias = ClaimState
"""The name under which `holdfast` first exported ClaimState; kept for applications that import it."""

ENDED = (ClaimState.LOST, ClaimState.REFUSED, ClaimState.RELEASED)
"""The final states."""


@dataclass(frozen=True, slots=True)
class OwnershipEvent:
    """A claim has entered `state`, or something about it has changed.

    `generation` is the one in force, even if it is another owner's; -1 if the broker did not say. `position`
    is the place in the queue, from 1. HELD comes with `fence_offset`, for partitions: no earlier owner writes
    there or later. LOST comes with `reason` and `error`, and with `fence_offset` if the broker knows where
    others have begun to write: no record of this owner is there or later. REFUSED comes with `error`;
    `owner_id` is the other owner's, if there is one. `is_contended`: others wait for the resource.
    `is_resumed`: HELD again, in the same generation.
    """

    resource: OwnedResource
    state: ClaimState
    generation: int = -1
    fence_offset: int | None = None
    position: int = 0
    is_contended: bool = False
    is_resumed: bool = False
    reason: LossReason = LossReason.NONE
    owner_id: str | None = None
    error: Exception | None = None

    def with_standing(self, standing: ResourceStanding) -> OwnershipEvent:
        """The event with what a broker has answered about the resource."""
        return replace(
            self,
            generation=standing.generation,
            fence_offset=standing.fence_offset if standing.fence_offset >= 0 else None,
            position=standing.position,
            is_contended=standing.is_contended,
            reason=LossReason.told(standing.reason),
            owner_id=standing.owner_id,
        )


def split(resource: OwnedResource) -> tuple[str, int]:
    """The name and the partition number of a resource in the protocol."""
    return (resource, NO_PARTITION) if isinstance(resource, str) else (resource.topic, resource.partition)
