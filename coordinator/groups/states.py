"""The states and types of groups, and the table of allowed transitions between states."""

from __future__ import annotations

import enum


class GroupState(enum.Enum):
    """The state of a group; the values are the names that Kafka's tools show.

    EMPTY: no members. The group remains for its offsets, or is new.
    PREPARING_REBALANCE: waiting for every member to join (client rewrite: to register).
    COMPLETING_REBALANCE: every member knows the generation; waiting for the leader's assignment.
    STABLE: every member has, or can fetch, its assignment.
    DEAD: removed; final.

    Groups of the consumer protocol follow from their members and epochs (`ConsumerGroup.state`), and have
    these two in place of those of a rebalance:
    ASSIGNING: the group has changed, and has no target assignment for that yet.
    RECONCILING: members are on their way to the target assignment.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


_E, _P, _C, _S, _D = list(GroupState)[:5]
CAME_FROM: dict[GroupState, frozenset[GroupState]] = {
    _E: frozenset({_P}),  # the last member left, and the join phase ended without members
    _P: frozenset({_E, _C, _S}),  # a member joined, left, died or joined again
    _C: frozenset({_P}),  # the join phase has ended: every member joined, or the rebalance timeout passed
    _S: frozenset({_C}),  # the leader has sent the assignment
    _D: frozenset({_E, _P, _C, _S}),  # deleted, expired, or the partition moved to another broker
}
"""The transition table of classic and managed groups: for each state, the states from which a group may
enter it."""


class GroupType(enum.Enum):
    """The protocol of a group: Kafka's classic one, the client rewrite's, or that of KIP-848."""

    CLASSIC = "classic"
    MANAGED = "managed"
    CONSUMER = "consumer"
