"""What happens to an owner, or to one that wants to be."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TypeAlias

from protocol.messages.ownership import NO_PARTITION, LossReason, ResourceStanding
from protocol.topic_partition import TopicPartition

OwnedResource: TypeAlias = TopicPartition | str
"""A partition of a topic, or a name of the application's own."""


class ClaimState(enum.Enum):
    """Where a claim stands."""

    CLAIMING = "claiming"
    """It is being asked for."""
    QUEUED = "queued"
    """Somebody has it; it is waited for."""
    HELD = "held"
    """It is owned, on the connection that there is."""
    DETACHED = "detached"
    """It was owned when its connection broke or its broker changed; it is being resumed."""
    LOST = "lost"
    """It was owned, and is not any more. For good."""
    REFUSED = "refused"
    """It could not be had. For good."""
    RELEASING = "releasing"
    """It is being let go of."""
    RELEASED = "released"
    """It was let go of."""


TenureState: TypeAlias = ClaimState
"""The name under which `holdfast` first exported ClaimState; kept for applications that import it."""

ENDED = (ClaimState.LOST, ClaimState.REFUSED, ClaimState.RELEASED)
"""States that nothing comes after."""


@dataclass(frozen=True, slots=True)
class OwnershipEvent:
    """A resource has come to be in `state`, or something of it has changed.

    `generation` is the one in force according to the broker (-1: unknown), also where that is
    another's; `position` counts from 1 in the queue. With LOST come `reason` and `error`, with REFUSED
    `error`; `owner_id` names the other, where there is one. `is_contended` tells an owner that others want
    what it has. `is_resumed`: HELD again, with the generation that it was.
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
        """The same, with what a broker has told of the resource."""
        return replace(
            self,
            generation=standing.generation,
            fence_offset=standing.fence_offset if standing.fence_offset >= 0 else None,
            position=standing.position,
            is_contended=standing.is_contended,
            reason=LossReason(standing.reason),
            owner_id=standing.owner_id,
        )


def split(resource: OwnedResource) -> tuple[str, int]:
    """The name and the partition by which the protocol knows a resource."""
    return (resource, NO_PARTITION) if isinstance(resource, str) else (resource.topic, resource.partition)
