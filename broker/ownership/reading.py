"""Members of consumer groups as the only readers of their partitions.

The group's coordinator says who reads (`AssignReaders`), a member on which connection it does
(`AttachReader`). A member has no session here: whether it lives is for the coordinator to say, who gives its
partitions to another if it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker.ownership import bounds, drafts, standings
from broker.ownership.operations import Asker, Operation, RecordsByKey, is_gone
from broker.ownership.resources import Entry, Resource
from broker.ownership.rules import ClaimRefused, Granted, Repeated
from broker.ownership.state import TableState
from coordinator.ownership.records import Grant, Owner, PartitionKey, ReaderAssignment, ResourceKey
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.group_readers import NOBODY
from protocol.messages.ownership import LossReason, ResourceStanding


@dataclass(frozen=True, slots=True)
class Assigned:
    """A partition, and the member of `group` that reads it: one with an assignment. Its id is `NOBODY` where
    no member does."""

    key: PartitionKey
    group: str
    owner: Owner


class AssignReaders(Operation):
    """What a coordinator has decided, each partition by itself. Each is named once."""

    __slots__ = ("_assigned", "_outcomes")

    def __init__(self, ticket: int, assigned: Sequence[Assigned]) -> None:
        super().__init__(ticket, [each.key for each in assigned])
        self._assigned = assigned
        self._outcomes: list[Grant | Repeated | ClaimRefused] = []

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        records: RecordsByKey = {}
        for each in self._assigned:
            resource = state.resource(each.key)
            verdict = _judge(state, resource, each)
            if not isinstance(verdict, Granted):
                self._outcomes.append(verdict)
                continue
            named = _assignment(each.owner).generation
            grant = Grant(verdict.generation, resource.incarnation + 1, each.owner, named, state.date_ms())
            records[each.key] = drafts.with_grant(
                resource, each.group, grant, verdict.reason, state.date_ms()
            )
            self._outcomes.append(grant)
        return records

    def carry_out(self, state: TableState, now_ms: int) -> None:
        answers = []
        for each, outcome in zip(self._assigned, self._outcomes, strict=True):
            resource = state.resource(each.key)
            if isinstance(outcome, ClaimRefused):
                answers.append(standings.refused(resource, each.group, outcome.error))
                continue
            if isinstance(outcome, Grant):
                state.install(resource, each.group, outcome, LossReason.STOLEN, None, now_ms)
            elif each.owner.owner_id == NOBODY:
                _release(state, resource, each.group)
            answers.append(standings.blank(each.key))
        self._answer(state, answers)


def _judge(state: TableState, resource: Resource, assigned: Assigned) -> Granted | Repeated | ClaimRefused:
    """A decision counts unless a later one is known. That the next coordinator repeats what the one before
    has decided changes nothing: neither if the member has attached itself since, nor if an administrator has
    taken the partition from it."""
    room = bounds.room_for(resource, assigned.group, state.names, state.settings)
    if room is not None:
        return ClaimRefused(room)
    entry = resource.peek(assigned.group)
    last = _last_assigned(entry)
    owner = assigned.owner
    if last is not None:
        known, wanted = _assignment(last), _assignment(owner)
        if last.owner_id == owner.owner_id and known.generation == wanted.generation and known <= wanted:
            return Repeated()
        if wanted <= known:
            return ClaimRefused(
                error_for(
                    ErrorCode.STALE_GENERATION,
                    f"{resource.key} was assigned to {last.owner_id or 'nobody'} later, in generation "
                    f"{known.generation} of the group",
                )
            )
    if owner.owner_id == NOBODY:
        return Repeated()
    return Granted(max(_assignment(owner).generation, entry.generation + 1))


def _release(state: TableState, resource: Resource, group: str) -> None:
    """No member is left. What is not written of that before the leader changes does no harm: a member that is
    gone may then read on, and there is nobody else."""
    entry = resource.entries.get(group)
    if entry is not None and entry.grant is not None and entry.grant.owner.assignment is not None:
        state.free(resource, entry, LossReason.RELEASED)


class AttachReader(Operation):
    """A member comes to read partitions that were assigned to it, each by itself. It takes nothing from
    others by that."""

    __slots__ = ("_asker", "_generation")

    def __init__(self, ticket: int, asker: Asker, generation: int, keys: Sequence[ResourceKey]) -> None:
        super().__init__(ticket, keys)
        self._asker = asker
        self._generation = generation

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        return {}

    def carry_out(self, state: TableState, now_ms: int) -> None:
        if is_gone(state, self._asker):
            self.fail(state, BrokerError(ErrorCode.NETWORK_EXCEPTION))
            return
        self._answer(state, [self._attach(state, key, now_ms) for key in self.keys])

    def _attach(self, state: TableState, key: ResourceKey, now_ms: int) -> ResourceStanding:
        asker = self._asker
        resource = state.resource(key)
        entry = resource.entries.get(asker.group)
        grant = None if entry is None else entry.grant
        last = None if entry is None else _last_assigned(entry)
        generation = -1 if last is None else _assignment(last).generation
        is_own = last is not None and last.owner_id == asker.owner.owner_id
        if entry is not None and grant is not None and grant.owner is last and is_own:
            if self._generation >= generation:
                state.attach(resource, entry, asker.connection, now_ms)
                answer = standings.blank(key)
                answer.generation = generation
                return answer
        elif last is None or self._generation > generation:
            answer = standings.blank(
                key,
                ErrorCode.CLAIM_QUEUED,
                f"the coordinator of group {asker.group!r} has not yet told who reads {key} in generation "
                f"{self._generation}: ask again",
            )
            answer.generation = generation
            return answer
        assert entry is not None and last is not None
        error = unassigned(key, entry, last)
        answer = standings.blank(key, error.code, error.message)
        answer.generation = generation
        return answer


def unassigned(key: ResourceKey, entry: Entry, reader: Owner) -> BrokerError:
    """What a member is told that reads what is not its own (any more). `reader` was given it last."""
    generation = _assignment(reader).generation
    who = "nobody" if entry.grant is None else entry.grant.owner.owner_id
    return error_for(
        ErrorCode.OWNERSHIP_FENCED,
        f"{key} is read by {who} for group {entry.group!r}, since generation {generation}, and not by this "
        "member on this connection: stop, and ask the group's coordinator by a heartbeat. Whoever has the "
        "partition attaches itself before it fetches",
    )


def _last_assigned(entry: Entry) -> Owner | None:
    """The member that was given the partition last."""
    owners = (grant.owner for grant in reversed(entry.history))
    return next((owner for owner in owners if owner.assignment is not None), None)


def _assignment(owner: Owner) -> ReaderAssignment:
    assert owner.assignment is not None
    return owner.assignment
