"""Bugs of exclusive producers (PIP-68), queues, single readers, and conditions on other partitions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast_log.broker.ownership import claims, committers, grants, queueing
from holdfast_log.broker.ownership.claims import Promote
from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.ownership.deadlines import WaiterDeadline
from holdfast_log.broker.ownership.effects import Sever
from holdfast_log.broker.ownership.group_names import GroupNames
from holdfast_log.broker.ownership.operations import RecordsByKey
from holdfast_log.broker.ownership.resources import Entry, Requester, Resource, Waiter
from holdfast_log.broker.ownership.rules import ClaimRefused, Shared, Verdict, judge_access
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.broker.replication import one_fetch, plain_fetch, session_fetch
from holdfast_log.broker.replication.admission import NO_CONNECTION
from holdfast_log.broker.replication.appends import Append
from holdfast_log.broker.replication.conditions import Conditions
from holdfast_log.broker.replication.one_fetch import read_one
from holdfast_log.broker.replication.reads import Read, read_all
from holdfast_log.protocol.messages.ownership import Access, LossReason
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.sim.mutation import Mutation, Patch


def _promote_the_last() -> Sequence[Patch]:
    begin = Promote.begin

    def mutant(self: Promote, state: TableState, now_ms: int) -> RecordsByKey:
        waiters = state.resource(self.keys[0]).waiters
        waiters.reverse()
        try:
            return begin(self, state, now_ms)
        finally:
            waiters.reverse()

    return [(Promote, "begin", mutant)]


def _promote_without_a_raise() -> Sequence[Patch]:
    begin = Promote.begin

    def mutant(self: Promote, state: TableState, now_ms: int) -> RecordsByKey:
        records = begin(self, state, now_ms)
        grant, waiter = self._grant, self._waiter
        if grant is None or waiter is None or grant.generation == 1:
            return records
        self._grant = replace(grant, generation=grant.generation - 1)
        resource = state.resource(self.keys[0])
        return {
            resource.key: resource.record_with_grant(
                waiter.group, self._grant, LossReason.NONE, state.date_ms()
            )
        }

    return [(Promote, "begin", mutant)]


def _share_what_is_owned() -> Sequence[Patch]:
    def mutant(
        resource: Resource, requester: Requester, mode: ProducerAccessMode, epoch: int, **waiting: bool
    ) -> Verdict:
        verdict = judge_access(resource, requester, mode, epoch, **waiting)
        is_refused = isinstance(verdict, ClaimRefused) and mode is ProducerAccessMode.SHARED
        return Shared() if is_refused else verdict

    return [(claims, "judge_access", mutant)]


def _leave_the_sharers() -> Sequence[Patch]:
    return [(queueing, "evict", lambda state, resource, sharer, to: None)]


def _promote_nobody() -> Sequence[Patch]:
    return [(TableState, "offer", lambda self, resource: None)]


def _answer_the_reader_that_was_severed() -> Sequence[Patch]:
    lose = grants.lose

    def lose_gently(
        state: TableState,
        resource: Resource,
        entry: Entry,
        reason: LossReason,
        to: int | None = None,
        **audited: bool,
    ) -> None:
        is_reader = entry.last is not None and entry.last.owner.access == Access.READ
        lose(state, resource, entry, reason, to, **audited)
        if is_reader:
            state.effects = [effect for effect in state.effects if not isinstance(effect, Sever)]

    def read_without_asking_again(
        replicas: Any, wanted: Sequence[Read], max_bytes: int, replica_id: int, **more: bool
    ) -> int:
        for read in wanted:
            read.connection = NO_CONNECTION
        return read_all(replicas, wanted, max_bytes, replica_id, **more)

    def read_one_without_asking_again(replicas: Any, read: Read, max_bytes: int) -> Any:
        read.connection = NO_CONNECTION
        return read_one(replicas, read, max_bytes)

    return [
        (grants, "lose", lose_gently),
        (plain_fetch, "read_all", read_without_asking_again),
        (session_fetch, "read_all", read_without_asking_again),
        (one_fetch, "read_one", read_one_without_asking_again),
    ]


def _look_at_guards_afterwards() -> Sequence[Patch]:
    judge = Conditions.judge

    def mutant(self: Conditions, appends: Sequence[Append], origin: Any, acks: int) -> None:
        judge(self, [append for append in appends if not append.is_guard], origin, acks)
        judge(self, [append for append in appends if append.is_guard], origin, acks)

    return [(Conditions, "judge", mutant)]


def _keep_no_added_partition() -> Sequence[Patch]:
    return [(OwnershipTable, "reserve", lambda self, key, owner, now_ms: None)]


def _let_lost_owners_commit() -> Sequence[Patch]:
    return [(committers, "may_commit", lambda record, group, token: True)]


async def _nothing_read(self: GroupNames, groups: Any) -> dict[str, Any]:
    return {}


def _keep_the_first_wait_timeout() -> Sequence[Patch]:
    def mutant(state: TableState, resource: Resource, waiter: Waiter, until_ms: int, now_ms: int) -> None:
        deadline_ms = queueing.waiter_deadline_ms(waiter, now_ms)
        state.watch(WaiterDeadline(resource.key, waiter), deadline_ms)

    return [(queueing, "wait_until", mutant)]


MUTATIONS = (
    Mutation("last-promoted", "the last waiter in the queue is promoted first", _promote_the_last),
    Mutation(
        "promoted-without-a-raise",
        "a promoted waiter gets the topic epoch of the owner before it",
        _promote_without_a_raise,
    ),
    Mutation(
        "shared-beside-exclusive", "shared access is granted while there is an owner", _share_what_is_owned
    ),
    Mutation(
        "exclusive-beside-shared",
        "producers with shared access keep it when another producer takes exclusive access",
        _leave_the_sharers,
    ),
    Mutation(
        "nobody-promoted",
        "waiters are not promoted when their resource is free, or when the last sharer leaves",
        _promote_nobody,
    ),
    Mutation(
        "guard-after-append",
        "the guards of a request are checked after its batches were appended",
        _look_at_guards_afterwards,
    ),
)

# In random plans owned topics do not grow, and readers commit nothing. A waiter that has lost its place
# claims again, and the judge of the queues begins anew with a leader epoch. Hardly any claim is answered too
# late. That a reader is replaced and records come, both while one of its fetches waits, is as rare.
RARE = (
    Mutation(
        "severed-reader-answered",
        "a waiting fetch is answered although its connection has lost the partition to another reader",
        _answer_the_reader_that_was_severed,
    ),
    Mutation(
        "first-wait-timeout-kept",
        "a waiter that sends its claim again stays in the queue as long as its first claim said",
        _keep_the_first_wait_timeout,
    ),
    Mutation(
        "added-partition-unreserved",
        "a partition that is added to a topic with an owner may be written by any client",
        _keep_no_added_partition,
    ),
    Mutation(
        "names-unloaded",
        "a coordinator forgets who waits for names when it begins a new leader epoch",
        lambda: [(GroupNames, "read_again", _nothing_read)],
    ),
    Mutation(
        "lost-owner-commits",
        "a consumer commits the position of a partition that another owner has been granted",
        _let_lost_owners_commit,
    ),
    Mutation(
        "commit-checked-once",
        "a commit whose check began before the next grant replaces the position that the next owner has read",
        lambda: [(CommitterCheck, "positions_read", lambda self, committing_group: None)],
    ),
)
