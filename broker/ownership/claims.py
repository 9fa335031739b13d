"""Claims by the own API, by producers (PIP-68), and by waiters whose turn has come.

`begin` judges a claim by `rules` and returns the records to write; `carry_out` puts the grants into force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast_log.broker.ownership import grants, limits, queueing, standings
from holdfast_log.broker.ownership.effects import AwaitCommit, Fence
from holdfast_log.broker.ownership.operations import (
    Operation,
    OperationAnswer,
    RecordsByKey,
    is_gone,
    leave_queue,
    name_group,
    pending_fence,
)
from holdfast_log.broker.ownership.record_sizes import source_of
from holdfast_log.broker.ownership.resources import Requester, Resource, Waiter
from holdfast_log.broker.ownership.rules import (
    ClaimRefused,
    Granted,
    Queued,
    Repeated,
    Shared,
    Verdict,
    judge_access,
    judge_claim,
    may_promote,
)
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import (
    NEVER_MS,
    Grant,
    NameKey,
    Owner,
    PartitionKey,
    ResourceKey,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import IF_FREE, Access, LossReason, ResourceStanding
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode


@dataclass(frozen=True, slots=True)
class WantedResource:
    """A resource, and the generation that its claim names."""

    key: ResourceKey
    generation: int


def wait_until_ms(now_ms: int, wait_timeout_ms: int) -> int | None:
    """Until when a claim may stand in the queue: None if not at all, `NEVER_MS` if its wait has no end."""
    if wait_timeout_ms == 0:
        return None
    return now_ms + wait_timeout_ms if wait_timeout_ms > 0 else NEVER_MS


class Claim(Operation):
    """A claim of the own API: all of the wanted resources are granted, or none.

    A claim of one resource with generation -1 may wait in the queue until `wait_until_ms`; it has waited for
    `waited_ms` at a broker that led before.
    """

    __slots__ = (
        "_grants", "_requester", "_verdicts", "_wait_until_ms", "_waited_ms", "_wanted", "_written"
    )  # fmt: skip

    def __init__(
        self,
        requester: Requester,
        wanted: Sequence[WantedResource],
        wait_until_ms: int | None = None,
        waited_ms: int = 0,
    ) -> None:
        super().__init__(each.key for each in wanted)
        self._requester = requester
        self._wanted = wanted
        self._wait_until_ms = wait_until_ms
        self._waited_ms = max(0, waited_ms)
        self._verdicts: list[tuple[WantedResource, Verdict]] = []
        self._grants: dict[ResourceKey, Grant] = {}
        self._written: RecordsByKey = {}

    def submitted(self, state: TableState) -> None:
        name_group(state, self._requester)

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        if is_gone(state, self._requester):
            # No owner is evicted for a claimant that has left meanwhile.
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION)
        self._verdicts = [(each, self._verdict(state, each)) for each in self._wanted]
        if not self._is_turned_away:
            for each, verdict in self._verdicts:
                self._draft(state, each, verdict)
        return self._written

    def new_names(self, state: TableState) -> int:
        return sum(isinstance(key, NameKey) and key not in state.resources for key in self.keys)

    @property
    def source(self) -> str:
        return source_of(self._requester.owner)

    @property
    def _is_turned_away(self) -> bool:
        return any(isinstance(verdict, ClaimRefused | Queued) for _, verdict in self._verdicts)

    def _verdict(self, state: TableState, wanted: WantedResource) -> Verdict:
        resource, requester = state.resource(wanted.key), self._requester
        limit = limits.resource_limit(state, resource, requester.group, requester.owner)
        limit = limit or limits.connection_limit(state, requester.connection, wanted.key)
        return self._judge(resource, wanted) if limit is None else ClaimRefused(limit)

    def _judge(self, resource: Resource, wanted: WantedResource) -> Verdict:
        requester = self._requester
        may_wait = self._wait_until_ms is not None
        return judge_claim(resource, requester, wanted.generation, may_wait=may_wait)

    def _draft(self, state: TableState, wanted: WantedResource, verdict: Verdict) -> None:
        """Draft the record that must be durable before `verdict` is carried out."""
        key, group, owner = wanted.key, self._requester.group, self._requester.owner
        resource = state.resource(key)
        match verdict:
            case Repeated() if resource.peek(group).grant is None:
                self._written[key] = resource.record_with_revival(group, owner)
            case Shared() if resource.absent_writer is not None:
                self._written[key] = resource.record_with_sharers()
            case Granted(generation, reason):
                date_ms = state.date_ms()
                grant = new_grant(resource, owner, generation, wanted.generation, date_ms)
                self._grants[key] = grant
                self._written[key] = resource.record_with_grant(group, grant, reason, date_ms)
                state.weigh(key, group, grant)

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        if self._is_turned_away:
            return OperationAnswer(self._turn_away(state, self._verdicts, now_ms))
        answers: list[ResourceStanding] = []
        fences: list[Fence] = []
        for each, verdict in self._verdicts:
            resource = state.resource(each.key)
            if isinstance(verdict, Shared):
                answers.append(self._share(state, resource, now_ms))
            else:
                answers.append(self._grant(state, resource, verdict, fences, now_ms))
        return OperationAnswer(answers, fences)

    def _share(self, state: TableState, resource: Resource, now_ms: int) -> ResourceStanding:
        requester = self._requester
        is_written = resource.key in self._written
        queueing.share(state, resource, requester.owner, requester.connection, now_ms, is_written=is_written)
        return standings.shared(resource, state.leader_epoch(resource.key))

    def _grant(
        self, state: TableState, resource: Resource, verdict: Verdict, fences: list[Fence], now_ms: int
    ) -> ResourceStanding:
        requester, key = self._requester, resource.key
        entry = resource.entry(requester.group)
        if isinstance(verdict, Granted):
            grant = self._grants[key]
            fence = grants.install(
                state, resource, requester.group, grant, verdict.reason, requester.connection, now_ms
            )
            if fence is not None:
                fences.append(fence)
                state.effects.append(AwaitCommit(fence))
        else:
            assert isinstance(verdict, Repeated)
            grants.revive(state, resource, entry, requester.owner, is_written=key in self._written)
            grants.attach(state, resource, entry, requester.connection, now_ms)
            fences += pending_fence(resource, entry)
        leave_queue(state, resource, requester)
        return standings.owned(resource, entry, state.leader_epoch(key), state.settings)

    def _turn_away(
        self, state: TableState, verdicts: Sequence[tuple[WantedResource, Verdict]], now_ms: int
    ) -> list[ResourceStanding]:
        """Grant nothing: refuse the claim, or put it into the queue."""
        group = self._requester.group
        answers = []
        for each, verdict in verdicts:
            resource = state.resource(each.key)
            match verdict:
                case ClaimRefused(error, lost):
                    state.count_refusal(resource, group)
                    state.mark_contended(resource, group)
                    answers.append(standings.refused(resource, group, error, lost))
                case Queued():
                    answers.append(self._queue(state, resource, now_ms))
                case _:
                    answers.append(standings.not_attempted(resource, group))
        return answers

    def _queue(self, state: TableState, resource: Resource, now_ms: int) -> ResourceStanding:
        assert self._wait_until_ms is not None
        requester = self._requester
        found = resource.waiter(requester.claimant)
        if found is not None:
            position, waiter = found
            if waiter.connection == requester.connection:
                queueing.wait_until(state, resource, waiter, self._wait_until_ms, now_ms)
                return standings.queued(resource, requester.group, position)
            # The owner claims again on a new connection: its claim on the old one loses its place.
            queueing.dequeue(state, resource, waiter)
        limit = limits.queue_limit(state, resource)
        if limit is not None:
            state.count_refusal(resource, requester.group)
            return standings.refused(resource, requester.group, limit)
        since_ms = now_ms - self._waited_ms
        waiter = Waiter(requester.group, requester.owner, requester.connection, self._wait_until_ms, since_ms)
        position = queueing.enqueue(state, resource, waiter, now_ms)
        state.mark_contended(resource, requester.group)
        return standings.queued(resource, requester.group, position)


class AccessClaim(Claim):
    """A producer's claim of access to one partition (PIP-68). The topic epoch is the generation."""

    __slots__ = ("_mode",)

    def __init__(
        self,
        requester: Requester,
        key: PartitionKey,
        mode: ProducerAccessMode,
        epoch: int,
        wait_until_ms: int | None = None,
        waited_ms: int = 0,
    ) -> None:
        super().__init__(requester, [WantedResource(key, epoch)], wait_until_ms, waited_ms)
        self._mode = mode

    def _judge(self, resource: Resource, wanted: WantedResource) -> Verdict:
        requester, mode, epoch = self._requester, self._mode, wanted.generation
        may_wait = mode is ProducerAccessMode.WAIT_FOR_EXCLUSIVE and self._wait_until_ms is not None
        return judge_access(resource, requester, mode, epoch, may_wait=may_wait)


