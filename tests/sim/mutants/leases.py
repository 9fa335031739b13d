"""Bugs of brokers that answer for what they lead although another broker may have replaced them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from twisted.internet.defer import Deferred

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.orders.controller_orders import ControllerOrders
from holdfast_log.broker.ownership.answers import Answers, Standings
from holdfast_log.broker.ownership.guards import ReaderGuard
from holdfast_log.broker.ownership.operations import Operation
from holdfast_log.broker.ownership.resources import NamedGrant, Requester
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.standings import outcome
from holdfast_log.broker.replication.admission import Origin
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.conditions import Conditions
from holdfast_log.broker.replication.outages import ZooKeeperOutages
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.coordinator.cluster.lease import MembershipLease, _write
from holdfast_log.coordinator.controller.yields import Yields
from holdfast_log.coordinator.znodes.brokers import NO_EPOCH
from holdfast_log.coordinator.zookeeper.interface import ZooKeeperSession
from holdfast_log.protocol.errors import BrokerError, OffsetMismatchError
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from holdfast_log.protocol.messages.ownership import ResourceStanding
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


class _EveryRight:
    """Confirms everything (`RightToConfirm`)."""

    def may_confirm_any(self) -> bool:
        return True

    def may_confirm(self, partition: Partition) -> bool:
        return True


def _claim_without_lease() -> Sequence[Patch]:
    submit = OwnershipService.submit

    def mutant(
        self: OwnershipService, connection: ServerConnection | None, operation: Operation, timeout_ms: int
    ) -> Deferred[Standings]:
        right, self._right = self._right, cast(RightToConfirm, _EveryRight())
        try:
            return submit(self, connection, operation, timeout_ms)
        finally:
            self._right = right

    return [
        (OwnershipService, "submit", mutant),
        (OwnershipService, "_confirmed", lambda self, standings, keys: list(standings)),
        *at_door(Answers),
    ]


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


def _say_where_the_log_ended() -> Sequence[Patch]:
    refusal, confirmed = Conditions._refusal, Conditions._is_confirmed

    def refusing(self: Conditions, append: Append, origin: Origin | None, acks: int) -> BrokerError | None:
        may_confirm, self._may_confirm = self._may_confirm, lambda partition: True
        try:
            return refusal(self, append, origin, acks)
        finally:
            self._may_confirm = may_confirm

    def confirming(self: Conditions, append: Append) -> bool:
        return isinstance(append.error, OffsetMismatchError) or confirmed(self, append)

    return [(Conditions, "_refusal", refusing), (Conditions, "_is_confirmed", confirming)]


def _resume_without_orders() -> Sequence[Patch]:
    def mutant(self: ZooKeeperOutages) -> None:
        self._right.orders_came()

    return [(ZooKeeperOutages, "resumed", mutant)]


def _obey_orders_of_an_ended_registration() -> Sequence[Patch]:
    assign = ControllerOrders._assign

    def mutant(self: ControllerOrders, request: LeaderAndIsrRequest) -> Deferred[LeaderAndIsrResponse]:
        request.broker_epoch = max(request.broker_epoch, self._registration.broker_epoch)
        return assign(self, request)

    return [(ControllerOrders, "_assign", mutant)]


def _miss_early_orders() -> Sequence[Patch]:
    ordered = ZooKeeperOutages.ordered

    def mutant(self: ZooKeeperOutages, broker_epoch: int) -> None:
        if self._broker_epoch != NO_EPOCH:
            ordered(self, broker_epoch)

    return [(ZooKeeperOutages, "ordered", mutant)]


def _read_members() -> Sequence[Patch]:
    def mutant(self: MembershipLease, session: ZooKeeperSession) -> None:
        self._reads_prove = True

    return [(MembershipLease, "_learn_kind", mutant)]


def _believe_a_member() -> Sequence[Patch]:
    async def mutant(self: MembershipLease, session: ZooKeeperSession) -> None:
        if self._reads_prove:
            await session.is_alone()
        else:
            await _write(session, self._path)

    return [(MembershipLease, "_prove", mutant)]


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
        _claim_without_lease,
    ),
)

# A reader fetches hardly anything more once brokers no longer confirm its grant.
RARE = (
    Mutation(
        "read-without-lease",
        "a broker without its lease serves the single reader of a partition",
        lambda: at_door(ReaderGuard),
    ),
    Mutation(
        "end-of-replaced-leader",
        "a leader that may have been replaced answers a conditional append with the end of its own log",
        _say_where_the_log_ended,
    ),
    Mutation(
        "writes-before-orders",
        "a broker that has registered again goes on once a broken connection to ZooKeeper is back, before "
        "the controller has said what it leads",
        _resume_without_orders,
    ),
    Mutation(
        "orders-of-ended-registration",
        "a broker takes an order for its earlier registration for one for the present",
        _obey_orders_of_an_ended_registration,
    ),
    Mutation(
        "early-orders-missed",
        "a broker whose orders come before it knows of its registration waits for them for ever",
        _miss_early_orders,
    ),
    Mutation(
        "confirms-before-orders",
        "a broker that has registered again confirms ownership before the controller has said what it leads",
        lambda: [(RightToConfirm, "await_orders", lambda self: None)],
    ),
    Mutation(
        "lease-by-read-of-member",
        "a broker renews its lease by reads although ZooKeeper is an ensemble",
        lambda: [*_read_members(), *_believe_a_member()],
    ),
    Mutation(
        "lease-by-read-of-former-loner",
        "a broker's read renews its lease although the answer says that the server runs alone no longer",
        _believe_a_member,
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
