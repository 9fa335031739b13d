"""Ownership in a fake cluster: the broker's own table behind the real protocol."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from broker.ownership import standings
from broker.ownership.claims import AccessClaim, Claim, WantedResource, wait_until_ms
from broker.ownership.operations import Operation, ReleaseHeld, Resume
from broker.ownership.resources import NamedGrant, Requester
from broker.ownership.settings import OwnershipSettings
from broker.ownership.state import LogEnd
from coordinator.ownership.records import NameKey, Owner, PartitionKey, ResourceKey
from protocol.api import Request, Response
from protocol.errors import BrokerError, ErrorCode
from protocol.headers import RequestHeader
from protocol.messages import ownership, producer_access
from protocol.messages.ownership import (
    NO_PARTITION,
    PRODUCERS_GROUP,
    Access,
    OwnRequest,
    OwnResponse,
    ReleaseRequest,
    ReleaseResponse,
    RenewRequest,
    RenewResponse,
    ResourceStanding,
    ResumeRequest,
    ResumeResponse,
)
from protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.models.table_host import TableHost

if TYPE_CHECKING:
    from tests.models.fake_cluster import FakeChannel, FakeCluster, Slot

FEATURES = {ownership.FEATURE: 1, producer_access.FEATURE: 1}
REQUESTS = (OwnRequest, ResumeRequest, ReleaseRequest, RenewRequest, ProducerAccessRequest)
_START_MS = 1_000_000


Several: TypeAlias = OwnRequest | ResumeRequest | ReleaseRequest | RenewRequest
_RESPONSES: dict[type[Several], type[Response]] = {
    OwnRequest: OwnResponse,
    ResumeRequest: ResumeResponse,
    ReleaseRequest: ReleaseResponse,
    RenewRequest: RenewResponse,
}
Seen: TypeAlias = list[tuple[object, ...]]


@dataclass(eq=False)
class _Renewal:
    """A Renew that waits for something to happen."""

    channel: FakeChannel
    slot: Slot
    header: RequestHeader
    requester: Requester
    named: list[NamedGrant]
    until_ms: int


class FakeOwnership(TableHost):
    """The owners in a fake cluster. A write is durable at once. The group coordinator decides on names."""

    def __init__(self, cluster: FakeCluster, settings: OwnershipSettings | None = None) -> None:
        self._cluster = cluster
        self._connections: dict[FakeChannel, int] = {}
        self._renewals: list[_Renewal] = []
        self._known: dict[FakeChannel, Seen] = {}
        super().__init__(settings)

    # What the table stands on

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
        self._look_at(connection)

    # What happens in the cluster

    def tick(self) -> None:
        """Have happen what is due."""
        for channel in [each for each in self._connections if each.is_closed or each.is_cut]:
            self._close(channel)
        self.table.tick(self.time_ms())
        self.perform()
        for renewal in [each for each in self._renewals if each.until_ms <= self.time_ms()]:
            self._finish(renewal)

    def next_ms(self) -> list[int]:
        """When something is due, by the cluster's clock."""
        times = [renewal.until_ms for renewal in self._renewals]
        if self.table.next_deadline_ms is not None:
            times.append(self.table.next_deadline_ms)
        return [time_ms - _START_MS for time_ms in times]

    def heard(self, channel: FakeChannel) -> None:
        """Note that bytes arrived on a channel."""
        if channel in self._connections:
            self.last_heard_ms[self._connections[channel]] = self.time_ms()

    def begin_anew(self, topic: str, index: int) -> None:
        """Have the leader of a partition know no more of it than what is written, as the next leader does."""
        key = self._key(PRODUCERS_GROUP, topic, index)
        self.table.unload(key, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), self.time_ms())
        if key in self.znodes:
            self.load(key)

    def may_write(self, channel: FakeChannel, topic: str, index: int) -> ErrorCode:
        """How an append is refused that has come by a channel; NONE where it is not."""
        resource = self.table.resource(self._key(PRODUCERS_GROUP, topic, index))
        writer = None if resource is None else resource.writer
        connection = self._connections.get(channel)
        if resource is None or writer is None or writer.connection == connection:
            return ErrorCode.NONE
        return (
            ErrorCode.PRODUCER_FENCED
            if connection in resource.former_owners
            else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        )

    def may_read(self, channel: FakeChannel, topic: str, index: int) -> bool:
        """Whether a channel may fetch: not where another reads in a group that it has named."""
        resource = self.table.resource(self._key(PRODUCERS_GROUP, topic, index))
        holdings = self.table.holdings(self._connections.get(channel, -1))
        if resource is None or holdings is None:
            return True
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
        self._renewals = [each for each in self._renewals if each.channel is not channel]
        self._known.pop(channel, None)
        self.table.connection_closed(connection, self.time_ms())
        self.perform()

    # Requests

    def handles(self, request: Request[Any]) -> bool:
        return isinstance(request, REQUESTS)

    def respond(
        self, node: int, channel: FakeChannel, header: RequestHeader, request: Request[Any], error: ErrorCode
    ) -> Response | None:
        """The response of a broker; None where it comes later."""
        match request:
            case ProducerAccessRequest():
                return self._access(node, channel, header, request, error)
            case OwnRequest() | ResumeRequest() | ReleaseRequest() | RenewRequest():
                return self._about_several(node, channel, header, request, error)
        raise AssertionError(request)

    def _about_several(
        self, node: int, channel: FakeChannel, header: RequestHeader, request: Several, error: ErrorCode
    ) -> Response | None:
        requester = self._requester(request.group, request.owner_id, channel, header, request)
        response: Any = _RESPONSES[type(request)]
        if error:
            return _whole(response, request.group, error)
        found: list[tuple[Any, ResourceKey]] = []
        elsewhere: list[ResourceStanding] = []
        for row in request.resources:
            key = self._key(request.group, row.name, row.partition)
            code = self._misplaced(node, key)
            if code:
                elsewhere.append(standings.outcome(key, code))
            else:
                found.append((row, key))
        if isinstance(request, OwnRequest) and elsewhere:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            elsewhere += [standings.outcome(key, code) for _, key in found]
            found = []
        if isinstance(request, RenewRequest) and not elsewhere:
            return self._renew(channel, header, requester, request)
        rows = self._ask(requester, request, found) if found else []
        return _whole(response, request.group, ErrorCode.NONE, [*rows, *elsewhere])

    def _ask(
        self, requester: Requester, request: Several, found: list[tuple[Any, ResourceKey]]
    ) -> list[ResourceStanding]:
        if isinstance(request, OwnRequest):
            wanted = [WantedResource(key, row.generation) for row, key in found]
            until_ms = wait_until_ms(self.time_ms(), request.wait_timeout_ms)
            return self._outcome(Claim(requester, wanted, until_ms))
        named = [NamedGrant(key, row.incarnation) for row, key in found]
        if isinstance(request, RenewRequest):
            return [self.table.standing(requester, each) for each in named]
        is_resume = isinstance(request, ResumeRequest)
        return self._outcome(Resume(requester, named) if is_resume else ReleaseHeld(requester, named))

    def _outcome(self, operation: Operation) -> list[ResourceStanding]:
        return self.answer(self.submit(operation))

    def _access(
        self,
        node: int,
        channel: FakeChannel,
        header: RequestHeader,
        request: ProducerAccessRequest,
        error: ErrorCode,
    ) -> ProducerAccessResponse:
        key = self._key(PRODUCERS_GROUP, request.topic, request.partition)
        assert isinstance(key, PartitionKey)
        error = error or self._misplaced(node, key)
        if error:
            return ProducerAccessResponse(error_code=error)
        requester = self._requester(PRODUCERS_GROUP, request.producer_id, channel, header, request)
        until_ms = wait_until_ms(self.time_ms(), request.wait_timeout_ms)
        mode = ProducerAccessMode(request.mode)
        (row,) = self._outcome(AccessClaim(requester, key, mode, request.epoch, until_ms))
        return ProducerAccessResponse(
            error_code=row.error_code,
            error_message=row.error_message,
            epoch=row.generation,
            incarnation=row.incarnation,
            fence_offset=row.fence_offset,
            leader_epoch=row.leader_epoch,
            position=row.position,
            owner_id=row.owner_id,
            reason=row.reason,
        )

    def _renew(
        self, channel: FakeChannel, header: RequestHeader, requester: Requester, request: RenewRequest
    ) -> Response | None:
        for earlier in [each for each in self._renewals if each.channel is channel]:
            self._finish(earlier)
        named = [
            NamedGrant(self._key(request.group, row.name, row.partition), row.incarnation)
            for row in request.resources
        ]
        rows = [self.table.standing(requester, each) for each in named]
        if request.max_wait_ms > 0 and _seen(rows) == self._known.get(channel):
            until_ms = self.time_ms() + request.max_wait_ms
            self._renewals.append(_Renewal(channel, channel.reserve(), header, requester, named, until_ms))
            return None
        self._note(channel, requester, named, rows)
        return RenewResponse(group=request.group, error_code=0, resources=rows)

    def _look_at(self, connection: int) -> None:
        for renewal in [each for each in self._renewals if each.requester.connection == connection]:
            rows = [self.table.standing(renewal.requester, each) for each in renewal.named]
            if _seen(rows) != self._known.get(renewal.channel):
                self._finish(renewal)

    def _finish(self, renewal: _Renewal) -> None:
        self._renewals.remove(renewal)
        rows = [self.table.standing(renewal.requester, each) for each in renewal.named]
        self._note(renewal.channel, renewal.requester, renewal.named, rows)
        response = RenewResponse(group=renewal.requester.group, error_code=0, resources=rows)
        renewal.channel.fill(renewal.slot, renewal.header, response)

    def _note(
        self,
        channel: FakeChannel,
        requester: Requester,
        named: list[NamedGrant],
        rows: list[ResourceStanding],
    ) -> None:
        self.table.renewed(requester, named)
        self._known[channel] = _seen(rows, is_told=True)

    def _requester(
        self, group: str, owner_id: str, channel: FakeChannel, header: RequestHeader, request: Any
    ) -> Requester:
        owner = Owner(
            owner_id,
            header.client_id or "",
            "User:ANONYMOUS",
            "127.0.0.1",
            getattr(request, "session_timeout_ms", 0),
            Access(getattr(request, "access", Access.WRITE)),
        )
        return Requester(group, owner, self._id(channel))

    def _key(self, group: str, name: str, partition: int) -> ResourceKey:
        if partition == NO_PARTITION:
            return NameKey(group, name)
        return PartitionKey(uuid.uuid5(uuid.NAMESPACE_DNS, name), partition, name)

    def _misplaced(self, node: int, key: ResourceKey) -> ErrorCode:
        if isinstance(key, NameKey):
            return ErrorCode.NONE if self._cluster.groups.node == node else ErrorCode.NOT_COORDINATOR
        partition = self._cluster.partition(key.topic, key.index)
        is_here = partition is not None and partition.leader == node
        return ErrorCode.NONE if is_here else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _whole(response: Any, group: str, error: ErrorCode, rows: Sequence[ResourceStanding] = ()) -> Response:
    whole: Response = response(group=group, error_code=error, resources=list(rows))
    return whole


def _seen(rows: list[ResourceStanding], *, is_told: bool = False) -> Seen:
    """The parts of standings whose change answers a waiting Renew."""
    return [
        (
            row.name,
            row.partition,
            row.error_code,
            row.generation,
            row.position,
            row.is_contended and not is_told,
        )
        for row in rows
    ]
