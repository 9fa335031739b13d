"""The ownership table in an environment that a test controls: connections, logs that grow, and a ZooKeeper
that may be slow or fail.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from holdfast_log.broker.ownership.claims import AccessClaim, Claim, WantedResource, wait_until_ms
from holdfast_log.broker.ownership.operations import ForcedResource, ForceRelease, ReleaseHeld, Resume
from holdfast_log.broker.ownership.resources import Entry, NamedGrant, Requester, Resource
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.broker.ownership.state import LogEnd
from holdfast_log.coordinator.ownership.credentials import digest_of
from holdfast_log.coordinator.ownership.records import (
    NameKey,
    Owner,
    OwnershipRecord,
    PartitionKey,
    ResourceKey,
    decode_ownership,
)
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import PRODUCERS_GROUP, Access, LossReason, ResourceStanding
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from holdfast_log.testing.fakes.table_host import TableHost
from tests.models.ownership_requests import secret_of

TOPIC_ID = uuid.UUID(int=7)
P0 = PartitionKey(TOPIC_ID, 0, "events")
P1 = PartitionKey(TOPIC_ID, 1, "events")
NAME = NameKey("app", "leader")
SESSION_MS = 10_000
START_MS = 1_700_000_000_000


@dataclass
class Client:
    """A process with one connection at a time."""

    machine: Machine
    owner_id: str
    connection: int
    group: str = "app"
    access: Access = Access.WRITE
    writer_client_id: str | None = None
    secret: bytes = b""
    principal: str = "User:ANONYMOUS"
    host: str = "127.0.0.1"
    is_open: bool = True
    incarnations: dict[ResourceKey, int] = field(default_factory=dict)

    @property
    def requester(self) -> Requester:
        owner = Owner(
            self.owner_id,
            f"{self.owner_id}-client",
            self.principal,
            self.host,
            SESSION_MS,
            self.access,
            self.writer_client_id,
            secret_digest=digest_of(self.secret),
        )
        return Requester(self.group, owner, self.connection)

    def heard(self) -> None:
        self.machine.last_heard_ms[self.connection] = self.machine.now_ms

    def ask_claim(self, *wanted: tuple[ResourceKey, int], wait_ms: int = 0) -> int:
        """Claim without taking the answer; the operation's ticket."""
        self.heard()
        claimed = [WantedResource(key, generation) for key, generation in wanted]
        until_ms = wait_until_ms(self.machine.now_ms, wait_ms)
        return self.machine.submit(Claim(self.requester, claimed, until_ms))

    def claim_all(self, *wanted: tuple[ResourceKey, int], wait_ms: int = 0) -> list[ResourceStanding]:
        standings = self.machine.answer(self.ask_claim(*wanted, wait_ms=wait_ms))
        for (key, _), standing in zip(wanted, standings, strict=True):
            if standing.error_code == 0:
                self.incarnations[key] = standing.incarnation
        return standings

    def claim(self, key: ResourceKey, generation: int = 1, wait_ms: int = 0) -> ResourceStanding:
        (standing,) = self.claim_all((key, generation), wait_ms=wait_ms)
        return standing

    def access_to(
        self, key: PartitionKey, mode: ProducerAccessMode, epoch: int = -1, wait_ms: int = 0
    ) -> ResourceStanding:
        (standing,) = self.machine.answer(self.ask_access(key, mode, epoch, wait_ms))
        if standing.error_code == 0:
            self.incarnations[key] = standing.incarnation
        return standing

    def ask_access(self, key: PartitionKey, mode: ProducerAccessMode, epoch: int, wait_ms: int) -> int:
        """Claim access as a producer without taking the answer; the operation's ticket."""
        self.group = PRODUCERS_GROUP
        self.heard()
        until_ms = wait_until_ms(self.machine.now_ms, wait_ms)
        return self.machine.submit(AccessClaim(self.requester, key, mode, epoch, until_ms))

    def ask_resume(self, key: ResourceKey) -> int:
        self.heard()
        return self.machine.submit(Resume(self.requester, [NamedGrant(key, self.incarnations[key])]))

    def resume(self, key: ResourceKey) -> ResourceStanding:
        (standing,) = self.machine.answer(self.ask_resume(key))
        return standing

    def release(self, key: ResourceKey, incarnation: int | None = None) -> ResourceStanding:
        (standing,) = self.machine.answer(self.ask_release(key, incarnation))
        return standing

    def ask_release(self, key: ResourceKey, incarnation: int | None = None) -> int:
        """Release without taking the answer; the operation's ticket."""
        self.heard()
        named = [NamedGrant(key, self.incarnations.get(key, -1) if incarnation is None else incarnation)]
        return self.machine.submit(ReleaseHeld(self.requester, named))

    def renew(self, key: ResourceKey) -> ResourceStanding:
        self.heard()
        return self.machine.table.standing(self.requester, NamedGrant(key, self.incarnations.get(key, -1)))

    def reconnect(self) -> None:
        """Open another connection. The broker does not notice that the old one is gone."""
        self.machine.connect(self)

    def close(self) -> None:
        self.machine.close(self.connection)


