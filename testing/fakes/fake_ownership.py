"""Ownership in a fake cluster: the broker's own handlers and ownership table behind the real protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.task import Clock

from holdfast_log.broker.handlers.describe_owners import DescribeOwnersHandler
from holdfast_log.broker.handlers.force_release import ForceReleaseHandler
from holdfast_log.broker.handlers.own import OwnHandler
from holdfast_log.broker.handlers.producer_access import ProducerAccessHandler
from holdfast_log.broker.handlers.release_ownership import ReleaseHandler
from holdfast_log.broker.handlers.renew_ownership import RenewHandler
from holdfast_log.broker.handlers.resume_ownership import ResumeHandler
from holdfast_log.broker.network.connection import ANONYMOUS, ServerConnection
from holdfast_log.broker.network.interfaces import Address
from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.fences import FenceGuard
from holdfast_log.broker.ownership.interludes import BeginInterlude, Stranger
from holdfast_log.broker.ownership.operations import Operation
from holdfast_log.broker.ownership.renewals import ManyStandings, Renewals
from holdfast_log.broker.ownership.resources import NamedGrant, Requester, Resource
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.settings import OwnershipSettings, SessionTimeouts
from holdfast_log.broker.ownership.state import LogEnd
from holdfast_log.broker.replication.admission import RequestFence
from holdfast_log.broker.replication.appends import ACKS_ALL
from holdfast_log.broker.requests.handler import Handler, RequestContext, refusal
from holdfast_log.coordinator.ownership.records import NameKey, PartitionKey, ResourceKey
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.headers import RequestHeader
from holdfast_log.protocol.messages import ownership, producer_access
from holdfast_log.protocol.messages.ownership import (
    NO_PARTITION,
    PRODUCERS_GROUP,
    Access,
    ResourceStanding,
)
from holdfast_log.testing.fakes.handlers import AnswersAtOnce
from holdfast_log.testing.fakes.table_host import TableHost

if TYPE_CHECKING:
    from holdfast_log.testing.fakes.fake_broker import FakeChannel
    from holdfast_log.testing.fakes.fake_cluster import FakeCluster

FEATURES = {ownership.FEATURE: 1, producer_access.FEATURE: 1}
_START_MS = 1_000_000
_ROUNDING_S = 1e-6
_PEER = Address("127.0.0.1", 40_000)


@dataclass(frozen=True, slots=True)
class _Connection:
    """The connection of a request, with the fields that handlers read."""

    id: int
    peer: Address = _PEER
    principal: str = ANONYMOUS


class FakeOwnership(TableHost):
    """The owners in a fake cluster. A write is durable at once. The group coordinator decides on names."""

    def __init__(self, cluster: FakeCluster, settings: OwnershipSettings | None = None) -> None:
        self._cluster = cluster
        self._connections: dict[FakeChannel, int] = {}
        super().__init__(settings)
        self._clock = Clock()
        """The clock of waiting Renew requests. It starts at 0, as the cluster's clock does."""
        self.renewals = Renewals(self._clock, self.standings, self.table.renewed)
        self.asked = 0
        """The broker whose request is being handled."""
        service = cast(OwnershipService, _Service(self))
        timeouts = SessionTimeouts(0, 2**31 - 1)
        handlers: list[Handler[Any, Any]] = [
            OwnHandler(service, timeouts),
            ResumeHandler(service, timeouts),
            ReleaseHandler(service),
            RenewHandler(service, AnswersAtOnce()),
            ProducerAccessHandler(service, timeouts),
            DescribeOwnersHandler(service, AnswersAtOnce()),
            ForceReleaseHandler(service),
        ]
        self._handlers = {each.request: each for each in handlers}

    # Called by the table

    def time_ms(self) -> int:
        return _START_MS + self._cluster.time_ms

    def log_end(self, key: PartitionKey) -> LogEnd:
        partition = self._cluster.partition(key.topic, key.index)
        assert partition is not None
        return LogEnd(partition.end_offset, partition.leader_epoch)

    def high_watermark(self, key: PartitionKey) -> int:
        return self.log_end(key).end_offset

    def sever(self, connection: int) -> None:
        for channel, known in list(self._connections.items()):
            if known == connection:
                channel.cut()
                self._close(channel)

    def notify(self, connection: int, is_ping: bool) -> None:
        is_told = self.renewals.changed(connection)
        if is_ping and (is_told or self.renewals.relies_on_ping(connection)):
            self.table.pinged(connection, self.time_ms())

    # What happens in the cluster

    def tick(self) -> None:
        """Carry out everything that is due."""
        for channel in [each for each in self._connections if each.is_closed or each.is_cut]:
            self._close(channel)
        self.table.tick(self.time_ms())
        self.perform()
        now_s = self._cluster.time_ms / 1000
        self._clock.advance(now_s + _ROUNDING_S - self._clock.seconds())
        self._clock.rightNow = now_s

    def next_ms(self) -> list[int]:
        """Times of the next due events on the cluster's clock."""
        times = [round(call.getTime() * 1000) for call in self._clock.calls]
        deadline_ms = self.table.next_deadline_ms
        return times if deadline_ms is None else [*times, deadline_ms - _START_MS]

    def heard(self, channel: FakeChannel) -> None:
        """Note that bytes arrived on a channel."""
        if channel in self._connections:
            self.last_heard_ms[self._connections[channel]] = self.time_ms()

    def begin_anew(self, topic: str, index: int) -> None:
        """Make the leader of a partition forget what is not written, as a new leader would."""
        key = resource_key(PRODUCERS_GROUP, topic, index)
        self.table.unload(key, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), self.time_ms())
        if key in self.znodes:
            self.load(key)

    def partition_count(self, topic: str) -> int:
        return len(self._cluster.topics[topic])

    def may_write(
        self, channel: FakeChannel, topic: str, index: int, fence: RequestFence | None = None
    ) -> ErrorCode:
        """The error for an append that arrived on a channel; NONE if the append is allowed. A stranger's ends
        the grant of an owner that is gone. On a partition that nobody has owned, no fence is judged."""
        key = resource_key(PRODUCERS_GROUP, topic, index)
        assert isinstance(key, PartitionKey)
        resource = self.table.resource(key)
        if resource is not None and fence is not None:
            try:
                FenceGuard(resource.key, resource, lambda _: None, lambda: True).admit_append(fence, ACKS_ALL)
            except BrokerError as error:
                return error.code
            return ErrorCode.NONE
        if resource is not None and resource.absent_writer is not None:
            self.answer(self.submit(BeginInterlude(Stranger(key, "stranger", ""))))
        writer = None if resource is None else resource.writer
        connection = self._connections.get(channel)
        if resource is None or writer is None or writer.connection == connection:
            return ErrorCode.NONE
        if connection in resource.former_owners:
            return ErrorCode.PRODUCER_FENCED
        holdings = None if connection is None else self.table.holdings(connection)
        has_claimed = holdings is not None and key in holdings.keys
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if has_claimed else ErrorCode.POLICY_VIOLATION

    def may_read(self, channel: FakeChannel, topic: str, index: int) -> bool:
        """Whether a channel may fetch: not if another client is the reader in a group that it has named. Its
        fetch ends the grant of such a reader that is gone."""
        key = resource_key(PRODUCERS_GROUP, topic, index)
        assert isinstance(key, PartitionKey)
        resource = self.table.resource(key)
        holdings = self.table.holdings(self._connections.get(channel, -1))
        if resource is None or holdings is None:
            return True
        for group in holdings.groups:
            if group in resource.entries and resource.entries[group].has_absent_reader:
                self.answer(self.submit(BeginInterlude(Stranger(key, "stranger", "", group))))
        entries = [resource.entries.get(group) for group in holdings.groups]
        readers = [entry.connection for entry in entries if entry is not None and entry.reads]
        return all(reader == self._connections[channel] for reader in readers)

    def _id(self, channel: FakeChannel) -> int:
        if channel not in self._connections:
            connection = self._connections[channel] = next(self.tickets)
            self.last_heard_ms[connection] = self.time_ms()
            self.table.connection_opened(connection)
        return self._connections[channel]

    def _close(self, channel: FakeChannel) -> None:
        connection = self._connections.pop(channel)
        self.renewals.forget(connection)
        self.table.connection_closed(connection, self.time_ms())
        self.perform()

    # Requests

    def handles(self, request: Request[Any]) -> bool:
        return type(request) in self._handlers

    def respond(
        self, node: int, channel: FakeChannel, header: RequestHeader, request: Request[Any], error: ErrorCode
    ) -> Response | None:
        """The response of a broker; None if it comes later."""
        handler = self._handlers[type(request)]
        connection = cast(ServerConnection, _Connection(self._id(channel)))
        context = RequestContext(header.api_version, header.client_id or "", connection)
        if error:
            return cast(Response, handler.failed(context, request, BrokerError(error)))
        self.asked = node
        answers: list[Response] = []
        done: Deferred[Any] = maybeDeferred(handler.handle, context, request)
        done.addErrback(lambda failure: handler.failed(context, request, refusal(failure)))
        done.addCallback(answers.append)
        if answers:
            return answers[0]
        slot = channel.reserve()
        done.addCallback(lambda _: channel.fill(slot, header, answers[0]))
        return None

    def standings(self, requester: Requester, named: Sequence[NamedGrant]) -> Standings:
        return [self.table.standing(requester, each) for each in named]

    def leader(self, key: ResourceKey) -> int | None:
        """The broker that decides about a resource."""
        if isinstance(key, NameKey):
            return self._cluster.groups.node
        partition = self._cluster.partition(key.topic, key.index)
        return None if partition is None else partition.leader


