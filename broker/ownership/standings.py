"""The standing of a requester with a resource, as the protocol's `ResourceStanding`."""

from __future__ import annotations

from holdfast_log.broker.ownership.resources import NO_GRANT, Entry, NamedGrant, Requester, Resource
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.ownership.records import NO_OFFSET, Grant, NameKey, Owner, ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.ownership import NO_PARTITION, LossReason, ResourceStanding

_LOSSES = {
    LossReason.STOLEN: "another owner has claimed it",
    LossReason.RESET: "another owner has claimed it and reset the generation",
    LossReason.EVICTED: "an exclusive producer has taken it",
    LossReason.RELEASED: "its owner has released it",
    LossReason.DISCONNECTED: "its owner's connection closed, and another client has owned it since",
    LossReason.SESSION_TIMED_OUT: "its owner sent nothing for the session timeout",
    LossReason.FORCED: "an administrator has released it",
    LossReason.DELETED: "the topic was deleted",
    LossReason.FOREIGN_APPEND: (
        "its owner was gone, and a client that does not own it has written to it before the owner came back"
    ),
    LossReason.FOREIGN_FETCH: (
        "its owner was gone, and another connection of the group has read it before the owner came back"
    ),
}


def current(
    resource: Resource,
    requester: Requester,
    named: NamedGrant,
    leader_epoch: int,
    settings: OwnershipSettings,
) -> ResourceStanding:
    """The present standing of an owner, a waiter or a sharer."""
    group, owner_id = requester.group, requester.owner.owner_id
    entry = resource.entries.get(group)
    grant = None if entry is None else entry.grant
    if entry is not None and grant is not None and requester.owns(grant, entry.connection):
        if entry.connection == requester.connection:
            if not entry.is_complete:
                return queued(resource, group, 0)
            return owned(resource, entry, leader_epoch, settings)
        if named.incarnation == grant.incarnation:
            return detached(resource, entry, leader_epoch, settings)
    if named.incarnation != NO_GRANT:
        return fenced(resource, group, named.incarnation)
    waiting = resource.waiter(requester.claimant)
    if waiting is not None:
        return queued(resource, group, waiting[0])
    sharer = resource.sharers.get(requester.connection)
    if sharer is not None and sharer.owner.owner_id == owner_id:
        return shared(resource, leader_epoch)
    return outcome(named.key, ErrorCode.REQUEST_TIMED_OUT, f"this claim no longer waits for {named.key}")


def outcome(
    key: ResourceKey, error: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> ResourceStanding:
    """A standing with an error, or with none, and nothing else."""
    if isinstance(key, NameKey):
        return ResourceStanding(
            name=key.name, partition=NO_PARTITION, error_code=error, error_message=message
        )
    return ResourceStanding(name=key.topic, partition=key.index, error_code=error, error_message=message)


def refused(
    resource: Resource, group: str, error: BrokerError, lost: Grant | None = None
) -> ResourceStanding:
    """A refused claim: the error, the generation in force, and the owner.

    `lost` is the grant that the claimant wants to resume, if it is remembered.
    """
    standing = outcome(resource.key, error.code, error.message)
    if lost is not None:
        standing.reason = lost.reason
        standing.fence_offset = resource.peek(group).end_of(lost)
    entry = resource.entries.get(group)
    standing.generation = resource.peek(group).generation
    _name_owner(standing, resource, entry)
    return standing


def not_attempted(resource: Resource, group: str) -> ResourceStanding:
    """A resource in a request that is refused because of another resource."""
    standing = outcome(resource.key, ErrorCode.OPERATION_NOT_ATTEMPTED)
    standing.generation = resource.peek(group).generation
    return standing


def queued(resource: Resource, group: str, position: int) -> ResourceStanding:
    """A claim in the queue at `position`, counted from 1. 0: granted, and waiting for its fence."""
    standing = outcome(resource.key, ErrorCode.CLAIM_QUEUED)
    entry = resource.entries.get(group)
    standing.generation = resource.peek(group).generation
    standing.position = position
    _name_owner(standing, resource, entry)
    return standing


def owned(
    resource: Resource, entry: Entry, leader_epoch: int, settings: OwnershipSettings
) -> ResourceStanding:
    """A resource that the requester owns."""
    grant = entry.last
    assert grant is not None
    standing = outcome(resource.key)
    standing.generation = grant.generation
    standing.incarnation = grant.incarnation
    standing.fence_offset = grant.fence_offset
    standing.leader_epoch = leader_epoch
    standing.is_contended = entry.is_contended
    if grant.owner.assignment is None:
        standing.session_bound_ms = min(grant.owner.session_timeout_ms, settings.ping_timeout_ms)
    return standing


def released(resource: Resource, group: str) -> ResourceStanding:
    """A resource that the requester no longer owns, shares or waits for, as was asked."""
    standing = outcome(resource.key)
    standing.generation = resource.peek(group).generation
    return standing


def shared(resource: Resource, leader_epoch: int) -> ResourceStanding:
    """A partition to which a producer has shared access."""
    standing = outcome(resource.key)
    standing.leader_epoch = leader_epoch
    return standing


def fenced(resource: Resource, group: str, incarnation: int) -> ResourceStanding:
    """A resource that the requester has lost: the grant that it names is not in force."""
    entry = resource.entries.get(group)
    past = None if entry is None else entry.find(incarnation)
    reason = past.reason if past is not None else LossReason.NONE
    standing = outcome(resource.key, ErrorCode.OWNERSHIP_FENCED)
    standing.generation = resource.peek(group).generation
    standing.reason = reason
    if entry is not None and past is not None:
        standing.fence_offset = entry.end_of(past)
    why = loss_of(entry, past)
    if entry is None or not entry.history:
        why = "this broker knows no grant of it, because nobody has owned it for long, or ever"
    if entry is not None and past is not None and past is entry.grant:
        why = "the grant in force is another client's: the request lacks the secret of the claim"
    standing.error_message = (
        f"this owner has lost {resource.key}: {why}; generation {standing.generation} is in force. "
        "Claim it again only if this process is meant to take it"
    )
    _name_owner(standing, resource, entry)
    return standing


def loss_of(entry: Entry | None, grant: Grant | None) -> str:
    """How the owner has lost a grant, as a clause of a message, with the offset where others have begun."""
    if entry is None or grant is None:
        return "another client has owned it since"
    why = _LOSSES.get(grant.reason, "another client has owned it since")
    end_offset = entry.end_of(grant)
    return why if end_offset == NO_OFFSET else f"{why} (from offset {end_offset} on)"


def detached(
    resource: Resource, entry: Entry, leader_epoch: int, settings: OwnershipSettings
) -> ResourceStanding:
    """A resource that the requester owns through another connection."""
    standing = owned(resource, entry, leader_epoch, settings)
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
