"""How a member of a consumer group gets from the partitions that it has to those of its target (KIP-848).

Every change of a group raises its epoch, and a new target assignment says which partitions each member is to
have in that epoch. Each member moves there by itself, with its heartbeats: it first gives up what the target
lacks, then enters the epoch, and gets what other members have given up. A partition has one holder at most: a
member holds what it may read, and what it has been told to give up until it says that it has.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias
from uuid import UUID


class IdPartition(NamedTuple):
    """A partition of a topic named by its id: one that is deleted and created again is another topic."""

    topic_id: UUID
    partition: int


Partitions: TypeAlias = frozenset[IdPartition]
NO_PARTITIONS: Partitions = frozenset()


class MemberState(enum.Enum):
    """The state of a member.

    STABLE: it has its target, or a new target has been made that it has not been told yet.
    UNREVOKED: it has to give up partitions, and has not said that it has.
    UNRELEASED: it has given up what it had to; partitions of its target are still held by others.
    AWAY: a static member that has left and will come back. It holds its partitions.
    GONE: removed; final.
    """

    STABLE = "stable"
    UNREVOKED = "unrevoked partitions"
    UNRELEASED = "unreleased partitions"
    AWAY = "away"
    GONE = "gone"


class MemberEvent(enum.Enum):
    """What happens to a member. The first three are heartbeats."""

    MUST_REVOKE = "its target lacks partitions that it has, and it has not given them up"
    MUST_WAIT = "its target has partitions that others hold"
    COMPLETE = "it can have its target"
    GOES_AWAY = "it is static and leaves with epoch -2"
    COMES_BACK = "its static instance joins again"
    ENDS = "it leaves, its session expires, or it does not give up its partitions in time"


_S, _V, _L, _A, _G = MemberState
_HEARTBEATS = {
    MemberEvent.MUST_REVOKE: _V,
    MemberEvent.MUST_WAIT: _L,
    MemberEvent.COMPLETE: _S,
    MemberEvent.GOES_AWAY: _A,
    MemberEvent.COMES_BACK: _S,
    MemberEvent.ENDS: _G,
}
NEXT: Mapping[MemberState, Mapping[MemberEvent, MemberState]] = {
    _S: _HEARTBEATS,
    _V: _HEARTBEATS,
    _L: _HEARTBEATS,
    _A: {MemberEvent.COMES_BACK: _S, MemberEvent.ENDS: _G},
    _G: {},
}
"""The transition table: for each state, the events that are possible in it, and the state that follows. A new
member begins as STABLE, in epoch 0 and without partitions."""


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has.

    `epoch` is the member's: the group's epoch whose target it is in. `previous_epoch` is the one before, with
    which a member may still come whose last answer was lost.
    """

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS

    @property
    def held(self) -> Partitions:
        """The partitions that nobody else may have."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    def after(self, event: MemberEvent, **changes: object) -> CurrentAssignment:
        """The assignment after an event. Raises KeyError if the event is not possible in this state."""
        return replace(self, state=NEXT[self.state][event], **changes)  # type: ignore[arg-type]


def reconciled(
    current: CurrentAssignment,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    is_free: Callable[[IdPartition], bool],
) -> CurrentAssignment:
    """What a member has after a heartbeat.

    `owned` is what it says that it has, None if it does not say. `is_free` tells whether no other member
    holds a partition. Returns `current` itself if nothing changes.
    """
    if current.state is MemberState.STABLE and current.epoch == target_epoch:
        return current
    is_revoking = owned is None or not owned.isdisjoint(current.revoking)
    if current.state is MemberState.UNREVOKED and is_revoking:
        return current
    kept = current.assigned & target
    lost = current.assigned - target
    if lost and (owned is None or not owned.isdisjoint(lost)):
        return current.after(MemberEvent.MUST_REVOKE, assigned=kept, revoking=lost)
    wanted = target - kept
    given = frozenset(partition for partition in wanted if is_free(partition))
    after = current.after(
        MemberEvent.COMPLETE if len(given) == len(wanted) else MemberEvent.MUST_WAIT,
        epoch=target_epoch,
        previous_epoch=current.previous_epoch if current.epoch == target_epoch else current.epoch,
        assigned=kept | given,
        revoking=NO_PARTITIONS,
    )
    return current if after == current else after
