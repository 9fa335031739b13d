"""The operations on resources. The table judges an operation when its turn has come, and carries it out once
its records are durable.

The table carries out the operations on one resource one after the other, so what was judged still holds when
it is carried out. Only an owner's connection may have closed in between.

This file has the base class and the operations that end or resume grants; `claims` has those that make grants
for clients, and `readers` those for members of consumer groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast_log.broker.ownership import grants, queueing, standings
from holdfast_log.broker.ownership.effects import Fence
from holdfast_log.broker.ownership.resources import NO_GRANT, Entry, NamedGrant, Requester, Resource
from holdfast_log.broker.ownership.rules import can_resume
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import Forgotten, OwnershipRecord, PartitionKey, ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE, PRODUCERS_GROUP, LossReason, ResourceStanding

RecordsByKey = dict[ResourceKey, OwnershipRecord | Forgotten]


class OperationAnswer(NamedTuple):
    """The answer to a request, and the fences that have to be settled before it is sent."""

    standings: Sequence[ResourceStanding] = ()
    fences: Sequence[Fence] = ()


class Operation:
    """A request about resources, or a task of the table itself.

    The table calls `submitted` at once, and `begin` when it is the operation's turn with all of `keys`. Once
    the records that `begin` has returned are durable, it calls `carry_out`; where they cannot be made
    durable, it calls `not_written` instead, and nothing has changed.
    """

    __slots__ = ("keys",)

    def __init__(self, keys: Iterable[ResourceKey]) -> None:
        self.keys = tuple(keys)

    def submitted(self, state: TableState) -> None:
        """Record that the request was submitted. Does nothing by default."""

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        """Judge the request. Returns the records to write; with none it is carried out at once.

        Raises BrokerError where the request fails as a whole.
        """
        raise NotImplementedError

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        """Put into force what is durable now. Raises BrokerError where the request fails as a whole."""
        raise NotImplementedError

    def not_written(self, state: TableState) -> None:
        """Undo what `begin` has noted. By default there is nothing to undo."""

    def new_names(self, state: TableState) -> int:
        """How many names the broker would have to keep in addition. None by default."""
        return 0

    @property
    def source(self) -> str:
        """Whom its grants would count to (`record_sizes`). Empty by default, for what grants nothing."""
        return ""


def is_gone(state: TableState, requester: Requester) -> bool:
    """Whether the requester's connection has closed."""
    return requester.connection not in state.connections


def name_group(state: TableState, requester: Requester) -> None:
    """Remember that the requester's connection has named the group: its fetches are guarded from now on."""
    holdings = state.connections.get(requester.connection)
    if holdings is not None:
        holdings.name(requester.group)


class Resume(Operation):
    """Resume grants on another connection. Each resource succeeds or fails separately.

    A grant that has ended is written again before it is in force: otherwise the next leader would take the
    resource for free, after its owner was answered that it owns it.
    """

    __slots__ = ("_named", "_requester", "_revived")

    def __init__(self, requester: Requester, named: Sequence[NamedGrant]) -> None:
        super().__init__(each.key for each in named)
        self._requester = requester
        self._named = named
        self._revived: RecordsByKey = {}

    def submitted(self, state: TableState) -> None:
        name_group(state, self._requester)

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        if is_gone(state, self._requester):
            return {}
        for each in self._named:
            entry = self._entry(state, each)
            if entry is not None and entry.grant is None:
                resource = state.resource(each.key)
                owner = self._requester.owner
                self._revived[each.key] = resource.record_with_revival(entry.group, owner)
        return self._revived

    def _entry(self, state: TableState, named: NamedGrant) -> Entry | None:
        """The entry whose latest grant the requester may resume."""
        resource = state.resource(named.key)
        entry = resource.entries.get(self._requester.group)
        grant = None if entry is None else entry.find(named.incarnation)
        if entry is None or grant is None:
            return None
        return entry if can_resume(resource, entry, grant, self._requester) else None

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        requester = self._requester
        if is_gone(state, requester):
            state.unwritten.update(dict.fromkeys(self._revived))
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION)
        answers, fences = [], []
        for each in self._named:
            resource = state.resource(each.key)
            entry = self._entry(state, each)
            if entry is None:
                answers.append(standings.fenced(resource, requester.group, each.incarnation))
                continue
            grants.revive(state, resource, entry, requester.owner, is_written=each.key in self._revived)
            grants.attach(state, resource, entry, requester.connection, now_ms)
            fences += pending_fence(resource, entry)
            answers.append(standings.owned(resource, entry, state.leader_epoch(each.key), state.settings))
        return OperationAnswer(answers, fences)


