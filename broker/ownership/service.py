"""Ownership on this broker: asks the table, and does what it wants done, in the order in which it wants it.

Durable first, then told: a grant is written to ZooKeeper, then in force, then the loser's connection is
severed, and when the high watermark has reached the fence the claimant hears of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from twisted.internet.defer import Deferred, DeferredSemaphore, ensureDeferred, fail
from twisted.python.failure import Failure

from broker.network.connection import ServerConnection
from broker.ownership.answers import Answers, Standings
from broker.ownership.claims import Wanted
from broker.ownership.effects import (
    AnswerClaim,
    Audit,
    AwaitCommit,
    Fail,
    Fence,
    OwnershipEffect,
    Reload,
    Sever,
    Tell,
    Write,
)
from broker.ownership.guards import reader_guard, writer_guard
from broker.ownership.homes import Homes
from broker.ownership.operations import Asker, Forced, Held
from broker.ownership.reading import Assigned
from broker.ownership.renewals import Renewals
from broker.ownership.resources import Resource, partition_key
from broker.ownership.settings import OwnershipSettings
from broker.ownership.standings import blank
from broker.ownership.state import LogEnds
from broker.ownership.table import OwnershipTable
from broker.replication.leadership import Leadership
from broker.replication.partition import Partition
from broker.replication.replicas import Replicas
from broker.replication.waiting import MAX_WAIT_MS
from coordinator.clock import Clock, DelayedCall
from coordinator.ownership.records import PartitionKey, ResourceKey
from coordinator.ownership.store import (
    NotLeading,
    OwnershipStore,
    Replacement,
    Superseded,
    TooLarge,
)
from coordinator.znodes.json_values import BadZnode
from coordinator.zookeeper.interface import SessionExpired, ZooKeeperError
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.ownership import ResourceStanding
from protocol.messages.producer_access import ProducerAccessMode

T = TypeVar("T")

_log = logging.getLogger(__name__)
_audit = logging.getLogger("broker.ownership.audit")

FLUSH_INTERVAL_S = 0.1
"""How long what nobody waits for may stay unwritten, and when what failed is tried again."""
ATTACH_TIMEOUT_MS = 10_000
"""How long a reader waits for what is being written of its partitions."""
WRITES_MAX = 50
"""Writes that ZooKeeper has at once: whatever clients claim, all else that it is asked is soon answered."""
_STANDSTILL_MS = 250
"""A timer that is later than this tells that the broker itself stood still."""


class OwnershipService:
    """The owners of the resources that this broker decides about.

    `names_partition` returns the partition of `__consumer_offsets` that keeps a group. `date_ms` is the time
    of day; `monotonic_s` is a clock that nobody sets, and times sessions. Call `role_changed` when a
    partition's role has changed, and `append_mismatched` when the condition of an append did not hold.
    """

    def __init__(
        self,
        replicas: Replicas,
        store: OwnershipStore,
        names_partition: Callable[[str], int | None],
        settings: OwnershipSettings,
        *,
        clock: Clock,
        date_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._clock = clock
        self._monotonic_s = monotonic_s
        self._replicas = replicas
        self._store = store
        self._writing = DeferredSemaphore(WRITES_MAX)
        self.table = OwnershipTable(self._log_ends, self.last_heard_ms, date_ms, settings)
        self.homes = Homes(replicas, self.table, self._store, names_partition, self.now_ms, self._perform)
        self._answers = Answers(clock, self._given_up)
        self._renewals = Renewals(clock, self._standings, self.table.told)
        self._connections: dict[int, ServerConnection] = {}
        self._asked: dict[int, dict[int, None]] = {}
        """The tickets of each connection that are worth nothing without it."""
        self._timer: DelayedCall | None = None
        self._timer_due_ms = 0
        self._read_by_ms = 0
        """When what came in during the last standstill will have been read: before that nobody is missed."""
        self._flush_timer: DelayedCall | None = None
        self._is_performing = False
        self._is_stopped = False

    def now_ms(self) -> int:
        """By the clock that nobody sets: sessions are judged by it."""
        return int(self._monotonic_s() * 1000)

    # -- requests ------------------------------------------------------------------------------------------

    def claim(
        self,
        connection: ServerConnection,
        asker: Asker,
        wanted: Sequence[Wanted],
        timeout_ms: int,
        wait_timeout_ms: int = 0,
    ) -> Deferred[Standings]:
        """The own API. Fails with BrokerError where the request could not be decided."""
        return self._ask(
            connection,
            timeout_ms,
            lambda ticket, now_ms: self.table.claim(ticket, asker, wanted, now_ms, wait_timeout_ms),
        )

    def access(
        self,
        connection: ServerConnection,
        asker: Asker,
        key: PartitionKey,
        mode: ProducerAccessMode,
        epoch: int,
        timeout_ms: int,
        wait_timeout_ms: int,
    ) -> Deferred[Standings]:
        """A producer's access to a partition (PIP-68)."""
        return self._ask(
            connection,
            timeout_ms,
            lambda ticket, now_ms: self.table.access(
                ticket, asker, key, mode, epoch, now_ms, wait_timeout_ms
            ),
        )

    def resume(
        self, connection: ServerConnection, asker: Asker, held: Sequence[Held], timeout_ms: int
    ) -> Deferred[Standings]:
        return self._ask(
            connection, timeout_ms, lambda ticket, now_ms: self.table.resume(ticket, asker, held, now_ms)
        )

    def release(
        self, connection: ServerConnection, asker: Asker, held: Sequence[Held], timeout_ms: int
    ) -> Deferred[Standings]:
        """Carried out also where the owner has closed its connection, having asked for it."""
        return self._ask(
            connection,
            timeout_ms,
            lambda ticket, now_ms: self.table.release(ticket, asker, held, now_ms),
            outlives_connection=True,
        )

    def assign(self, assigned: Sequence[Assigned], timeout_ms: int) -> Deferred[Standings]:
        """The coordinator of consumer groups says who reads partitions, each of them named once."""
        if self._is_stopped:
            return fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping"))
        ticket, answer = self._answers.open(timeout_ms)
        self.table.assign(ticket, assigned, self.now_ms())
        self._perform()
        return answer

    def attach_reader(
        self, connection: ServerConnection, asker: Asker, generation: int, keys: Sequence[ResourceKey]
    ) -> Deferred[Standings]:
        """A member of a consumer group says that it reads on this connection."""
        return self._ask(
            connection,
            ATTACH_TIMEOUT_MS,
            lambda ticket, now_ms: self.table.attach_reader(ticket, asker, generation, keys, now_ms),
        )

    def force_release(self, group: str, forced: Sequence[Forced], timeout_ms: int) -> Deferred[Standings]:
        """An administrator takes resources away."""
        ticket, answer = self._answers.open(timeout_ms)
        self.table.force_release(ticket, group, forced, self.now_ms())
        self._perform()
        return answer

    def renew(
        self, connection: ServerConnection, asker: Asker, held: Sequence[Held], max_wait_ms: int
    ) -> Deferred[Standings]:
        """How an owner stands, now or once that has changed."""
        if connection.is_closed:
            return fail(BrokerError(ErrorCode.NETWORK_EXCEPTION))
        self._meet(connection)
        return self._renewals.renew(asker, held, max_wait_ms)

    def _ask(
        self,
        connection: ServerConnection,
        timeout_ms: int,
        request: Callable[[int, int], None],
        *,
        outlives_connection: bool = False,
    ) -> Deferred[Standings]:
        if self._is_stopped:
            return fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker is stopping"))
        if connection.is_closed and not outlives_connection:
            return fail(BrokerError(ErrorCode.NETWORK_EXCEPTION))
        self._meet(connection)
        ticket, answer = self._answers.open(timeout_ms)
        if not outlives_connection:
            asked = self._asked.setdefault(connection.id, {})
            asked[ticket] = None

            def answered(outcome: T) -> T:
                asked.pop(ticket, None)
                return outcome

            answer.addBoth(answered)
        request(ticket, self.now_ms())
        self._perform()
        return answer

    def _given_up(self, ticket: int) -> None:
        self.table.give_up(ticket, self.now_ms())
        self._perform()

    def _meet(self, connection: ServerConnection) -> None:
        """From now on the table is told when the connection closes."""
        if connection.id not in self._connections and not connection.is_closed:
            self._connections[connection.id] = connection
            self.table.connection_opened(connection.id)
            connection.add_close_callback(self._closed)

    def _closed(self, connection: ServerConnection) -> None:
        del self._connections[connection.id]
        self._renewals.forget(connection.id)
        for ticket in list(self._asked.pop(connection.id, ())):
            self._answers.give_up(ticket)
        if self._is_stopped:
            return  # Its owner is to find what it has where it is decided about next.
        self.table.connection_closed(connection.id, self.now_ms())
        self._perform()

    def _standings(self, asker: Asker, held: Sequence[Held]) -> Standings:
        return [self._standing(asker, each) for each in held]

    def _standing(self, asker: Asker, held: Held) -> ResourceStanding:
        """One that waited for news while its resource has gone to another broker is to ask there."""
        refusal = self.homes.refusal(held.key)
        if refusal is not None:
            return blank(held.key, refusal.code, refusal.message)
        return self.table.standing(asker, held)

    # -- what the table has to know ------------------------------------------------------------------------

    def _log_ends(self, key: PartitionKey) -> LogEnds:
        partition = self.homes.partition(key)
        if partition is None:
            return LogEnds(0, 0, -1)
        return LogEnds(partition.log.log_end_offset, partition.high_watermark, partition.leader_epoch)

    def last_heard_ms(self, connection_id: int) -> int:
        """When anything last came in on a connection, by `now_ms`."""
        connection = self._connections[connection_id]
        if connection.is_muted or (connection.is_paused and not connection.is_idle):
            return self.now_ms()  # It is this broker that does not listen.
        return int(connection.last_request_s * 1000)

    @property
    def mismatches(self) -> int:
        """Conditional appends where the log did not end as expected."""
        return self._replicas.conditions.mismatches

    def resources(self) -> list[Resource]:
        """All that this broker decides about, and knows something of."""
        return list(self.table.state.resources.values())

    # -- what the cluster says -----------------------------------------------------------------------------

    def prepare(self, request: LeaderAndIsrRequest) -> Deferred[None]:
        """What has to be known before this broker leads what the controller gives it."""
        return self.homes.prepare(request)

    def role_changed(self, partition: Partition) -> None:
        """This broker leads the partition now, or has stopped leading it."""
        self.homes.role_changed(partition)
        self._refresh(partition)

    def topic_changed(self, topic: str) -> None:
        """The settings of a topic have changed."""
        for partition in self._replicas.of_topic(topic):
            self._refresh(partition)

    def _refresh(self, partition: Partition) -> None:
        """Put up the guards that the partition's settings and owners ask for, or take them down."""
        partition.admission = partition.read_admission = None
        if isinstance(partition.role, Leadership):
            resource = self.table.state.resources.get(partition_key(partition))
            partition.admission = writer_guard(partition, resource, self._append_refused)
            partition.read_admission = reader_guard(partition, resource, self.table.state.connections.get)

    def _append_refused(self, resource: Resource) -> None:
        self.table.append_refused(resource)

    def append_mismatched(self, partition: Partition) -> None:
        """The condition of an append did not hold: count it with the partition's owner."""
        resource = self.table.state.resources.get(partition_key(partition))
        writer = None if resource is None else resource.writer
        if writer is not None:
            writer.counts.mismatches += 1

    # -- what the table wants done -------------------------------------------------------------------------

    def _perform(self) -> None:
        """Do what is to be done. What that brings about is done after it, not in its middle; but guards are
        put up before anything else happens, for appends are judged by them."""
        for key in self.table.take_changed():
            partition = self.homes.partition(key)
            if partition is not None:
                self._refresh(partition)
        if self._is_performing:
            return
        self._is_performing = True
        try:
            while effects := self.table.take_effects():
                for effect in effects:
                    self._do(effect)
        finally:
            self._is_performing = False
        self._set_timers()

    def _do(self, effect: OwnershipEffect) -> None:
        match effect:
            case Write():
                ensureDeferred(self._write(effect)).addErrback(self._failed)
            case Sever(connection_id, reason):
                connection = self._connections.get(connection_id)
                if connection is not None:
                    _log.info("Severing %s: %s", connection, reason)
                    connection.close(reason)
            case AwaitCommit(fence):
                self._await_commit(fence)
            case AnswerClaim(ticket, standings, fences):
                self._answers.answer(ticket, standings, [each for each in fences if not self._is_met(each)])
            case Fail(ticket, error):
                self._answers.fail(ticket, error)
            case Tell(connection_id, is_ping):
                if self._renewals.changed(connection_id) and is_ping:
                    self.table.pinged(connection_id, self.now_ms())
            case Reload(key):
                self.homes.reread(key).addErrback(self._failed)
            case Audit(line):
                _audit.info("%s", line)

    async def _write(self, write: Write) -> None:
        """Have it written, and tell the table what has become of that."""
        operation = write.operation
        try:
            replacements = [
                Replacement(item.key, item.record, item.version, self.homes.home(item.key))
                for item in write.items
            ]
            await self._writing.acquire()
            try:
                versions = await self._store.write(replacements)
            finally:
                self._writing.release()
        except NotLeading as error:
            self._not_written(write, error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)))
        except TooLarge as error:
            message = f"{error}: claim fewer at a time"
            self._not_written(write, error_for(ErrorCode.POLICY_VIOLATION, message))
        except BrokerError as error:
            self._not_written(write, error)
        except (Superseded, ZooKeeperError, BadZnode) as error:
            if not isinstance(error, SessionExpired):
                _log.error("Ownership could not be written: %s", error)
            for item in write.items:
                await self.homes.reread(item.key)
            message = "what is written of the owner has changed: try again"
            self._not_written(write, error_for(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, message))
        else:
            by_key: dict[ResourceKey, int] = {
                item.key: version for item, version in zip(write.items, versions, strict=True)
            }
            self.table.written(operation, by_key, self.now_ms())
            self._perform()

    def _not_written(self, write: Write, error: BrokerError) -> None:
        self.table.not_written(write.operation, error, self.now_ms())
        self._perform()

    def _failed(self, failure: Failure) -> None:
        if failure.check(SessionExpired) is None:
            _log.error("Ownership: %s", failure.getTraceback())

    # -- fences --------------------------------------------------------------------------------------------

    def _is_met(self, fence: Fence) -> bool:
        partition = self.homes.partition(fence.key)
        return partition is not None and partition.high_watermark >= fence.offset

    def _await_commit(self, fence: Fence) -> None:
        if self._is_met(fence):
            self._committed(fence)
            return
        partition = self.homes.partition(fence.key)
        if partition is None:
            return

        def check(_: object) -> bool:
            if self.homes.partition(fence.key) is not partition:
                self._answers.abandon(fence, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
                return True
            if partition.high_watermark < fence.offset:
                return False
            self._committed(fence)
            self._perform()
            return True

        def expire() -> None:
            """Too many wait at this broker: look again before long."""
            if not self._is_stopped:
                self._clock.callLater(FLUSH_INTERVAL_S, self._await_commit, fence)

        self._replicas.readers.park([partition.key], MAX_WAIT_MS, check, expire)

    def _committed(self, fence: Fence) -> None:
        self.table.completed(fence)
        self._answers.committed(fence)

    # -- time ----------------------------------------------------------------------------------------------

    def _set_timers(self) -> None:
        if self._is_stopped:
            return
        next_ms = self.table.next_deadline_ms
        if next_ms is not None:
            due_ms = max(next_ms, self._read_by_ms)
            if self._timer is None or due_ms < self._timer_due_ms:
                self._set_timer(due_ms)
        if self._flush_timer is None and self.table.has_unwritten:
            self._flush_timer = self._clock.callLater(FLUSH_INTERVAL_S, self._flush)

    def _set_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self.now_ms()
        self._timer_due_ms = max(due_ms, now_ms)
        self._timer = self._clock.callLater(max(due_ms - now_ms, 1) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        late_ms = now_ms - self._timer_due_ms
        if late_ms > _STANDSTILL_MS:
            # This broker stood still, and has not yet read what owners have sent meanwhile.
            self._read_by_ms = now_ms + _STANDSTILL_MS
            self._set_timer(self._read_by_ms)
            return
        self.table.tick(now_ms)
        self._perform()

    def _flush(self) -> None:
        self._flush_timer = None
        self.table.flush(self.now_ms())
        self._perform()

    def stop(self) -> None:
        """Decide nothing any more: the broker goes down. Owners find the one that decides next."""
        self._is_stopped = True
        for timer in (self._timer, self._flush_timer):
            if timer is not None and timer.active():
                timer.cancel()
        self._answers.stop()
        self._renewals.stop()
