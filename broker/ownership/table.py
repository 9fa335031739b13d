"""The ownership table: a machine without network, clock or disk (own API, PIP-68).

Something happens (a request, a connection that closes, a write that is durable, time that passes), and
`take_effects` gives what is to be done for it. What is asked of a resource waits for what was asked of it
before, so that concurrent claims follow one another, each seeing what the one before has made durable.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence

from broker.ownership import standings
from broker.ownership.bounds import Holdings
from broker.ownership.claims import Claim, Promote, Wanted
from broker.ownership.deadlines import OfOwner, OfSharer, OfWaiter, Watched
from broker.ownership.effects import Fence, OwnershipEffect, Reload, Write, Written
from broker.ownership.operations import (
    NO_TICKET,
    Asker,
    FlushUnwritten,
    Forced,
    ForceRelease,
    Held,
    Operation,
    ReleaseHeld,
    Resume,
)
from broker.ownership.reading import Assigned, AssignReaders, AttachReader
from broker.ownership.resources import Resource
from broker.ownership.rules import Verdict, judge_access, judge_claim
from broker.ownership.settings import OwnershipSettings
from broker.ownership.state import LogEnds, TableState
from coordinator.ownership.records import (
    NEVER_MS,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    record_bytes,
)
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.ownership import LossReason, ResourceStanding
from protocol.messages.producer_access import ProducerAccessMode

_FLUSHED_TOGETHER = 50
"""Resources that are written in one request, where nobody waits for it."""
_FLUSHED_MAX = 1000
"""Resources that `flush` takes up; the others wait for the next one."""
_FLUSHED_BYTES_MAX = 512 * 1024
"""What they may take together."""


class OwnershipTable:
    """What this broker knows of the resources that it decides about.

    The caller sees to it that it does decide about them, and has loaded what is written of them. Requests
    carry a ticket, by which their answer is known.
    """

    def __init__(
        self,
        log_ends: Callable[[PartitionKey], LogEnds],
        last_heard_ms: Callable[[int], int],
        date_ms: Callable[[], int],
        settings: OwnershipSettings | None = None,
    ) -> None:
        self.state = TableState(log_ends, last_heard_ms, date_ms, settings or OwnershipSettings())
        self._queues: dict[ResourceKey, deque[Operation]] = {}
        self._writing: dict[Operation, None] = {}
        self._abandoned: dict[Operation, None] = {}
        self._by_ticket: dict[int, Operation] = {}
        """Those that wait for their turn, or to be durable."""
        self._ready: deque[Operation] = deque()
        """Operations that may have come to the head of their queues."""
        self._to_retry: dict[ResourceKey, None] = {}

    def take_effects(self) -> list[OwnershipEffect]:
        """What is to be done now, in this order."""
        return self.state.take_effects()

    def take_changed(self) -> list[PartitionKey]:
        """Partitions whose writer or readers have changed: to be guarded anew before all else."""
        changed, self.state.changed = self.state.changed, {}
        return list(changed)

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do; None: never."""
        return self.state.deadlines.next_ms

    @property
    def has_unwritten(self) -> bool:
        """Whether `flush` has something to do."""
        return bool(self.state.unwritten or self._to_retry)

    # -- requests ----------------------------------------------------------------------------------------

    def claim(
        self, ticket: int, asker: Asker, wanted: Sequence[Wanted], now_ms: int, wait_timeout_ms: int = 0
    ) -> None:
        """The own API: all of `wanted`, or none. One alone, that takes from nobody, may wait for its turn;
        -1: for as long as its connection lives."""
        may_wait = wait_timeout_ms != 0

        def judge(resource: Resource, each: Wanted) -> Verdict:
            return judge_claim(resource, asker.group, asker.owner, each.generation, may_wait=may_wait)

        self._name_group(asker)
        self._submit(Claim(ticket, asker, wanted, judge, _until(now_ms, wait_timeout_ms)), now_ms)

    def access(
        self,
        ticket: int,
        asker: Asker,
        key: PartitionKey,
        mode: ProducerAccessMode,
        epoch: int,
        now_ms: int,
        wait_timeout_ms: int = 0,
    ) -> None:
        """A producer asks for access to a partition (PIP-68)."""
        may_wait = mode is ProducerAccessMode.WAIT_FOR_EXCLUSIVE and wait_timeout_ms != 0

        def judge(resource: Resource, each: Wanted) -> Verdict:
            return judge_access(resource, asker.owner, asker.connection, mode, epoch, may_wait=may_wait)

        self._name_group(asker)
        wanted = [Wanted(key, epoch)]
        self._submit(Claim(ticket, asker, wanted, judge, _until(now_ms, wait_timeout_ms)), now_ms)

    def resume(self, ticket: int, asker: Asker, held: Sequence[Held], now_ms: int) -> None:
        """An owner goes on with its grants on another connection."""
        self._name_group(asker)
        self._submit(Resume(ticket, asker, held), now_ms)

    def release(self, ticket: int, asker: Asker, held: Sequence[Held], now_ms: int) -> None:
        self._submit(ReleaseHeld(ticket, asker, held), now_ms)

    def assign(self, ticket: int, assigned: Sequence[Assigned], now_ms: int) -> None:
        """The coordinator of consumer groups says who reads partitions, each by itself."""
        self._submit(AssignReaders(ticket, assigned), now_ms)

    def attach_reader(
        self, ticket: int, asker: Asker, generation: int, keys: Sequence[ResourceKey], now_ms: int
    ) -> None:
        """A member of a consumer group reads on this connection, each partition by itself."""
        self._name_group(asker)
        self._submit(AttachReader(ticket, asker, generation, keys), now_ms)

    def force_release(self, ticket: int, group: str, forced: Sequence[Forced], now_ms: int) -> None:
        self._submit(ForceRelease(ticket, group, forced), now_ms)

    def standing(self, asker: Asker, held: Held) -> ResourceStanding:
        """How an owner, or one that waits or shares, stands with a resource."""
        resource = self.state.resources.get(held.key) or Resource(held.key)
        entry = resource.entries.get(asker.group)
        owner_id = asker.owner.owner_id
        epoch = self.state.leader_epoch(held.key)
        grant = None if entry is None else entry.grant
        if entry is not None and grant is not None and grant.owner.owner_id == owner_id:
            if entry.connection == asker.connection:
                if not entry.is_complete:
                    return standings.queued(resource, asker.group, 0)
                return standings.owned(resource, entry, epoch)
            if held.incarnation == grant.incarnation:
                return standings.detached(resource, entry, epoch)
        if held.incarnation != standings.WAITING:
            return standings.fenced(resource, asker.group, held.incarnation)
        waiting = resource.waiter(asker.group, owner_id)
        if waiting is not None:
            return standings.queued(resource, asker.group, waiting[0])
        sharer = resource.sharers.get(asker.connection)
        if sharer is not None and sharer.owner.owner_id == owner_id:
            return standings.shared(resource, epoch)
        return standings.blank(
            held.key, ErrorCode.REQUEST_TIMED_OUT, f"this claim does not wait for {held.key} any more"
        )

    def told(self, asker: Asker, held: Sequence[Held]) -> None:
        """An owner has been told how it stands."""
        for each in held:
            resource = self.state.resources.get(each.key)
            entry = None if resource is None else resource.entries.get(asker.group)
            if entry is not None and entry.connection == asker.connection:
                entry.is_contended = False

    # -- connections -------------------------------------------------------------------------------------

    def connection_opened(self, connection: int) -> None:
        """A connection has to do with ownership from now on, until `connection_closed`."""
        self.state.connections.setdefault(connection, Holdings())

    def connection_closed(self, connection: int, now_ms: int) -> None:
        """Its owners are detached. Whoever has been granted their resources meanwhile is not concerned."""
        state = self.state
        holdings = state.connections.pop(connection, None)
        if holdings is None:
            return
        for key in holdings.keys:
            resource = state.resources.get(key)
            if resource is None:
                continue
            resource.former.pop(connection, None)
            for entry in resource.held_by(connection):
                state.left(resource, entry, now_ms)
            waiting = [each for each in resource.waiters if each.connection == connection]
            if waiting:
                state.dequeue(resource, *waiting)
            state.unshare(resource, connection)
        self._settle(now_ms)

    def pinged(self, connection: int, now_ms: int) -> None:
        """A connection was asked for a sign of life, and has to give it in time."""
        holdings = self.state.connections.get(connection)
        for key in holdings.keys if holdings is not None else ():
            resource = self.state.resources.get(key)
            for entry in resource.held_by(connection) if resource is not None else ():
                if entry.pinged_ms < 0 and entry.last is not None:
                    entry.pinged_ms = now_ms
                    deadline_ms = now_ms + self.state.settings.ping_timeout_ms
                    self.state.deadlines.add(deadline_ms, OfOwner(key, entry.group, entry.last.incarnation))

    # -- time --------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Look after those whose time has come."""
        deadlines = self.state.deadlines
        while (watched := deadlines.pop_due(now_ms)) is not None:
            again_ms = self._look_after(watched, now_ms)
            if again_ms is not None:
                deadlines.add(again_ms, watched)
        self._settle(now_ms)

    def _look_after(self, watched: Watched, now_ms: int) -> int | None:
        """End what has run out; when to look again, where it has not."""
        resource = self.state.resources.get(watched.key)
        if resource is None:
            return None
        match watched:
            case OfOwner():
                return self._look_after_owner(resource, watched, now_ms)
            case OfWaiter(waiter=waiter):
                if waiter not in resource.waiters:
                    return None
                heard_ms = self.state.last_heard_ms(waiter.connection)
                patience_ms = self.state.patience_ms(waiter, heard_ms)
                if patience_ms > now_ms:
                    return patience_ms
                self.state.dequeue(resource, waiter)
            case OfSharer(connection=connection):
                sharer = resource.sharers.get(connection)
                if sharer is None:
                    return None
                until_ms = self.state.last_heard_ms(connection) + sharer.owner.session_timeout_ms
                if until_ms > now_ms:
                    return until_ms
                self.state.silence(resource, connection)
        return None

    def _look_after_owner(self, resource: Resource, watched: OfOwner, now_ms: int) -> int | None:
        entry = resource.entries.get(watched.group)
        grant = None if entry is None else entry.grant
        if entry is None or grant is None or grant.incarnation != watched.incarnation:
            return None
        if grant.owner.assignment is not None:
            return None  # Its group's coordinator looks after it.
        if entry.connection is None:
            if entry.deadline_ms > now_ms:
                return entry.deadline_ms
            self.state.free(resource, entry, LossReason.DISCONNECTED)
            return None
        heard_ms = self.state.last_heard_ms(entry.connection)
        until_ms = heard_ms + grant.owner.session_timeout_ms
        if entry.pinged_ms >= 0:
            if heard_ms >= entry.pinged_ms:
                entry.pinged_ms = -1
            else:
                until_ms = min(until_ms, entry.pinged_ms + self.state.settings.ping_timeout_ms)
        if until_ms > now_ms:
            return until_ms
        self.state.free(resource, entry, LossReason.SESSION_TIMED_OUT)
        return None

    def flush(self, now_ms: int) -> None:
        """Write down what nobody waits for, and try again what could not be written."""
        unwritten = list(itertools.islice(self.state.unwritten, _FLUSHED_MAX))
        for key in unwritten:
            del self.state.unwritten[key]
        for keys in self._portions(unwritten):
            self._submit(FlushUnwritten(keys), now_ms)
        retry, self._to_retry = self._to_retry, {}
        for key in retry:
            if key in self.state.resources:
                self.state.offer(self.state.resources[key])
        self._settle(now_ms)

    def _portions(self, keys: Sequence[ResourceKey]) -> Iterator[list[ResourceKey]]:
        """The keys in lists of what can be written together."""
        portion: list[ResourceKey] = []
        taken = 0
        for key in keys:
            resource = self.state.resources.get(key)
            size = 0 if resource is None else record_bytes(resource.record())
            if portion and (len(portion) == _FLUSHED_TOGETHER or taken + size > _FLUSHED_BYTES_MAX):
                yield portion
                portion, taken = [], 0
            portion.append(key)
            taken += size
        if portion:
            yield portion

    def append_refused(self, resource: Resource) -> None:
        """One who does not own a partition has tried to write to it."""
        self.state.totals.fenced_appends += 1
        writer = resource.writer
        if writer is not None:
            writer.counts.fenced_appends += 1

    # -- durability --------------------------------------------------------------------------------------

    def written(self, operation: Operation, versions: Mapping[ResourceKey, int], now_ms: int) -> None:
        """What `operation` wanted written is durable, under these versions."""
        if operation in self._abandoned:
            self._reload(operation)
        elif operation in self._writing:
            del self._writing[operation]
            resources = {self.state.resource(key): version for key, version in versions.items()}
            if any(resource.version >= version for resource, version in resources.items()):
                self._overtaken(operation)
            else:
                for resource, version in resources.items():
                    resource.version = version
                operation.carry_out(self.state, now_ms)
        self._finish(operation)
        self._settle(now_ms)

    def _overtaken(self, operation: Operation) -> None:
        """What an operation wrote has been read again before this broker knew that it is written: it is in
        force already, of its owner as of all others detached. Whoever asks again is told so."""
        message = "the leader has begun anew meanwhile: try again"
        operation.fail(self.state, error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message))
        self.state.effects += [Reload(key) for key in operation.keys]

    def not_written(self, operation: Operation, error: BrokerError, now_ms: int) -> None:
        """What `operation` wanted written is not, and will not be: nothing has changed."""
        if operation in self._abandoned:
            self._reload(operation)
        elif operation in self._writing:
            del self._writing[operation]
            operation.fail(self.state, error)
            # Not at once, for it would fail again.
            for key in operation.keys:
                if key in self.state.wanted:
                    del self.state.wanted[key]
                    self._to_retry[key] = None
        self._finish(operation)
        self._settle(now_ms)

    def completed(self, fence: Fence) -> None:
        """Everything before the fence is committed."""
        resource = self.state.resources.get(fence.key)
        entry = None if resource is None else resource.entries.get(fence.group)
        if entry is not None and entry.last is not None and entry.last.incarnation == fence.incarnation:
            entry.is_complete = True
            self.state.tell(entry.connection)

    def _reload(self, operation: Operation) -> None:
        """Of what was given up half-way nobody knows how it ended, but ZooKeeper."""
        del self._abandoned[operation]
        self.state.effects += [Reload(key) for key in operation.keys if key in self.state.resources]

    # -- what this broker decides about ------------------------------------------------------------------

    def load(self, key: ResourceKey, record: OwnershipRecord, version: int, now_ms: int) -> None:
        """Take over what is written of a resource, unless that is known, and maybe what has become of it."""
        known = self.state.resources.get(key)
        if known is not None and known.version >= version:
            return
        self.state.restore(key, record, version, now_ms)
        self._settle(now_ms)

    def unload(
        self, key: ResourceKey, error: BrokerError, now_ms: int, reason: LossReason = LossReason.NONE
    ) -> None:
        """Others decide about the resource from now on; with `reason` DELETED nobody does."""
        for operation in list(self._queues.get(key, ())):
            if operation in self._abandoned:
                continue
            if operation.ticket != NO_TICKET:
                operation.fail(self.state, error)
            if operation in self._writing:
                # The other resources that it is about wait until it is known what has become of it.
                del self._writing[operation]
                self._abandoned[operation] = None
            else:
                self._finish(operation)
        self._to_retry.pop(key, None)
        self.state.unload(key, reason)
        self._settle(now_ms)

    # -- one after the other -----------------------------------------------------------------------------

    def _name_group(self, asker: Asker) -> None:
        holdings = self.state.connections.get(asker.connection)
        if holdings is not None:
            holdings.name(asker.group)

    def _submit(self, operation: Operation, now_ms: int) -> None:
        self._enqueue(operation)
        self._settle(now_ms)

    def give_up(self, ticket: int, now_ms: int) -> None:
        """Nobody waits for the answer any more: what has not begun never will."""
        operation = self._by_ticket.get(ticket)
        if operation is not None and operation not in self._writing and operation not in self._abandoned:
            self._finish(operation)
            self._settle(now_ms)

    def _enqueue(self, operation: Operation) -> None:
        if operation.ticket != NO_TICKET:
            self._by_ticket[operation.ticket] = operation
        for key in operation.keys:
            self._queues.setdefault(key, deque()).append(operation)
        self._ready.append(operation)

    def _settle(self, now_ms: int) -> None:
        """Start all that can start, and offer what is free to those who wait for it."""
        wanted = self.state.wanted
        while self._ready or wanted:
            while self._ready:
                self._start(self._ready.popleft(), now_ms)
            for key in list(wanted):
                del wanted[key]
                if not any(isinstance(operation, Promote) for operation in self._queues.get(key, ())):
                    self._enqueue(Promote(key))

    def _start(self, operation: Operation, now_ms: int) -> None:
        """Begin an operation, if it is its turn with all its resources."""
        if operation in self._writing or operation in self._abandoned:
            return
        queues = [self._queues.get(key) for key in operation.keys]
        if not all(queue and queue[0] is operation for queue in queues):
            return
        records = operation.begin(self.state, now_ms)
        if records:
            self._writing[operation] = None
            items = [
                Written(key, record, self.state.resource(key).version) for key, record in records.items()
            ]
            self.state.effects.append(Write(operation, tuple(items)))
            return
        operation.carry_out(self.state, now_ms)
        self._finish(operation)

    def _finish(self, operation: Operation) -> None:
        """Let those have their turn who waited for this operation."""
        self._by_ticket.pop(operation.ticket, None)
        for key in operation.keys:
            queue = self._queues.get(key)
            if queue is None or operation not in queue:
                continue
            queue.remove(operation)
            if queue:
                self._ready.append(queue[0])
            else:
                del self._queues[key]
                self.state.forget_if_blank(key)


def _until(now_ms: int, wait_timeout_ms: int) -> int:
    return now_ms + wait_timeout_ms if wait_timeout_ms >= 0 else NEVER_MS
