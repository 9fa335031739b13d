"""Strangers who write to, or read, a partition whose owner is gone.

An owner that was lost to silence may resume its grant, until a stranger comes first (PIP-68, failure
detection): what the stranger does must not lie within the owner's grant. So before the stranger is served, an
*interlude* is written, a grant to nobody: generation, incarnation and fence move, and the owner's grant has
ended for good, at this leader and at every later one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.defer import Deferred

from holdfast_log.broker.ownership import grants, standings
from holdfast_log.broker.ownership.confirming import unconfirmed
from holdfast_log.broker.ownership.operations import Operation, OperationAnswer, RecordsByKey
from holdfast_log.broker.ownership.resources import Entry, Resource
from holdfast_log.broker.ownership.rules import GENERATION_MAX
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.broker.replication.admission import MakeWay, Origin
from holdfast_log.coordinator.ownership.credentials import NO_SECRET
from holdfast_log.coordinator.ownership.records import Grant, Owner, PartitionKey
from holdfast_log.protocol.messages.ownership import IF_FREE, Access, LossReason

_NAME_LENGTH_MAX = 100
"""Maximum length of a stranger's names in the record."""


@dataclass(frozen=True, slots=True)
class Stranger:
    """Who comes first after an owner has gone. A writer displaces the owner that writes, in whatever group; a
    reader displaces the one that reads in `group`."""

    key: PartitionKey
    client_id: str
    principal: str
    group: str | None = None

    @property
    def reason(self) -> LossReason:
        """How the owner has lost its grant."""
        return LossReason.FOREIGN_APPEND if self.group is None else LossReason.FOREIGN_FETCH

    def displaced(self, resource: Resource) -> Entry | None:
        """The entry of the owner that is gone and could resume its grant; None if there is none."""
        if self.group is None:
            return resource.absent_writer
        entry = resource.entries.get(self.group)
        return entry if entry is not None and entry.has_absent_reader else None

    @property
    def description(self) -> Owner:
        """The stranger as the owner of the interlude. Nobody can prove to be that owner."""
        return Owner(
            "",
            self.client_id[:_NAME_LENGTH_MAX],
            self.principal[:_NAME_LENGTH_MAX],
            "",
            session_timeout_ms=0,
            access=Access.WRITE if self.group is None else Access.READ,
            secret_digest=NO_SECRET,
        )


MakeWayFor = Callable[[Stranger, int], "Deferred[None]"]
"""Has the interlude written for a stranger, in at most so many ms. Fires when that is done or has failed."""
Displace = Callable[[PartitionKey, str, int], "Deferred[None]"]
"""Has the interlude written for a connection that is about to read in a group. Fires as `MakeWayFor`."""


class BeginInterlude(Operation):
    """End the grant of an owner that is gone, for good, because a stranger is about to be served."""

    __slots__ = ("_group", "_interlude", "_stranger")

    def __init__(self, stranger: Stranger) -> None:
        super().__init__([stranger.key])
        self._stranger = stranger
        self._group = ""
        self._interlude: Grant | None = None

    def begin(self, state: TableState, now_ms: int) -> RecordsByKey:
        stranger = self._stranger
        resource = state.resource(stranger.key)
        entry = stranger.displaced(resource)
        if entry is None:
            return {}  # The owner has come back, another owner has followed, or another stranger was first.
        date_ms = state.date_ms()
        generation = min(entry.generation + 1, GENERATION_MAX)
        grant = Grant(generation, resource.incarnation + 1, stranger.description, IF_FREE, date_ms)
        self._group, self._interlude = entry.group, grant.ended(stranger.reason, date_ms)
        return {stranger.key: resource.record_with_interlude(entry.group, self._interlude)}

    def carry_out(self, state: TableState, now_ms: int) -> OperationAnswer:
        key = self._stranger.key
        if self._interlude is not None:
            resource = state.resource(key)
            grants.interrupt(state, resource, resource.entry(self._group), self._interlude)
        return OperationAnswer([standings.outcome(key)])


class AbsentWriterGuard:
    """Has the grant of a writer that is gone ended before a stranger writes.

    A client that is bound to the grant by `writer_client_id` is no stranger. `may_confirm` returns whether
    this broker has the right to confirm the partition; without it, another leader may have the owner back.
    """

    __slots__ = ("_grant", "_key", "_make_way", "_may_confirm")

    def __init__(
        self, key: PartitionKey, grant: Grant, make_way: MakeWayFor, may_confirm: Callable[[], bool]
    ) -> None:
        self._key = key
        self._grant = grant
        self._make_way = make_way
        self._may_confirm = may_confirm

    def admit(self, origin: Origin | None, acks: int) -> MakeWay | None:
        """None if `origin` may append at once, otherwise what has to be done before.

        Raises BrokerError NOT_LEADER_OR_FOLLOWER while this broker has no right to confirm the partition.
        """
        if origin is None or self._grant.owner.binds(origin.client_id, origin.principal):
            return None
        if not self._may_confirm():
            raise unconfirmed()
        stranger = Stranger(self._key, origin.client_id, origin.principal)
        return lambda timeout_ms: self._make_way(stranger, timeout_ms)

    def admits(self, origin: Origin, acks: int) -> bool:
        """Whether `origin` is bound to the grant, and may append."""
        return self._grant.owner.binds(origin.client_id, origin.principal)
