"""What the ownership table wants done, in this order: `service` does it.

A `Write` is durable before anything that follows from it is here at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from coordinator.ownership.records import OwnershipRecord, PartitionKey, ResourceKey
from protocol.errors import BrokerError
from protocol.messages.ownership import ResourceStanding

if TYPE_CHECKING:
    from broker.ownership.operations import Operation


class Written(NamedTuple):
    """A resource to be written; `version` is that of the znode that it replaces, -1: there is none."""

    key: ResourceKey
    record: OwnershipRecord
    version: int


@dataclass(frozen=True, slots=True)
class Write:
    """Make all of it durable, or none, then call `written` or `not_written` with the operation."""

    operation: Operation
    items: tuple[Written, ...]


class Fence(NamedTuple):
    """A grant whose owner may be told once the high watermark has reached `offset`."""

    key: PartitionKey
    group: str
    incarnation: int
    offset: int


@dataclass(frozen=True, slots=True)
class AwaitCommit:
    """Call `completed` once everything before the fence is committed."""

    fence: Fence


@dataclass(frozen=True, slots=True)
class AnswerClaim:
    """Answer a request, once everything before `fences` is committed."""

    ticket: int
    standings: tuple[ResourceStanding, ...]
    fences: tuple[Fence, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer a request with an error for the whole of it."""

    ticket: int
    error: BrokerError


@dataclass(frozen=True, slots=True)
class Sever:
    """Close a connection at once; nothing that it has queued is carried out."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Tell:
    """A connection stands otherwise than before with some resource: a Renew that waits is to be looked at.

    `is_ping`: it has to show that it lives, because another wants what it has.
    """

    connection: int
    is_ping: bool = False


@dataclass(frozen=True, slots=True)
class Reload:
    """Read what is written of a resource, and `load` it: how a write of it has ended is not known."""

    key: ResourceKey


@dataclass(frozen=True, slots=True)
class Audit:
    """One line for the audit log."""

    line: str


OwnershipEffect: TypeAlias = Write | AwaitCommit | AnswerClaim | Fail | Sever | Tell | Reload | Audit
