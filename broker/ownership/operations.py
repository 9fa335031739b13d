"""What is asked of resources, one class each: judged when its turn has come, carried out once it is durable.

Operations on the same resource follow one another (`table` sees to it), so what was judged still holds when
it is carried out, but for this: an owner may have gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from broker.ownership import drafts, standings
from broker.ownership.effects import AnswerClaim, Fail, Fence
from broker.ownership.resources import Entry, Resource
from broker.ownership.rules import (
    can_resume,
)
from broker.ownership.state import TableState
from coordinator.ownership.records import Owner, OwnershipRecord, PartitionKey, ResourceKey
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import (
    IF_FREE,
    PRODUCERS_GROUP,
    LossReason,
    ResourceStanding,
)

NO_TICKET = -1
"""Nobody waits for an answer."""

RecordsByKey = dict[ResourceKey, OwnershipRecord]


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks, in which group, and through which connection."""

    group: str
    owner: Owner
    connection: int


class Operation:
    """`begin` judges, and says what has to be durable before `carry_out`; with nothing to write it is carried
    out at once. Where it cannot be made durable, `fail` is called instead, and everything is as it was."""

    __slots__ = ("keys", "ticket")

    def __init__(self, ticket: int, keys: Sequence[ResourceKey]) -> None:
        self.ticket = ticket
        self.keys = tuple(keys)

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        raise NotImplementedError

    def carry_out(self, state: TableState, now_ms: int) -> None:
        raise NotImplementedError

    def fail(self, state: TableState, error: BrokerError) -> None:
        if self.ticket != NO_TICKET:
            state.effects.append(Fail(self.ticket, error))

    def _answer(
        self, state: TableState, answers: Sequence[ResourceStanding], fences: Sequence[Fence] = ()
    ) -> None:
        state.effects.append(AnswerClaim(self.ticket, tuple(answers), tuple(fences)))


@dataclass(frozen=True, slots=True)
class Held:
    """A resource, and the grant that its owner names; -1 for one that waits or shares."""

    key: ResourceKey
    incarnation: int


class Resume(Operation):
    """Grants to go on with, each by itself. One that is over is durable again before it is in force: the next
    leader would take the resource for free, while its owner has been told that it has it."""

    __slots__ = ("_asker", "_held", "_revived")

    def __init__(self, ticket: int, asker: Asker, held: Sequence[Held]) -> None:
        super().__init__(ticket, [each.key for each in held])
        self._asker = asker
        self._held = held
        self._revived: RecordsByKey = {}

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        if is_gone(state, self._asker):
            return {}
        for each in self._held:
            entry = self._entry(state, each)
            if entry is not None and entry.grant is None:
                self._revived[each.key] = drafts.with_revival(
                    state.resource(each.key), entry.group, self._asker.owner.session_timeout_ms
                )
        return self._revived

    def _entry(self, state: TableState, held: Held) -> Entry | None:
        """The entry whose last grant the asker may go on with."""
        resource = state.resource(held.key)
        entry = resource.entries.get(self._asker.group)
        grant = None if entry is None else entry.find(held.incarnation)
        if entry is None or grant is None:
            return None
        return entry if can_resume(resource, entry, grant, self._asker.owner.owner_id) else None

    def carry_out(self, state: TableState, now_ms: int) -> None:
        if is_gone(state, self._asker):
            state.unwritten.update(dict.fromkeys(self._revived))
            self.fail(state, BrokerError(ErrorCode.NETWORK_EXCEPTION))
            return
        answers, fences = [], []
        for each in self._held:
            resource = state.resource(each.key)
            entry = self._entry(state, each)
            if entry is None:
                answers.append(standings.fenced(resource, self._asker.group, each.incarnation))
                continue
            state.revive(
                resource, entry, self._asker.owner.session_timeout_ms, is_written=each.key in self._revived
            )
            state.attach(resource, entry, self._asker.connection, now_ms)
            fences += pending_fence(resource, entry)
            answers.append(standings.owned(resource, entry, state.leader_epoch(each.key)))
        self._answer(state, answers, fences)


