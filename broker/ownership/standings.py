"""How an asker stands with a resource, in the words of the protocol."""

from __future__ import annotations

from broker.ownership.resources import Entry, Resource
from coordinator.ownership.records import NameKey, Owner, ResourceKey
from protocol.errors import BrokerError, ErrorCode
from protocol.messages.ownership import NO_PARTITION, LossReason, ResourceStanding

WAITING = -1
"""The incarnation that one names who has no grant."""

_LOSSES = {
    LossReason.STOLEN: "another has claimed it",
    LossReason.RESET: "another has claimed it and reset the generation",
    LossReason.EVICTED: "an exclusive producer has taken it",
    LossReason.RELEASED: "it was released",
    LossReason.DISCONNECTED: "its connection was closed, and others have owned it since",
    LossReason.SESSION_TIMED_OUT: "nothing was heard of its owner for the session timeout",
    LossReason.FORCED: "an administrator has released it",
    LossReason.DELETED: "the topic was deleted",
}


def blank(
    key: ResourceKey, error: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> ResourceStanding:
    """A standing that says nothing but an error."""
    if isinstance(key, NameKey):
        return ResourceStanding(
            name=key.name, partition=NO_PARTITION, error_code=error, error_message=message
        )
    return ResourceStanding(name=key.topic, partition=key.index, error_code=error, error_message=message)


def refused(
    resource: Resource, group: str, error: BrokerError, reason: LossReason = LossReason.NONE
) -> ResourceStanding:
    """A claim that was refused: why, the generation in force, and who has the resource; `reason` is how the
    claimant lost what it came back for."""
    standing = blank(resource.key, error.code, error.message)
    standing.reason = reason
    entry = resource.entries.get(group)
    standing.generation = resource.peek(group).generation
    _name_owner(standing, resource, entry)
    return standing


def not_attempted(resource: Resource, group: str) -> ResourceStanding:
    """One of several resources, another of which could not be had."""
    standing = blank(resource.key, ErrorCode.OPERATION_NOT_ATTEMPTED)
    standing.generation = resource.peek(group).generation
    return standing


def queued(resource: Resource, group: str, position: int) -> ResourceStanding:
    """One that waits, at `position`."""
    standing = blank(resource.key, ErrorCode.CLAIM_QUEUED)
    entry = resource.entries.get(group)
    standing.generation = resource.peek(group).generation
    standing.position = position
    _name_owner(standing, resource, entry)
    return standing


def owned(resource: Resource, entry: Entry, leader_epoch: int) -> ResourceStanding:
    """The owner's own."""
    grant = entry.last
    assert grant is not None
    standing = blank(resource.key)
    standing.generation = grant.generation
    standing.incarnation = grant.incarnation
    standing.fence_offset = grant.fence_offset
    standing.leader_epoch = leader_epoch
    standing.is_contended = entry.is_contended
    return standing


def let_go(resource: Resource, group: str) -> ResourceStanding:
    """Of one that owns, shares or waits no more, because it was asked to."""
    standing = blank(resource.key)
    standing.generation = resource.peek(group).generation
    return standing


def shared(resource: Resource, leader_epoch: int) -> ResourceStanding:
    """A producer's with shared access."""
    standing = blank(resource.key)
    standing.leader_epoch = leader_epoch
    return standing


def fenced(resource: Resource, group: str, incarnation: int) -> ResourceStanding:
    """Of one whose grant is not in force any more, or never was."""
    entry = resource.entries.get(group)
    past = None if entry is None else entry.find(incarnation)
    reason = past.reason if past is not None else LossReason.NONE
    standing = blank(resource.key, ErrorCode.OWNERSHIP_FENCED)
    standing.generation = resource.peek(group).generation
    standing.reason = reason
    why = _LOSSES.get(reason, "others have owned it since")
    standing.error_message = (
        f"{resource.key} is not this owner's any more: {why}; generation {standing.generation} is in force. "
        "Claim it again only if this process is meant to take it"
    )
    _name_owner(standing, resource, entry)
    return standing


def detached(resource: Resource, entry: Entry, leader_epoch: int) -> ResourceStanding:
    """Of an owner that asks on another connection than its own."""
    standing = owned(resource, entry, leader_epoch)
    standing.error_code = ErrorCode.OWNERSHIP_DETACHED
    standing.error_message = f"{resource.key} is owned through another connection: resume it on this one"
    return standing


def _name_owner(standing: ResourceStanding, resource: Resource, entry: Entry | None) -> None:
    grant = None if entry is None else entry.grant
    if grant is None:
        writer = resource.writer
        grant = None if writer is None else writer.grant
    if grant is None:
        return
    owner: Owner = grant.owner
    standing.owner_id = owner.owner_id
    standing.owner_client_id = owner.client_id
    standing.owner_host = owner.host
    standing.owner_since_ms = grant.since_ms
