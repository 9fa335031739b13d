"""Bugs of brokers that answer for what they lead although another broker may have replaced them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from broker.ownership.answers import Answers
from broker.ownership.guards import ReaderGuard
from broker.ownership.resources import NamedGrant, Requester
from broker.ownership.service import OwnershipService
from broker.ownership.standings import outcome
from broker.replication.conditions import Conditions
from broker.replication.partition import Partition
from broker.replication.right_to_confirm import RightToConfirm
from coordinator.cluster.lease import MembershipLease
from coordinator.controller.yields import Yields
from protocol.messages.ownership import ResourceStanding
from tests.sim.mutation import Mutation, Patch


def _hold_for_ever() -> Sequence[Patch]:
    return [(MembershipLease, "is_held", lambda self: True)]


def at_door(door: type) -> Sequence[Patch]:
    """Have one kind of object confirm without asking for the lease."""
    initialize = door.__init__  # type: ignore[misc]

    def mutant(self: Any, *arguments: Any) -> None:
        initialize(self, *arguments)
        self._may_confirm = lambda: True

    return [(door, "__init__", mutant)]


def _renew_without_lease() -> Sequence[Patch]:
    def mutant(self: OwnershipService, requester: Requester, named: NamedGrant) -> ResourceStanding:
        refusal = self.decided.refusal(named.key)
        if refusal is not None:
            return outcome(named.key, refusal.code, refusal.message)
        return self.table.standing(requester, named)

    return [(OwnershipService, "_standing", mutant)]


def _move_without_yielding() -> Sequence[Patch]:
    return [(Yields, "may_move", lambda self, at, state: True)]


def _judge_without_right() -> Sequence[Patch]:
    def judging(self: Conditions, may_confirm: Callable[[Partition], bool]) -> None:
        initialize(self, lambda partition: True)

    initialize = Conditions.__init__
    return [(Conditions, "__init__", judging), (Conditions, "confirm", lambda self, appends: None)]


MUTATIONS = (
    Mutation(
        "lease-never-ends",
        "a broker that is cut off from ZooKeeper, or has stood still, confirms ownership as before",
        _hold_for_ever,
    ),
    Mutation(
        "renewed-without-lease",
        "a broker without its lease answers a Renew request as the leader",
        _renew_without_lease,
    ),
    Mutation(
        "resumed-without-lease",
        "a broker without its lease answers claims and resumptions as the leader",
        lambda: at_door(Answers),
    ),
    Mutation(
        "read-without-lease",
        "a broker without its lease serves the single reader of a partition",
        lambda: at_door(ReaderGuard),
    ),
)

RARE = (
    Mutation(
        "confirms-before-orders",
        "a broker that has registered again confirms ownership before the controller has said what it leads",
        lambda: [(RightToConfirm, "await_orders", lambda self: None)],
    ),
    Mutation(
        "moved-without-yielding",
        "the controller moves leadership away from a live leader that may not learn of it",
        _move_without_yielding,
    ),
    Mutation(
        "guard-judged-without-right",
        "a broker that another may have replaced judges conditions on partitions that it believes to lead",
        _judge_without_right,
    ),
)
