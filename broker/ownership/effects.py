"""What the ownership table asks its service to do: values, to be performed in the order given.

The table asks for the consequences of a `Write` only once that write is durable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from holdfast_log.coordinator.ownership.records import Forgotten, OwnershipRecord, PartitionKey, ResourceKey
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.ownership import ResourceStanding


class RecordWrite(NamedTuple):
    """A record to write, or a name to forget. `version` is that of the znode that it replaces; -1: there is
    none yet."""

    key: ResourceKey
    record: OwnershipRecord | Forgotten
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """Write all of `items`, or none; then call `written` or `not_written` with `number`."""

    number: int
    items: tuple[RecordWrite, ...]


class Fence(NamedTuple):
    """A grant whose owner is answered once its fence, at `offset`, is settled (see `fence_commits`)."""

    key: PartitionKey
    group: str
    incarnation: int
    offset: int


@dataclass(frozen=True, slots=True)
class AwaitCommit:
    """Call `fence_committed` once the fence is settled."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class AnswerTicket:
    """Answer a request, once all of `fences` are settled."""

    ticket: int
    standings: tuple[ResourceStanding, ...]
    fences: tuple[Fence, ...] = ()


@dataclass(frozen=True, slots=True)
class FailTicket:
    """Answer a request with one error for the whole of it."""

    ticket: int
    error: BrokerError


@dataclass(frozen=True, slots=True)
class Sever:
    """Close a connection at once, and carry out nothing that it has queued."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Notify:
    """The standing of a connection with some resource has changed: look at its waiting Renew requests.

    `is_ping`: another client wants what this connection owns, so its owner has to show that it lives.
    """

    connection: int
    is_ping: bool = False


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the record of a resource and `load` it: the outcome of a write is unknown."""

    key: ResourceKey


@dataclass(frozen=True, slots=True)
class ExamineReservation:
    """Read whether the topic of a reserved partition still has the owner for whom the partition is kept, and
    call `reserve`."""

    key: PartitionKey


@dataclass(frozen=True, slots=True)
class Audit:
    """Write one line to the audit log."""

    line: str


OwnershipEffect: TypeAlias = (
    Write | AwaitCommit | AnswerTicket | FailTicket | Sever | Notify | Reload | ExamineReservation | Audit
)
