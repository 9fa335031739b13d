"""Members of consumer groups as the only readers of their partitions.

The group's coordinator decides who reads (`AssignReaders`); a member attaches the connection on which it
reads (`AttachReader`). A member has no session here: the coordinator decides whether it is alive, and assigns
its partitions to another member if it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_log.broker.ownership import grants, limits, standings
from holdfast_log.broker.ownership.operations import (
    Operation,
    OperationAnswer,
    RecordsByKey,
    is_gone,
    name_group,
)
from holdfast_log.broker.ownership.resources import Entry, Requester, Resource
from holdfast_log.broker.ownership.rules import ClaimRefused, Granted, Repeated
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import (
    Grant,
    Owner,
    PartitionKey,
    ReaderAssignment,
    ResourceKey,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.group_readers import NOBODY
from holdfast_log.protocol.messages.ownership import LossReason, ResourceStanding


@dataclass(frozen=True, slots=True)
class NewReader:
    """A partition, and the member of `group` that reads it from now on.

    `owner` has an assignment. Its id is `NOBODY` where no member reads the partition.
    """

    key: PartitionKey
    group: str
    owner: Owner


class AssignReaders(Operation):
    """Decisions of a group's coordinator. Each partition is named once, and succeeds or fails separately."""

    __slots__ = ("_outcomes", "_readers")

    def __init__(self, readers: Sequence[NewReader]) -> None:
        super().__init__(each.key for each in readers)
        self._readers = readers
        self._outcomes: list[Grant | Repeated | ClaimRefused] = []

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        records: RecordsByKey = {}
        for each in self._readers:
            resource = state.resource(each.key)
            verdict = _judge(state, resource, each)
            if not isinstance(verdict, Granted):
                self._outcomes.append(verdict)
                continue
            claimed = _assignment(each.owner).generation
            date_ms = state.date_ms()
            grant = Grant(verdict.generation, resource.incarnation + 1, each.owner, claimed, date_ms)
            records[each.key] = resource.record_with_grant(each.group, grant, verdict.reason, date_ms)
            self._outcomes.append(grant)
        return records

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        answers = []
        for each, outcome in zip(self._readers, self._outcomes, strict=True):
            resource = state.resource(each.key)
            if isinstance(outcome, ClaimRefused):
                answers.append(standings.refused(resource, each.group, outcome.error))
                continue
            if isinstance(outcome, Grant):
                grants.install(state, resource, each.group, outcome, LossReason.STOLEN, None, now_ms)
            elif each.owner.owner_id == NOBODY:
                _release(state, resource, each.group, now_ms)
            answers.append(standings.outcome(each.key))
        return OperationAnswer(answers)


def _judge(state: TableState, resource: Resource, reader: NewReader) -> Granted | Repeated | ClaimRefused:
    """A decision counts unless a later one is known.

    The next coordinator repeats the decisions of the one before it. A repetition changes nothing: not the
    connection that the member has attached since, and not that an administrator has released the partition.
    """
    limit = limits.resource_limit(state, resource, reader.group, reader.owner)
    if limit is not None:
        return ClaimRefused(limit)
    entry = resource.peek(reader.group)
    last = _last_assigned(entry)
    owner = reader.owner
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


def _release(state: TableState, resource: Resource, group: str, now_ms: int) -> None:
    """Release the partition, because the group has no members left.

    If the leader changes before this is written, a member that has left may still read. That does no harm:
    there is no other member.
    """
    entry = resource.entries.get(group)
    if entry is not None and entry.grant is not None and entry.grant.owner.assignment is not None:
        grants.free(state, resource, entry, LossReason.RELEASED, now_ms)


class AttachReader(Operation):
    """Attach the connection on which a member reads the partitions that were assigned to it.

    Each partition succeeds or fails separately. No partition is taken from another member.
    """

    __slots__ = ("_generation", "_requester")

    def __init__(self, requester: Requester, generation: int, keys: Sequence[ResourceKey]) -> None:
        super().__init__(keys)
        self._requester = requester
        self._generation = generation

    def submitted(self, state: TableState) -> None:
        name_group(state, self._requester)

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        return {}

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        if is_gone(state, self._requester):
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION)
        return OperationAnswer([self._attach(state, key, now_ms) for key in self.keys])

    def _attach(self, state: TableState, key: ResourceKey, now_ms: int) -> ResourceStanding:
        requester = self._requester
        resource = state.resource(key)
        entry = resource.entries.get(requester.group)
        grant = None if entry is None else entry.grant
        last = None if entry is None else _last_assigned(entry)
        generation = -1 if last is None else _assignment(last).generation
        is_own = last is not None and last.owner_id == requester.owner.owner_id
        if entry is not None and grant is not None and grant.owner is last and is_own:
            if self._generation >= generation:
                grants.attach(state, resource, entry, requester.connection, now_ms)
                answer = standings.outcome(key)
                answer.generation = generation
                return answer
        elif last is None or self._generation > generation:
            answer = standings.outcome(
                key,
                ErrorCode.CLAIM_QUEUED,
                f"the coordinator of group {requester.group!r} has not yet assigned a reader of {key} for "
                f"generation {self._generation}: try again",
            )
            answer.generation = generation
            return answer
        assert entry is not None and last is not None
        error = unassigned(key, entry, last)
        answer = standings.outcome(key, error.code, error.message)
        answer.generation = generation
        return answer


def unassigned(key: ResourceKey, entry: Entry, reader: Owner) -> BrokerError:
    """The error for a member that reads another member's partition. `reader` is the member assigned last."""
    generation = _assignment(reader).generation
    who = "nobody" if entry.grant is None else entry.grant.owner.owner_id
    return error_for(
        ErrorCode.OWNERSHIP_FENCED,
        f"{key} is read by {who} for group {entry.group!r}, since generation {generation}, and not by this "
        "member on this connection: stop reading, send the group's coordinator a heartbeat, and attach to "
        "assigned partitions before fetching them",
    )


def _last_assigned(entry: Entry) -> Owner | None:
    """The member to which the partition was assigned last."""
    owners = (grant.owner for grant in reversed(entry.history))
    return next((owner for owner in owners if owner.assignment is not None), None)


def _assignment(owner: Owner) -> ReaderAssignment:
    assert owner.assignment is not None
    return owner.assignment
