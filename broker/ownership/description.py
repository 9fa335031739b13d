"""Resources as DescribeOwners shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast_log.broker.ownership.resources import Entry, Resource
from holdfast_log.coordinator.ownership.records import NEVER_MS, NO_OFFSET, Grant, NameKey, Owner
from holdfast_log.protocol.messages.ownership import NO_PARTITION, PRODUCERS_GROUP
from holdfast_log.protocol.messages.ownership_sight import (
    DescribedResource,
    DescribedSharer,
    DescribedWaiter,
    OwnershipState,
    PastGrant,
)


def describe(
    resource: Resource, now_ms: int, last_heard_ms: Callable[[int], int], *, include_history: bool
) -> Iterator[DescribedResource]:
    """A resource in each of its groups, including groups that only have waiters or sharers."""
    groups = dict.fromkeys(resource.entries)
    groups.update(dict.fromkeys(waiter.group for waiter in resource.waiters))
    if resource.sharers:
        groups[PRODUCERS_GROUP] = None
    for group in groups:
        entry = resource.peek(group)
        yield _describe_entry(resource, entry, now_ms, last_heard_ms, include_history)


def _describe_entry(
    resource: Resource,
    entry: Entry,
    now_ms: int,
    last_heard_ms: Callable[[int], int],
    include_history: bool,
) -> DescribedResource:
    key, last, counts = resource.key, entry.last, entry.counts
    is_name = isinstance(key, NameKey)
    described = DescribedResource(
        group=entry.group,
        name=key.name if isinstance(key, NameKey) else key.topic,
        partition=NO_PARTITION if isinstance(key, NameKey) else key.index,
        generation=entry.generation,
        incarnation=-1 if last is None else last.incarnation,
        state=_state(entry),
        access=0,
        fence_offset=NO_OFFSET if last is None or is_name else last.fence_offset,
        waiters=[
            DescribedWaiter(
                owner_id=waiter.owner.owner_id,
                client_id=waiter.owner.client_id,
                host=waiter.owner.host,
                remaining_ms=-1 if waiter.until_ms == NEVER_MS else max(0, waiter.until_ms - now_ms),
            )
            for waiter in resource.waiters
            if waiter.group == entry.group
        ],
        sharers=[_sharer(sharer.owner) for sharer in resource.sharers.values()]
        if entry.group == PRODUCERS_GROUP
        else [],
        history=[_past(grant) for grant in entry.history] if include_history else [],
        claims=counts.claims,
        steals=counts.steals,
        refusals=counts.refusals,
        fenced_appends=counts.fenced_appends,
        mismatches=counts.mismatches,
    )
    grant = entry.grant
    if grant is not None:
        owner = grant.owner
        described.access = int(owner.access)
        described.owner_id = owner.owner_id
        described.client_id = owner.client_id
        described.principal = owner.principal
        described.host = owner.host
        described.writer_client_id = owner.writer_client_id
        described.writer_principal = owner.writer_principal
        described.since_ms = grant.since_ms
        if owner.assignment is not None:
            return described
        described.session_timeout_ms = owner.session_timeout_ms
        until_ms = entry.deadline_ms
        if entry.connection is not None:
            until_ms = last_heard_ms(entry.connection) + owner.session_timeout_ms
        described.session_remaining_ms = max(0, until_ms - now_ms)
    return described


def _state(entry: Entry) -> OwnershipState:
    if entry.grant is None:
        return OwnershipState.FREE
    return OwnershipState.DETACHED if entry.connection is None else OwnershipState.OWNED


def _sharer(owner: Owner) -> DescribedSharer:
    return DescribedSharer(owner_id=owner.owner_id, client_id=owner.client_id, host=owner.host)


def _past(grant: Grant) -> PastGrant:
    return PastGrant(
        generation=grant.generation,
        incarnation=grant.incarnation,
        owner_id=grant.owner.owner_id,
        start_offset=grant.fence_offset,
        since_ms=grant.since_ms,
        until_ms=grant.until_ms,
        reason=grant.reason,
    )