class ReleaseHeld(Operation):
    """Resources to let go of, each by itself: by their owner, a sharer, or one that waits."""

    __slots__ = ("_asker", "_held")

    def __init__(self, ticket: int, asker: Asker, held: Sequence[Held]) -> None:
        super().__init__(ticket, [each.key for each in held])
        self._asker = asker
        self._held = held

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        return {}

    def carry_out(self, state: TableState, now_ms: int) -> None:
        self._answer(state, [self._release(state, each) for each in self._held])

    def _release(self, state: TableState, held: Held) -> ResourceStanding:
        asker = self._asker
        resource = state.resource(held.key)
        entry = resource.entries.get(asker.group)
        grant = None if entry is None else entry.grant
        if (
            entry is not None
            and grant is not None
            and grant.incarnation == held.incarnation
            and grant.owner.owner_id == asker.owner.owner_id
        ):
            state.free(resource, entry, LossReason.RELEASED)
            return standings.let_go(resource, asker.group)
        if held.incarnation == standings.WAITING and self._leave(state, resource):
            return standings.let_go(resource, asker.group)
        return standings.fenced(resource, asker.group, held.incarnation)

    def _leave(self, state: TableState, resource: Resource) -> bool:
        asker = self._asker
        if leave_queue(state, resource, asker.group, asker.owner.owner_id):
            return True
        sharer = resource.sharers.get(asker.connection)
        if asker.group != PRODUCERS_GROUP or sharer is None or sharer.owner.owner_id != asker.owner.owner_id:
            return False
        state.unshare(resource, asker.connection)
        return True


@dataclass(frozen=True, slots=True)
class Forced:
    """A resource to be released by force; `generation` -1: whichever is in force."""

    key: ResourceKey
    generation: int


class ForceRelease(Operation):
    """Resources that an administrator takes from their owners, each by itself."""

    __slots__ = ("_forced", "_group")

    def __init__(self, ticket: int, group: str, forced: Sequence[Forced]) -> None:
        super().__init__(ticket, [each.key for each in forced])
        self._group = group
        self._forced = forced

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        records: RecordsByKey = {}
        for each in self._forced:
            entry = self._entry(state, each)
            if entry is not None and entry.last is not None:
                record = state.resource(each.key).record()
                ended = (*entry.history[:-1], entry.last.ended(LossReason.FORCED, state.date_ms()))
                records[each.key] = replace(record, histories={**record.histories, self._group: ended})
        return records

    def carry_out(self, state: TableState, now_ms: int) -> None:
        answers = []
        for each in self._forced:
            resource = state.resource(each.key)
            entry = self._entry(state, each)
            if entry is None or entry.last is None:
                error = BrokerError(
                    ErrorCode.RESOURCE_NOT_FOUND, f"nobody owns {each.key}, or not in that generation"
                )
                answers.append(standings.refused(resource, self._group, error))
                continue
            answer = standings.let_go(resource, self._group)
            answer.owner_id = entry.last.owner.owner_id
            answers.append(answer)
            state.free(resource, entry, LossReason.FORCED)
        self._answer(state, answers)

    def _entry(self, state: TableState, forced: Forced) -> Entry | None:
        """What is to be released. One that was lost to silence counts: its owner could go on with it."""
        entry = state.resource(forced.key).entries.get(self._group)
        if entry is None or entry.last is None or not entry.last.may_resume:
            return None
        return entry if forced.generation in (IF_FREE, entry.generation) else None


class FlushUnwritten(Operation):
    """Writes down what nobody waits for: that owners are gone, and where their fences were."""

    __slots__ = ()

    def __init__(self, keys: Sequence[ResourceKey]) -> None:
        super().__init__(NO_TICKET, keys)

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        return {key: state.resources[key].record() for key in self.keys if key in state.resources}

    def carry_out(self, state: TableState, now_ms: int) -> None:
        """Nothing changes here."""

    def fail(self, state: TableState, error: BrokerError) -> None:
        state.unwritten.update(dict.fromkeys(key for key in self.keys if key in state.resources))


def is_gone(state: TableState, asker: Asker) -> bool:
    """Whether the connection that asked has closed before its turn came."""
    return asker.connection not in state.connections


def pending_fence(resource: Resource, entry: Entry) -> list[Fence]:
    """The fence of a grant, where not everything before it is committed yet."""
    grant = entry.last
    if entry.is_complete or grant is None or not isinstance(resource.key, PartitionKey):
        return []
    return [Fence(resource.key, entry.group, grant.incarnation, grant.fence_offset)]


def leave_queue(state: TableState, resource: Resource, group: str, owner_id: str) -> bool:
    """Take one out of the queue that has the resource now, or does not want it any more."""
    found = resource.waiter(group, owner_id)
    if found is None:
        return False
    state.dequeue(resource, found[1])
    return True
