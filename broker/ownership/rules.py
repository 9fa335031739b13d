"""The verdict on a claim: granted, repeated, shared, queued or refused.

Pure functions of a resource's state (own API, PIP-68); docs/ownership.md has the rules in words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from holdfast_log.broker.ownership import standings
from holdfast_log.broker.ownership.resources import Entry, Requester, Resource
from holdfast_log.coordinator.ownership.records import Grant, Owner, PartitionKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import (
    GENERATION_RAISE_MAX,
    IF_FREE,
    PRODUCERS_GROUP,
    RESET_GENERATION,
    Access,
    LossReason,
)
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode

FIRST_GENERATION = 1
GENERATION_MAX = 2**63 - 1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Granted:
    """The claim is granted, with this generation. Owners that it excludes lose theirs for `reason`."""

    generation: int
    reason: LossReason = LossReason.STOLEN


@dataclass(frozen=True, slots=True)
class Shared:
    """The producer is given shared access."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """The claimant owns the resource already, or may resume it: it is answered with the grant that it has."""


@dataclass(frozen=True, slots=True)
class Queued:
    """The claim has to wait in the queue."""


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The claim is refused. `lost` is the grant that the claimant wants to resume, if it is remembered."""

    error: BrokerError
    lost: Grant | None = None


Verdict: TypeAlias = Granted | Shared | Repeated | Queued | ClaimRefused


def check_generation(generation: int) -> None:
    """Raises BrokerError INVALID_GENERATION for a generation that no claim may name."""
    if generation < IF_FREE:
        raise error_for(
            ErrorCode.INVALID_GENERATION,
            f"generation {generation} cannot be claimed: name the one in force; 0 resets it, and -1 claims a "
            "free resource",
        )


def judge_claim(
    resource: Resource, requester: Requester, generation: int, *, may_wait: bool = False
) -> Verdict:
    """The own API's rule, for one resource.

    "If there is no such owner then the connection of the requesting process is made the owner and we return
    generation 1. If the existing owner has a higher generation the request fails. If the existing owner has
    an equal or lower generation the existing owner's connection is severed. Generation 0 will always succeed
    in claiming the resource, and will reset the generation." (own API)
    """
    group, owner = requester.group, requester.owner
    entry = resource.peek(group)
    in_force = entry.generation
    taken = _another_principals(resource, entry, owner)
    if taken is not None:
        return ClaimRefused(taken)
    if generation == RESET_GENERATION:
        return Granted(FIRST_GENERATION, LossReason.RESET)
    grant = entry.grant
    if grant is not None and grant.owner.assignment is not None:
        return ClaimRefused(
            _busy(
                f"{resource.key} is read by {_describe(grant.owner)}, a member of consumer group {group!r}: "
                "join that group, or claim it in another"
            )
        )
    if grant is not None and requester.owns(grant, entry.connection) and _repeats(grant, generation):
        return Repeated()
    if generation == IF_FREE:
        obstacle = _obstacle(resource, group, owner)
        if obstacle is None and not _is_awaited(resource, requester):
            return _raised(in_force)
        return (
            Queued() if may_wait else ClaimRefused(obstacle or _busy(f"other claims wait for {resource.key}"))
        )
    if in_force and generation < in_force:
        return ClaimRefused(
            error_for(
                ErrorCode.STALE_GENERATION,
                f"generation {in_force} of {resource.key} is in force, but the claim names {generation}",
            )
        )
    if in_force and generation - in_force > GENERATION_RAISE_MAX:
        return ClaimRefused(
            error_for(
                ErrorCode.INVALID_GENERATION,
                f"the claim names generation {generation} of {resource.key}, more than "
                f"{GENERATION_RAISE_MAX} above {in_force}, which is in force: name {in_force}",
            )
        )
    foreign = _foreign_writer(resource, group, owner)
    if foreign is not None:
        return ClaimRefused(foreign)
    if not in_force:
        return Granted(FIRST_GENERATION)
    return Granted(generation) if generation > in_force else _raised(in_force)


def judge_access(
    resource: Resource,
    requester: Requester,
    mode: ProducerAccessMode,
    epoch: int,
    *,
    may_wait: bool = False,
) -> Verdict:
    """The rule for a producer that requests access to a partition (PIP-68).

    The topic epoch is the generation of `PRODUCERS_GROUP`.
    """
    owner, connection = requester.owner, requester.connection
    entry = resource.peek(PRODUCERS_GROUP)
    if epoch != NO_EPOCH:
        return _judge_return(resource, entry, requester, epoch)
    taken = _another_principals(resource, entry, owner)
    if taken is not None:
        return ClaimRefused(taken)
    grant = entry.grant
    if grant is not None and requester.owns(grant, entry.connection):
        return Repeated()
    if mode is ProducerAccessMode.EXCLUSIVE_WITH_FENCING:
        verdict = _raised(entry.generation)
        return Granted(verdict.generation, LossReason.EVICTED) if isinstance(verdict, Granted) else verdict
    obstacle = _obstacle(resource, PRODUCERS_GROUP, owner, connection, ignore_sharers=_shares(mode))
    if obstacle is None and _is_awaited(resource, requester):
        obstacle = _busy(f"other producers wait for exclusive access to {resource.key}")
    if obstacle is None:
        return Shared() if _shares(mode) else _raised(entry.generation)
    return Queued() if may_wait else ClaimRefused(obstacle)


def may_promote(resource: Resource, group: str, owner: Owner, connection: int) -> bool:
    """Whether a waiter could be granted the resource now, if it were its turn."""
    return _obstacle(resource, group, owner, connection) is None