class _Service:
    """The parts of `OwnershipService`, and of its `DecidedResources`, that the handlers use."""

    def __init__(self, owners: FakeOwnership) -> None:
        self._owners = owners
        self.now_ms = owners.time_ms
        self.last_heard_ms = owners.last_heard_ms.__getitem__
        self.decided = self

    def submit(
        self, _: ServerConnection | None, operation: Operation, timeout_ms: int
    ) -> Deferred[Standings]:
        try:
            return succeed(self._owners.answer(self._owners.submit(operation)))
        except BrokerError as error:
            return fail(error)

    def partition_count(self, first: PartitionKey) -> Deferred[int]:
        return succeed(self._owners.partition_count(first.topic))

    def renew(
        self, _: ServerConnection, requester: Requester, named: Sequence[NamedGrant], max_wait_ms: int
    ) -> Deferred[Standings]:
        return self._owners.renewals.renew(requester, named, max_wait_ms)

    async def await_many(
        self,
        _: ServerConnection,
        requester: Requester,
        count: int,
        standings: Callable[[int, int], Standings],
        max_wait_ms: int,
    ) -> None:
        await self._owners.renewals.await_many(requester, count, standings, max_wait_ms)

    def look(self, requester: Requester, named: NamedGrant) -> ResourceStanding:
        return self._owners.table.standing(requester, named)

    def answered(self, requester: Requester, named: NamedGrant) -> None:
        self._owners.table.renewed(requester, (named,))

    def answered_many(self, requester: Requester, answered: ManyStandings) -> None:
        self._owners.renewals.note_many(requester, answered)

    def access(self, group: str, key: ResourceKey) -> Access:
        return self._owners.table.access(group, key)

    def read_names(self, group: str) -> Deferred[None]:
        return succeed(None)

    def read_all_names(self) -> Deferred[None]:
        return succeed(None)

    def resources(self) -> list[Resource]:
        """Those that the asked broker decides about."""
        owners = self._owners
        return [each for each in owners.table.resources() if owners.leader(each.key) == owners.asked]

    def locate(self, group: str, name: str, partition: int) -> ResourceKey:
        key = resource_key(group, name, partition)
        if self._owners.leader(key) != self._owners.asked:
            is_name = isinstance(key, NameKey)
            raise BrokerError(ErrorCode.NOT_COORDINATOR if is_name else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return key

    def partition(self, key: PartitionKey) -> None:
        """None: a fake partition has no log settings that could forbid an access mode."""


def resource_key(group: str, name: str, partition: int) -> ResourceKey:
    if partition == NO_PARTITION:
        return NameKey(group, name)
    return PartitionKey(uuid.uuid5(uuid.NAMESPACE_DNS, name), partition, name)