class ReleaseHeld(Operation):
    """End grants, waiting or shared access, as their owner asks. Each resource succeeds or fails separately.

    The end of a grant is durable before it is answered: otherwise a next leader would restore the grant, and
    would keep the resource from others for a session timeout.
    """

    __slots__ = ("_named", "_requester", "_written")

    def __init__(self, requester: Requester, named: Sequence[NamedGrant]) -> None:
        super().__init__(each.key for each in named)
        self._requester = requester
        self._named = named
        self._written: RecordsByKey = {}

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        for each in self._named:
            entry = self._entry(state, each)
            if entry is not None:
                resource = state.resource(each.key)
                self._written[each.key] = resource.record_with_end(
                    entry.group, LossReason.RELEASED, state.date_ms()
                )
        return self._written

    def _entry(self, state: TableState, named: NamedGrant) -> Entry | None:
        """The entry whose grant in force the requester names, and owns."""
        entry = state.resource(named.key).entries.get(self._requester.group)
        grant = None if entry is None else entry.grant
        if entry is None or grant is None or grant.incarnation != named.incarnation:
            return None
        return entry if self._requester.owns(grant, entry.connection) else None

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        return OperationAnswer([self._release(state, each, now_ms) for each in self._named])

    def _release(self, state: TableState, named: NamedGrant, now_ms: int) -> ResourceStanding:
        requester = self._requester
        resource = state.resource(named.key)
        if named.key in self._written:
            # Its session may have ended meanwhile; its release is what was written.
            entry = resource.entry(requester.group)
            grants.free(state, resource, entry, LossReason.RELEASED, now_ms, is_written=True)
            return standings.released(resource, requester.group)
        if named.incarnation == NO_GRANT and self._leave(state, resource):
            return standings.released(resource, requester.group)
        return standings.fenced(resource, requester.group, named.incarnation)

    def _leave(self, state: TableState, resource: Resource) -> bool:
        """Stop waiting or sharing. Returns False where the requester does neither."""
        requester = self._requester
        if leave_queue(state, resource, requester):
            return True
        sharer = resource.sharers.get(requester.connection)
        if (
            requester.group != PRODUCERS_GROUP
            or sharer is None
            or sharer.owner.owner_id != requester.owner.owner_id
        ):
            return False
        queueing.unshare(state, resource, requester.connection)
        return True


@dataclass(frozen=True, slots=True)
class ForcedResource:
    """A resource to release by force, and the generation to end; -1: any generation."""

    key: ResourceKey
    generation: int


class ForceRelease(Operation):
    """End grants, as an administrator asks. Each resource succeeds or fails separately."""

    __slots__ = ("_forced", "_group")

    def __init__(self, group: str, forced: Sequence[ForcedResource]) -> None:
        super().__init__(each.key for each in forced)
        self._group = group
        self._forced = forced

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        records: RecordsByKey = {}
        for each in self._forced:
            entry = self._entry(state, each)
            if entry is not None and entry.last is not None:
                resource = state.resource(each.key)
                records[each.key] = resource.record_with_end(self._group, LossReason.FORCED, state.date_ms())
        return records

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        answers = []
        for each in self._forced:
            resource = state.resource(each.key)
            entry = self._entry(state, each)
            if entry is None or entry.last is None:
                error = BrokerError(
                    ErrorCode.RESOURCE_NOT_FOUND, f"{each.key} has no owner in this group and generation"
                )
                answers.append(standings.refused(resource, self._group, error))
                continue
            answer = standings.released(resource, self._group)
            answer.owner_id = entry.last.owner.owner_id
            answers.append(answer)
            grants.free(state, resource, entry, LossReason.FORCED, now_ms)
        return OperationAnswer(answers)

    def _entry(self, state: TableState, forced: ForcedResource) -> Entry | None:
        """The entry to release. A grant lost to silence counts too: its owner could still resume it."""
        entry = state.resource(forced.key).entries.get(self._group)
        if entry is None or entry.last is None or not entry.last.may_resume:
            return None
        return entry if forced.generation in (IF_FREE, entry.generation) else None


class FlushUnwritten(Operation):
    """Write changes for which no request waits: owners that have left, and fence offsets."""

    __slots__ = ()

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        return {key: state.resources[key].record() for key in self.keys if key in state.resources}

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        return OperationAnswer()

    def not_written(self, state: TableState) -> None:
        state.unwritten.update(dict.fromkeys(key for key in self.keys if key in state.resources))


def pending_fence(resource: Resource, entry: Entry) -> list[Fence]:
    """The fence of the entry's grant, unless it is settled."""
    grant = entry.last
    if entry.is_complete or grant is None or not isinstance(resource.key, PartitionKey):
        return []
    return [Fence(resource.key, entry.group, grant.incarnation, grant.fence_offset)]


def leave_queue(state: TableState, resource: Resource, requester: Requester) -> bool:
    """Remove the requester's claim from the queue. Returns False where it does not wait."""
    found = resource.waiter(requester.claimant)
    if found is None:
        return False
    queueing.dequeue(state, resource, found[1])
    return True