class Machine(TableHost):
    """A table with its clients' connections, and logs that a test grows."""

    def __init__(self, settings: OwnershipSettings | None = None) -> None:
        self.now_ms = START_MS
        self.end_offsets: dict[PartitionKey, int] = {}
        self.high_watermarks: dict[PartitionKey, int] = {}
        self.severed: list[int] = []
        self.pings: list[int] = []
        self._open: dict[int, Client] = {}
        self._connections = 0
        super().__init__(settings)

    def time_ms(self) -> int:
        return self.now_ms

    def log_end(self, key: PartitionKey) -> LogEnd:
        return LogEnd(self.end_offsets.get(key, 0), 5)

    def high_watermark(self, key: PartitionKey) -> int:
        return self.high_watermarks.get(key, self.end_offsets.get(key, 0))

    def sever(self, connection: int) -> None:
        self.severed.append(connection)
        self.close(connection)

    def notify(self, connection: int, is_ping: bool) -> None:
        if is_ping:
            self.pings.append(connection)

    def client(
        self,
        owner_id: str,
        group: str = "app",
        access: Access = Access.WRITE,
        *,
        secret: bytes | None = None,
    ) -> Client:
        """A client with a connection. Clients with the same owner id have the same secret, unless one is
        given; b"" is a client that sends none."""
        given = secret_of(owner_id) if secret is None else secret
        client = Client(self, owner_id, -1, group, access, secret=given)
        self.connect(client)
        return client

    def connect(self, client: Client) -> None:
        self._connections += 1
        client.connection = self._connections
        client.is_open = True
        self._open[client.connection] = client
        self.last_heard_ms[client.connection] = self.now_ms
        self.table.connection_opened(client.connection)

    def close(self, connection: int) -> None:
        client = self._open.pop(connection, None)
        if client is not None and client.connection == connection:
            client.is_open = False
        self.table.connection_closed(connection, self.now_ms)
        self.perform()

    def advance(self, ms: int, *alive: Client) -> None:
        """Let time pass, while the clients in `alive` keep sending requests."""
        until_ms = self.now_ms + ms
        while True:
            due_ms = self.table.next_deadline_ms
            self.now_ms = until_ms if due_ms is None or due_ms > until_ms else max(due_ms, self.now_ms)
            for client in alive:
                client.heard()
            self.table.tick(self.now_ms)
            self.perform()
            due_ms = self.table.next_deadline_ms
            if self.now_ms == until_ms and (due_ms is None or due_ms > until_ms):
                return

    def grow(self, key: PartitionKey, records: int = 1, *, committed: bool = True) -> None:
        self.end_offsets[key] = self.end_offsets.get(key, 0) + records
        if committed:
            self.high_watermarks[key] = self.end_offsets[key]
        else:
            self.high_watermarks.setdefault(key, self.end_offsets[key] - records)
        self.perform()

    def commit(self, key: PartitionKey) -> None:
        """Commit all records of a log."""
        self.high_watermarks[key] = self.end_offsets[key]
        self.perform()

    def force_release(self, key: ResourceKey, group: str = "app", generation: int = -1) -> ResourceStanding:
        ticket = self.submit(ForceRelease(group, [ForcedResource(key, generation)]))
        (standing,) = self.answer(ticket)
        return standing

    def flush(self) -> None:
        self.table.flush(self.now_ms)
        self.perform()

    def record(self, key: ResourceKey) -> OwnershipRecord:
        """The resource's record in ZooKeeper, decoded."""
        return decode_ownership(key.path, self.znodes[key][0])

    def fail_over(self) -> None:
        """Another broker takes over: it has no connections, and loads all written records."""
        self.table = self.new_table()
        self.table.count_from(self.mark)
        self._open.clear()
        for key in self.znodes:
            self.load(key)

    def unload(self, key: ResourceKey, reason: LossReason = LossReason.NONE) -> None:
        self.table.unload(key, BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER), self.now_ms, reason)
        self.perform()

    def resource(self, key: ResourceKey) -> Resource:
        """A resource that the table holds."""
        resource = self.table.resource(key)
        assert resource is not None
        return resource

    def entry(self, key: ResourceKey, group: str = "app") -> Entry:
        return self.resource(key).entries[group]

    def owner_of(self, key: ResourceKey, group: str = "app") -> str | None:
        """The owner id of the connected owner; None if there is none."""
        resource = self.table.resource(key)
        entry = None if resource is None else resource.entries.get(group)
        if entry is None or entry.grant is None or entry.connection is None:
            return None
        return entry.grant.owner.owner_id


def named_record() -> OwnershipRecord:
    """The record of a name that has an owner."""
    machine = Machine()
    machine.client("ben").claim(NAME)
    return decode_ownership(NAME.path, machine.znodes[NAME][0])
