"""The states and types of groups, and the table of allowed transitions between states."""

from __future__ import annotations

import enum


class GroupState(enum.Enum):
    """Where a group stands; the values are the names that Kafka's tools show.

    EMPTY: no members. It lives on for the sake of its offsets, or as a new group before its first member.
    PREPARING_REBALANCE: waiting for every member to join (client rewrite: to register).
    COMPLETING_REBALANCE: every member knows the generation; waiting for the leader's assignment.
    STABLE: every member has, or can fetch, its assignment.
    DEAD: removed. Nothing leads out of it.
    """

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_E, _P, _C, _S, _D = GroupState
CAME_FROM: dict[GroupState, frozenset[GroupState]] = {
    _E: frozenset({_P}),  # the last member left, and the round that followed found nobody
    _P: frozenset({_E, _C, _S}),  # a member came, left, died or joined anew
    _C: frozenset({_P}),  # the round is over: everybody joined, or the time was up
    _S: frozenset({_C}),  # the leader has sent the assignment
    _D: frozenset({_E, _P, _C, _S}),  # deleted, expired, or the partition went to another broker
}
"""The one table of transitions: each state, and the states from which a group may enter it."""


class GroupType(enum.Enum):
    """By which door a group came in; it is of one type as long as it exists."""

    CLASSIC = "classic"
    MANAGED = "managed"
