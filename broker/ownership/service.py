"""Ownership on this broker: submits operations to the table, and performs the table's effects in their order.

A grant is first written to ZooKeeper, then put into force (its guard is put up), then the loser's connection
is severed, and the claimant is answered once the fence is settled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.python.failure import Failure

from holdfast_log.broker.network.connection import ServerConnection
from holdfast_log.broker.ownership.alarms import TableAlarms
from holdfast_log.broker.ownership.answers import Answers, Standings
from holdfast_log.broker.ownership.audit_lines import AuditLines
from holdfast_log.broker.ownership.confirming import unconfirmed, unconfirmed_standing
from holdfast_log.broker.ownership.decided import DecidedResources
from holdfast_log.broker.ownership.effects import (
    AnswerTicket,
    Audit,
    AwaitCommit,
    ExamineReservation,
    FailTicket,
    Notify,
    OwnershipEffect,
    Reload,
    Sever,
    Write,
)
from holdfast_log.broker.ownership.fence_commits import FenceCommits
from holdfast_log.broker.ownership.fences import FenceGuard
from holdfast_log.broker.ownership.guards import reader_guard, writer_guard
from holdfast_log.broker.ownership.interludes import BeginInterlude, Stranger
from holdfast_log.broker.ownership.operations import Operation
from holdfast_log.broker.ownership.record_writing import RecordWriting
from holdfast_log.broker.ownership.renewals import ManyStandings, Renewals
from holdfast_log.broker.ownership.resources import Counts, NamedGrant, Requester, Resource, partition_key
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.broker.ownership.standings import outcome
from holdfast_log.broker.ownership.state import LogEnd
from holdfast_log.broker.ownership.table import OwnershipTable
from holdfast_log.broker.ownership.tokens import TokenVerdict, judge_token
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.coordinator.clock import Clock, TimeOfDay, now_ms
from holdfast_log.coordinator.ownership.records import NameKey, PartitionKey, ResourceKey
from holdfast_log.coordinator.ownership.store import OwnershipStore
from holdfast_log.coordinator.raised import raised
from holdfast_log.coordinator.repeated_log import RepeatedLog
from holdfast_log.coordinator.zookeeper.interface import SessionExpired
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from holdfast_log.protocol.messages.ownership import Access, LossReason, ResourceStanding

T = TypeVar("T")

_DISPLACE_MS = 5_000
"""Longest time for one attempt to end the grant of a reader that is gone."""

_log = logging.getLogger(__name__)


class OwnershipService:
    """The owners of the resources that this broker decides about.

    `names_partition` returns the partition of `__consumer_offsets` that keeps a group. Where `right` does not
    let this broker confirm, no ownership is granted, confirmed or acted upon. `date_ms` is the time of day.

    Call `role_changed` when a partition's role has changed, and `append_mismatched` when the condition of an
    append did not hold.
    """

    def __init__(
        self,
        replicas: Replicas,
        store: OwnershipStore,
        names_partition: Callable[[str], int | None],
        right: RightToConfirm,
        settings: OwnershipSettings,
        *,
        clock: Clock,
        date_ms: TimeOfDay,
    ) -> None:
        self._clock = clock
        self._right = right
        self._replicas = replicas
        self._store = store
        self.table = OwnershipTable(self._log_end, self.last_heard_ms, date_ms, settings)
        self.decided = DecidedResources(
            replicas, self.table, self._store, names_partition, clock, self._perform
        )
        self._writing = RecordWriting(store, self.table, self.decided, self.now_ms, self._perform)
        self._answers = Answers(clock, self._give_up, right.may_confirm_any)
        self._fences = FenceCommits(
            clock, replicas.readers, self.table, self.decided, self._answers, self._perform
        )
        self._audit = AuditLines(clock)
        self._alarms = TableAlarms(clock, self.table, self._perform)
        self._refused_writes = RepeatedLog(clock)
        self._renewals = Renewals(clock, self._standings, self.table.renewed)
        self._connections: dict[int, ServerConnection] = {}
        self._tickets: dict[int, dict[int, None]] = {}
        """The requests, by connection, that are given up when it closes."""
        self._is_performing = False
        self._is_stopped = False

    def now_ms(self) -> int:
        """The time of the monotonic clock, by which sessions are timed."""
        return now_ms(self._clock)

    # -- requests --------------------------------------------------------------------------------------

    def submit(
        self, connection: ServerConnection | None, operation: Operation, timeout_ms: int
    ) -> Deferred[Standings]:
        """Have an operation decided, written and put into force. Fires with one standing for each of its
        keys.

        The operation is given up when `connection` closes before its turn has come; with None it is carried
        out in any case. Fails with BrokerError where the request fails as a whole: NETWORK_EXCEPTION when the
        connection has closed, REQUEST_TIMED_OUT after `timeout_ms`, NOT_LEADER_OR_FOLLOWER while the broker
        stops, and what `Operation` and writing it raise.
        """
        if self._is_stopped:
            return fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping"))
        if connection is not None and connection.is_closed:
            return fail(BrokerError(ErrorCode.NETWORK_EXCEPTION))
        keys = operation.keys
        if not self._right.may_confirm_any() or (keys and not any(map(self._may_confirm, keys))):
            return fail(unconfirmed())
        ticket, answer = self._answers.open(timeout_ms)
        if connection is not None:
            self._track(connection)
            self._give_up_when_closed(connection, ticket, answer)
        reserved = [key for key in keys if isinstance(key, PartitionKey) and self.table.is_reserved(key)]
        if reserved:
            ensureDeferred(self._examine_and_submit(reserved, operation, ticket)).addErrback(_failed)
        else:
            self._submit(operation, ticket)
        return answer.addCallback(self._confirmed, keys)

    def _submit(self, operation: Operation, ticket: int) -> None:
        self.table.submit(operation, self.now_ms(), ticket)
        self._perform()

    async def _examine_and_submit(
        self, reserved: Sequence[PartitionKey], operation: Operation, ticket: int
    ) -> None:
        """Submit an operation on partitions that are kept for the owner of their topic, which may have left
        since."""
        for key in reserved:
            await self.decided.examine_reservation(key)
        if self._answers.is_awaited(ticket):
            self._submit(operation, ticket)

    def end_waiting_fetches(self, connection: ServerConnection) -> None:
        """Answer the fetches of a connection that wait for records with what there is."""
        self._replicas.readers.expire_all_of(connection.id)

    def make_way(self, stranger: Stranger, timeout_ms: int) -> Deferred[None]:
        """Write the interlude for a stranger who is about to be served. Fires when it is in force, and when
        that has failed: the stranger is judged again in any case."""
        answer = self.submit(None, BeginInterlude(stranger), timeout_ms)
        return answer.addErrback(_no_interlude).addCallback(lambda _: None)

    def displace_reader(self, key: PartitionKey, group: str, connection_id: int) -> Deferred[None]:
        """Write the interlude for a connection that has named a group, and is about to read for it."""
        connection = self._connections.get(connection_id)
        if connection is None:
            return succeed(None)
        stranger = Stranger(key, connection.client_id, connection.principal, group)
        return self.make_way(stranger, _DISPLACE_MS)

    def partition_count(self, first: PartitionKey) -> Deferred[int]:
        """How many partitions the topic of partition `first` has in ZooKeeper now; 0 if it was deleted.

        Fails with BrokerError if this broker may not confirm grants of `first` any more.
        """

        def confirmed(count: int) -> int:
            refusal = self.decided.refusal(first)
            if refusal is not None:
                raise refusal
            if not self._may_confirm(first):
                raise unconfirmed()
            return count

        return ensureDeferred(self._store.partition_count(first.topic)).addCallback(confirmed)

    def renew(
        self,
        connection: ServerConnection,
        requester: Requester,
        named: Sequence[NamedGrant],
        max_wait_ms: int,
    ) -> Deferred[Standings]:
        """The owner's standings: now, or as soon as they have changed."""
        if connection.is_closed:
            return fail(BrokerError(ErrorCode.NETWORK_EXCEPTION))
        self._track(connection)
        self.table.renewed_elsewhere(requester, named, self.now_ms())
        return self._renewals.renew(requester, named, max_wait_ms)

    async def await_many(
        self,
        connection: ServerConnection,
        requester: Requester,
        count: int,
        standings: Callable[[int, int], Standings],
        max_wait_ms: int,
    ) -> None:
        """Wait until a Renew of `count` resources, too many for one turn of the reactor, is to be answered.
        `standings` returns the present ones between two places in the request. Raises BrokerError
        NETWORK_EXCEPTION if the connection has closed, NOT_LEADER_OR_FOLLOWER if the broker stops."""
        if not connection.is_closed:
            self._track(connection)
            await self._renewals.await_many(requester, count, standings, max_wait_ms)
        if connection.is_closed:
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION)
        if self._is_stopped:
            raise error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping")

    def look(self, requester: Requester, named: NamedGrant) -> ResourceStanding:
        """The owner's standing with one of many resources. Their Renew keeps its session."""
        self.table.renewed_elsewhere(requester, (named,), self.now_ms())
        return self._standing(requester, named)

    def answered(self, requester: Requester, named: NamedGrant) -> None:
        """The standing with one of many resources is about to be sent: its owner knows who wants it."""
        self.table.renewed(requester, (named,))

    def answered_many(self, requester: Requester, answered: ManyStandings) -> None:
        """A Renew of many resources is about to be answered."""
        self._renewals.note_many(requester, answered)

    def _track(self, connection: ServerConnection) -> None:
        """Report the connection to the table, now and when it closes."""
        if connection.id not in self._connections:
            self._connections[connection.id] = connection
            self.table.connection_opened(connection.id)
            connection.add_close_callback(self._closed)

    def _give_up_when_closed(
        self, connection: ServerConnection, ticket: int, answer: Deferred[Standings]
    ) -> None:
        tickets = self._tickets.setdefault(connection.id, {})
        tickets[ticket] = None

        def answered(outcome: T) -> T:
            tickets.pop(ticket, None)
            return outcome

        answer.addBoth(answered)

    def _give_up(self, ticket: int) -> None:
        self.table.give_up(ticket, self.now_ms())
        self._perform()

    def _closed(self, connection: ServerConnection) -> None:
        del self._connections[connection.id]
        self._renewals.forget(connection.id)
        for ticket in list(self._tickets.pop(connection.id, ())):
            self._answers.give_up(ticket)
        if self._is_stopped:
            return  # Its owner may resume at the broker that decides about its resources next.
        self.table.connection_closed(connection.id, self.now_ms())
        self._perform()

    def _standings(self, requester: Requester, named: Sequence[NamedGrant]) -> Standings:
        return [self._standing(requester, each) for each in named]

    def _standing(self, requester: Requester, named: NamedGrant) -> ResourceStanding:
        """The present standing. If the resource has moved, it sends the owner to another broker."""
        refusal = self.decided.refusal(named.key)
        if refusal is not None:
            return outcome(named.key, refusal.code, refusal.message)
        standing = self.table.standing(requester, named)
        return standing if self._may_confirm(named.key) else unconfirmed_standing(named.key, standing)

    def _confirmed(self, standings: Standings, keys: Sequence[ResourceKey]) -> Standings:
        """An answer that is about to be sent, without what this broker may not confirm."""
        return [self._confirmed_one(key, standing) for key, standing in zip(keys, standings, strict=True)]

    def _confirmed_one(self, key: ResourceKey, standing: ResourceStanding) -> ResourceStanding:
        error = None if self._may_confirm(key) else unconfirmed()
        if isinstance(key, NameKey):
            # It may still be in the table although another broker decides about it.
            error = self.decided.refusal(key) or error
        return standing if error is None else outcome(key, error.code, error.message)

    def _may_confirm(self, key: ResourceKey) -> bool:
        try:
            partition = self.decided.led_for(key)
        except BrokerError:
            return True  # Another broker decides about it now; the table answers that.
        return self._right.may_confirm(partition)

    def token_standing(self, group: str, key: ResourceKey, token: int) -> TokenVerdict:
        """Whether `token` is that of the newest grant. Raises BrokerError: RESOURCE_NOT_FOUND for a token
        that was never granted, NOT_LEADER_OR_FOLLOWER if this broker may have been replaced."""
        if not self._may_confirm(key):
            raise unconfirmed()
        return judge_token(self.table.resource(key) or Resource(key), group, token)

    # -- for the table ---------------------------------------------------------------------------------

    def _log_end(self, key: PartitionKey) -> LogEnd:
        partition = self.decided.partition(key)
        if partition is None:
            return LogEnd(0, -1)
        return LogEnd(partition.log.log_end_offset, partition.leader_epoch)

    def last_heard_ms(self, connection_id: int) -> int:
        """When a connection last sent anything, by `now_ms`."""
        connection = self._connections[connection_id]
        if connection.is_muted or (connection.is_paused and not connection.is_idle):
            return self.now_ms()  # This broker is not reading the connection.
        return int(connection.last_request_s * 1000)

    @property
    def mismatches(self) -> int:
        """Conditional appends whose condition did not hold."""
        return self._replicas.conditions.mismatches

    def connection(self, connection_id: int | None) -> ServerConnection | None:
        """The open connection of an owner or of one who waits; None if it has closed."""
        return None if connection_id is None else self._connections.get(connection_id)

    def resources(self) -> list[Resource]:
        """All resources that this broker decides about and knows anything of."""
        return [each for each in self.table.resources() if self.decided.refusal(each.key) is None]

    def access(self, group: str, key: ResourceKey) -> Access:
        """What the resource's owner in the group may do to it, or may do once it has resumed; NONE if it was
        never owned."""
        return self.table.access(group, key)

    def totals(self) -> Counts:
        """The counts over all resources since the broker started."""
        return self.table.totals()

    def losses(self) -> Mapping[LossReason, int]:
        """How many grants have ended since the broker started, by reason."""
        return self.table.losses()

    @property
    def record_bytes(self) -> int:
        """Bytes of the records of what is owned here: `own.records.total.bytes` limits them."""
        return self.table.record_bytes

    @property
    def record_bytes_left(self) -> int:
        """How many bytes more the records may take before claims of further resources are refused."""
        return self.table.record_bytes_left

    # -- changes in the cluster ------------------------------------------------------------------------

    def prepare(self, request: LeaderAndIsrRequest) -> Deferred[None]:
        """Read the records of the partitions that this broker is about to lead, before it leads them."""
        return self.decided.prepare(request)

    def role_changed(self, partition: Partition) -> None:
        """This broker leads the partition now, or has stopped leading it."""
        self.decided.role_changed(partition)
        self._refresh(partition)

    def topic_changed(self, topic: str) -> None:
        """The settings of a topic have changed: refresh its guards."""
        for partition in self._replicas.of_topic(topic):
            self._refresh(partition)

    def _refresh(self, partition: Partition) -> None:
        """Put up the guards that the partition's settings and owners require, or take them down."""
        partition.admission = partition.read_admission = partition.fence_admission = None
        if isinstance(partition.role, Leadership):
            key = partition_key(partition)
            resource = self.table.resource(key)
            may_confirm = partial(self._right.may_confirm, partition)
            partition.fence_admission = FenceGuard(key, resource, self.table.append_refused, may_confirm)
            partition.admission = writer_guard(
                partition,
                resource,
                self.table.append_refused,
                may_confirm,
                self._refused_writes,
                self.make_way,
                self.table.holdings,
            )
            partition.read_admission = reader_guard(
                partition, resource, self.table.holdings, may_confirm, self.displace_reader
            )

    def right_changed(self) -> None:
        """This broker has lost or regained the right to confirm, of all partitions or of some: owners are
        detached or attached, and waiting claims are sent away."""
        for connection_id in list(self._connections):
            self._renewals.changed(connection_id)

    def append_mismatched(self, partition: Partition) -> None:
        """The condition of an append did not hold: count it with the partition's owner."""
        resource = self.table.resource(partition_key(partition))
        writer = None if resource is None else resource.writer
        if writer is not None:
            writer.counts.mismatches += 1

    # -- effects ---------------------------------------------------------------------------------------

    def _perform(self) -> None:
        """Perform the table's effects. Effects that arise meanwhile are performed after them, not in between.

        Guards are refreshed before anything else happens, because appends are judged by them.
        """
        for key in self.table.take_changed_partitions():
            partition = self.decided.partition(key)
            if partition is not None:
                self._refresh(partition)
        if self._is_performing:
            return
        self._is_performing = True
        self._audit.begin()
        try:
            while effects := self.table.take_effects():
                for effect in effects:
                    self._perform_one(effect)
        finally:
            self._is_performing = False
        self._alarms.set()

    def _perform_one(self, effect: OwnershipEffect) -> None:
        match effect:
            case Write():
                ensureDeferred(self._writing.write(effect)).addErrback(_failed)
            case Sever(connection_id, reason):
                connection = self._connections.get(connection_id)
                if connection is not None:
                    _log.info("Closing connection %s: %s", connection, reason)
                    connection.close(reason)
            case AwaitCommit(fence):
                self._fences.wait(fence)
            case AnswerTicket(ticket, standings, fences):
                self._answers.answer(
                    ticket, standings, [each for each in fences if not self._fences.is_committed(each)]
                )
            case FailTicket(ticket, error):
                self._answers.fail(ticket, error)
            case Notify(connection_id, is_ping):
                is_told = self._renewals.changed(connection_id)
                if is_ping and (is_told or self._renewals.relies_on_ping(connection_id)):
                    self.table.pinged(connection_id, self.now_ms())
            case Reload(key):
                self.decided.reload(key).addErrback(_failed)
            case ExamineReservation(key):
                ensureDeferred(self.decided.examine_reservation(key)).addErrback(_failed)
            case Audit(line):
                self._audit.write(line)

    def stop(self) -> None:
        """Stop deciding, because the broker stops. Owners find the next decider."""
        self._is_stopped = True
        self._alarms.stop()
        self._audit.stop()
        self._fences.stop()
        self._answers.stop()
        self._renewals.stop()


def _no_interlude(failure: Failure) -> None:
    """The stranger is refused, with an error on which it tries again."""
    failure.trap(BrokerError)


def _failed(failure: Failure) -> None:
    if failure.check(SessionExpired) is None:
        _log.error("Unexpected error while writing or reading ownership records", exc_info=raised(failure))