def _shares(mode: ProducerAccessMode) -> bool:
    return mode is ProducerAccessMode.SHARED


def _repeats(grant: Grant, generation: int) -> bool:
    """Whether a claim of the present owner repeats the claim that was granted, because its answer was lost.

    So does a claim of a free resource (`IF_FREE`): the owner has it. A claim that names more than the
    generation in force is a new one even if it repeats the number: the first one found the resource never
    owned, and was granted generation 1 whatever it named.
    """
    return generation == IF_FREE or (
        generation == grant.claimed_generation and generation <= grant.generation
    )


def _raised(in_force: int) -> Granted | ClaimRefused:
    if in_force >= GENERATION_MAX:
        return ClaimRefused(
            error_for(
                ErrorCode.INVALID_GENERATION,
                "the generation is at its maximum: claim generation 0 to reset it",
            )
        )
    return Granted(in_force + 1)


def _judge_return(resource: Resource, entry: Entry, requester: Requester, epoch: int) -> Verdict:
    """ "When a producer reconnects, it will pass the existing topic epoch and if it's lower than the current
    topic epoch that the broker has, the producer will be considered fenced permanently." (PIP-68)"""
    last = entry.last
    if last is not None and last.generation == epoch and can_resume(resource, entry, last, requester):
        return Repeated()
    owner_id = requester.owner.owner_id
    had = (grant for grant in reversed(entry.history) if grant.generation == epoch)
    lost = next((grant for grant in had if grant.owner.owner_id == owner_id), None)
    return ClaimRefused(
        error_for(
            ErrorCode.PRODUCER_FENCED,
            f"the topic epoch of {resource.key} is {entry.generation}; this producer had {epoch}, "
            f"which has ended for good: {standings.loss_of(entry, lost)}. Create a new producer to write "
            "again",
        ),
        lost,
    )


def can_resume(resource: Resource, entry: Entry, grant: Grant, requester: Requester) -> bool:
    """Whether the requester may resume `grant`: the grant is its own, and no other client has been granted
    the resource since."""
    return requester.owns(grant, entry.connection) and is_resumable(resource, entry, grant)


def is_resumable(resource: Resource, entry: Entry, grant: Grant) -> bool:
    """Whether a grant is in force, or was lost to silence and no other client has been granted the resource
    since."""
    if grant is not entry.last or not grant.may_resume:
        return False
    if Access.WRITE not in grant.owner.access:
        return True
    return not resource.sharers and not resource.was_written_since(grant.incarnation)


def _another_principals(resource: Resource, entry: Entry, owner: Owner) -> BrokerError | None:
    """The error for a claim under the owner id of another principal, who owns the resource: the histories
    and the log would name the one for what the other has done."""
    grant = entry.grant
    if grant is None or grant.owner.assignment is not None or grant.owner.owner_id != owner.owner_id:
        return None
    if grant.owner.principal == owner.principal:
        return None
    return error_for(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if isinstance(resource.key, PartitionKey)
        else ErrorCode.GROUP_AUTHORIZATION_FAILED,
        f"the owner id {owner.owner_id!r} is another principal's, who owns {resource.key}: choose another "
        "id, or authenticate as the user who claimed",
    )


def _is_awaited(resource: Resource, requester: Requester) -> bool:
    """Whether other claims wait for what this claim would take, and are not behind a reservation for it."""
    if resource.is_reserved_for(requester.group, requester.owner):
        return False
    writes = Access.WRITE in requester.owner.access
    return any(
        waiter.group == requester.group or (writes and Access.WRITE in waiter.owner.access)
        for waiter in resource.waiters
        if waiter.claimant != requester.claimant
    )


def _obstacle(
    resource: Resource, group: str, owner: Owner, connection: int = -1, *, ignore_sharers: bool = False
) -> BrokerError | None:
    """The error for a claim that may not take the resource from its owner; None if the resource is free."""
    entry = resource.entries.get(group)
    if entry is not None and entry.grant is not None:
        return _busy(
            f"{resource.key} is owned by {_describe(entry.grant.owner)}, generation {entry.generation}"
        )
    return _foreign_writer(resource, group, owner, connection, ignore_sharers=ignore_sharers)


def _foreign_writer(
    resource: Resource, group: str, owner: Owner, connection: int = -1, *, ignore_sharers: bool = False
) -> BrokerError | None:
    """The error for a writer in another group, an owner of the whole topic, or sharers: generations of two
    groups cannot be compared."""
    if Access.WRITE not in owner.access:
        return None
    if resource.reserved_for is not None and not resource.is_reserved_for(group, owner):
        return _busy(
            f"{resource.key} was added to a topic that {_describe(resource.reserved_for)} owns as a whole"
        )
    writer = resource.writer
    if writer is not None and writer.group != group:
        assert writer.grant is not None
        kind = f"group {writer.group!r}" if writer.group else "an exclusive producer"
        return _busy(f"{resource.key} is written by {kind}, {_describe(writer.grant.owner)}")
    sharers = len(resource.sharers) - (connection in resource.sharers)
    if sharers and not ignore_sharers:
        return _busy(f"{sharers} producers share {resource.key}")
    return None


def _describe(owner: Owner) -> str:
    client = f" ({owner.client_id})" if owner.client_id else ""
    return f"{owner.owner_id}{client} at {owner.host}"


def _busy(message: str) -> BrokerError:
    return error_for(ErrorCode.RESOURCE_OWNED, message)