class Promote(Operation):
    """Grant a free resource to the first waiter that can have it."""

    __slots__ = ("_grant", "_waiter")

    def __init__(self, key: ResourceKey) -> None:
        super().__init__([key])
        self._waiter: Waiter | None = None
        self._grant: Grant | None = None

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        (key,) = self.keys
        resource = state.resource(key)
        for waiter in list(resource.waiters):
            if limits.resource_limit(state, resource, waiter.group, waiter.owner) is not None:
                queueing.dequeue(state, resource, waiter)
            elif may_promote(resource, waiter.group, waiter.owner, waiter.connection):
                generation = resource.peek(waiter.group).generation + 1
                date_ms = state.date_ms()
                self._waiter = waiter
                self._grant = new_grant(resource, waiter.owner, generation, IF_FREE, date_ms)
                return {key: resource.record_with_grant(waiter.group, self._grant, LossReason.NONE, date_ms)}
        return {}

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        waiter, grant = self._waiter, self._grant
        if waiter is None or grant is None:
            return OperationAnswer()
        resource = state.resource(self.keys[0])
        fence = grants.install(
            state, resource, waiter.group, grant, LossReason.STOLEN, waiter.connection, now_ms
        )
        state.effects += [] if fence is None else [AwaitCommit(fence)]
        if waiter in resource.waiters:
            queueing.dequeue(state, resource, waiter)
        else:
            state.offer(resource)
        return OperationAnswer()

    def not_written(self, state: TableState) -> None:
        """The waiters keep waiting, and the table tries again."""
        state.offer(state.resource(self.keys[0]))


def new_grant(resource: Resource, owner: Owner, generation: int, claimed: int, date_ms: int) -> Grant:
    """The next grant of a resource, to a claim that named the generation `claimed`."""
    if not isinstance(resource.key, PartitionKey):
        owner = replace(owner, access=Access.NONE)
    return Grant(generation, resource.incarnation + 1, owner, claimed, date_ms)
