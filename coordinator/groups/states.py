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
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_E, _P, _C, _S, _D = GroupState
CAME_FROM: dict[GroupState, frozenset[GroupState]] = {
    _E: frozenset({_P}),  # the last member left, and the join phase ended without members
    _P: frozenset({_E, _C, _S}),  # a member joined, left, died or joined again
    _C: frozenset({_P}),  # the join phase has ended: every member joined, or the rebalance timeout passed
    _S: frozenset({_C}),  # the leader has sent the assignment
    _D: frozenset({_E, _P, _C, _S}),  # deleted, expired, or the partition moved to another broker
}
"""The transition table: for each state, the states from which a group may enter it."""


class GroupType(enum.Enum):
    """The protocol of a group: Kafka's classic one or the client rewrite's. It never changes."""

    CLASSIC = "classic"
    MANAGED = "managed"
