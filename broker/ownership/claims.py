"""Claims: what owners ask for, and what those who wait are given when their turn has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from broker.ownership import bounds, drafts, standings
from broker.ownership.effects import AwaitCommit, Fence
from broker.ownership.operations import (
    NO_TICKET,
    Asker,
    Operation,
    RecordsByKey,
    is_gone,
    leave_queue,
    pending_fence,
)
from broker.ownership.resources import Resource, Waiter
from broker.ownership.rules import ClaimRefused, Granted, Queued, Repeated, Shared, Verdict, may_promote
from broker.ownership.state import TableState
from coordinator.ownership.records import Grant, Owner, PartitionKey, ResourceKey
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import IF_FREE, Access, LossReason, ResourceStanding


@dataclass(frozen=True, slots=True)
class Wanted:
    """A resource, and the generation that its claim names."""

    key: ResourceKey
    generation: int


class Claim(Operation):
    """Resources for an owner: all or none. `judge` is the rule that it comes under."""

    __slots__ = ("_asker", "_grants", "_is_refused", "_judge", "_wait_until_ms", "_wanted", "_written")

    def __init__(
        self,
        ticket: int,
        asker: Asker,
        wanted: Sequence[Wanted],
        judge: Callable[[Resource, Wanted], Verdict],
        wait_until_ms: int,
    ) -> None:
        super().__init__(ticket, [each.key for each in wanted])
        self._asker = asker
        self._wanted = wanted
        self._judge = judge
        self._wait_until_ms = wait_until_ms
        self._grants: list[tuple[Wanted, Verdict, Grant | None]] = []
        self._is_refused = False
        self._written: RecordsByKey = {}

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        if is_gone(state, self._asker):
            # Nobody is evicted for one that has left meanwhile.
            self._is_refused = True
            self.fail(state, BrokerError(ErrorCode.NETWORK_EXCEPTION))
            return {}
        verdicts = [(each, self._verdict(state, each)) for each in self._wanted]
        if any(isinstance(verdict, ClaimRefused | Queued) for _, verdict in verdicts):
            self._is_refused = True
            self._turn_away(state, verdicts, now_ms)
            return {}
        records: RecordsByKey = {}
        group = self._asker.group
        for each, verdict in verdicts:
            grant = None
            resource = state.resource(each.key)
            if isinstance(verdict, Repeated) and resource.peek(group).grant is None:
                timeout_ms = self._asker.owner.session_timeout_ms
                records[each.key] = drafts.with_revival(resource, group, timeout_ms)
            if isinstance(verdict, Shared) and resource.has_absent_writer:
                records[each.key] = drafts.with_sharers(resource)
            if isinstance(verdict, Granted):
                grant = new_grant(
                    resource, self._asker.owner, verdict.generation, each.generation, state.date_ms()
                )
                records[each.key] = drafts.with_grant(resource, group, grant, verdict.reason, state.date_ms())
            self._grants.append((each, verdict, grant))
        self._written = records
        return records

    def _verdict(self, state: TableState, wanted: Wanted) -> Verdict:
        resource = state.resource(wanted.key)
        refusal = bounds.room_for(resource, self._asker.group, state.names, state.settings)
        refusal = refusal or bounds.room_on(state.connections.get(self._asker.connection), wanted.key)
        return self._judge(resource, wanted) if refusal is None else ClaimRefused(refusal)

    def _turn_away(self, state: TableState, verdicts: Sequence[tuple[Wanted, Verdict]], now_ms: int) -> None:
        group = self._asker.group
        answers = []
        for each, verdict in verdicts:
            resource = state.resource(each.key)
            match verdict:
                case ClaimRefused(error, reason):
                    state.refuse(resource, group)
                    state.contend(resource, group)
                    answers.append(standings.refused(resource, group, error, reason))
                case Queued():
                    answers.append(self._queue(state, resource, now_ms))
                case _:
                    answers.append(standings.not_attempted(resource, group))
        self._answer(state, answers)

    def _queue(self, state: TableState, resource: Resource, now_ms: int) -> ResourceStanding:
        asker = self._asker
        found = resource.waiter(asker.group, asker.owner.owner_id)
        if found is not None:
            position, waiter = found
            if waiter.connection == asker.connection:
                return standings.queued(resource, asker.group, position)
            # It waits on a connection that it has given up, and loses its place with it.
            state.dequeue(resource, waiter)
        if len(resource.waiters) >= state.settings.waiters_max:
            state.refuse(resource, asker.group)
            error = BrokerError(
                ErrorCode.RESOURCE_OWNED, f"own.waiters.max={state.settings.waiters_max} wait already"
            )
            return standings.refused(resource, asker.group, error)
        waiter = Waiter(asker.group, asker.owner, asker.connection, self._wait_until_ms)
        position = state.enqueue(resource, waiter, now_ms)
        state.contend(resource, asker.group)
        return standings.queued(resource, asker.group, position)

    def carry_out(self, state: TableState, now_ms: int) -> None:
        if self._is_refused:
            return
        asker = self._asker
        answers: list[ResourceStanding] = []
        fences: list[Fence] = []
        for each, verdict, grant in self._grants:
            resource = state.resource(each.key)
            if isinstance(verdict, Shared):
                is_written = each.key in self._written
                state.share(resource, asker.owner, asker.connection, now_ms, is_written=is_written)
                answers.append(standings.shared(resource, state.leader_epoch(each.key)))
                continue
            entry = resource.entry(asker.group)
            if isinstance(verdict, Granted):
                assert grant is not None
                fence = state.install(resource, asker.group, grant, verdict.reason, asker.connection, now_ms)
                fences += [] if fence is None else [fence]
                state.effects += [] if fence is None else [AwaitCommit(fence)]
            else:
                assert isinstance(verdict, Repeated)
                timeout_ms = asker.owner.session_timeout_ms
                state.revive(resource, entry, timeout_ms, is_written=each.key in self._written)
                state.attach(resource, entry, asker.connection, now_ms)
                fences += pending_fence(resource, entry)
            leave_queue(state, resource, asker.group, asker.owner.owner_id)
            answers.append(standings.owned(resource, entry, state.leader_epoch(each.key)))
        self._answer(state, answers, fences)


class Promote(Operation):
    """A resource that is free, for the first in its queue who can have it."""

    __slots__ = ("_grant", "_waiter")

    def __init__(self, key: ResourceKey) -> None:
        super().__init__(NO_TICKET, [key])
        self._waiter: Waiter | None = None
        self._grant: Grant | None = None

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        (key,) = self.keys
        resource = state.resource(key)
        for waiter in list(resource.waiters):
            if bounds.room_for(resource, waiter.group, state.names, state.settings) is not None:
                state.dequeue(resource, waiter)
            elif may_promote(resource, waiter.group, waiter.owner, waiter.connection):
                generation = resource.peek(waiter.group).generation + 1
                self._waiter = waiter
                self._grant = new_grant(resource, waiter.owner, generation, IF_FREE, state.date_ms())
                return {
                    key: drafts.with_grant(
                        resource, waiter.group, self._grant, LossReason.NONE, state.date_ms()
                    )
                }
        return {}

    def carry_out(self, state: TableState, now_ms: int) -> None:
        waiter, grant = self._waiter, self._grant
        if waiter is None or grant is None:
            return
        resource = state.resource(self.keys[0])
        fence = state.install(resource, waiter.group, grant, LossReason.STOLEN, waiter.connection, now_ms)
        state.effects += [] if fence is None else [AwaitCommit(fence)]
        if waiter in resource.waiters:
            state.dequeue(resource, waiter)
        else:
            state.offer(resource)

    def fail(self, state: TableState, error: BrokerError) -> None:
        """Those who wait go on waiting: `table` tries again."""
        state.offer(state.resource(self.keys[0]))


def new_grant(resource: Resource, owner: Owner, generation: int, named: int, date_ms: int) -> Grant:
    """The next grant of a resource."""
    if not isinstance(resource.key, PartitionKey):
        owner = replace(owner, access=Access.NONE)
    return Grant(generation, resource.incarnation + 1, owner, named, date_ms)
