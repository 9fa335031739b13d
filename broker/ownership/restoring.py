"""Resources replaced by their records when this broker begins to decide, and forgotten when it stops."""

from __future__ import annotations

from dataclasses import replace

from holdfast_log.broker.ownership import grants
from holdfast_log.broker.ownership.effects import AwaitCommit, Sever
from holdfast_log.broker.ownership.resources import Entry, Resource
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import NO_OFFSET, OwnershipRecord, ResourceKey
from holdfast_log.protocol.messages.ownership import LossReason


def restore(state: TableState, key: ResourceKey, record: OwnershipRecord, version: int, now_ms: int) -> None:
    """Replace a resource by its record. Its owners are detached, unless they are attached to this broker
    with the same grant; they may resume within their session timeout, or the grace period if that is
    longer."""
    known = state.forget(key)
    resource = state.resource(key)
    resource.incarnation, resource.version = record.incarnation, version
    resource.write_incarnation, resource.floor = record.write_incarnation, record.floor
    if known is not None:
        resource.sharers, resource.former_owners = known.sharers, known.former_owners
        if not record.write_incarnation:
            resource.reserved_for = known.reserved_for
        for waiter in known.waiters:
            resource.join(waiter)
        state.waiters += len(known.waiters)
    for group, history in record.histories.items():
        entry = resource.entries[group] = Entry(group, history)
        before = None if known is None else known.entries.get(group)
        if before is not None:
            entry.counts = before.counts
        restore_owner(state, resource, entry, before, now_ms)
    for group, before in known.entries.items() if known is not None else ():
        if group not in resource.entries and before.connection is not None:
            state.effects.append(Sever(before.connection, f"no record says that it owns {key}"))
    if all(entry.grant is None for entry in resource.entries.values()):
        state.note_free(key, now_ms)
    state.weigh(key)
    state.mark_changed(key)


def restore_owner(
    state: TableState, resource: Resource, entry: Entry, before: Entry | None, now_ms: int
) -> None:
    """Take over one group's owner as it is recorded; `before` is what this broker knew of the group."""
    grant = entry.last
    assert grant is not None
    known = None if before is None else before.last
    is_same = known is not None and known.incarnation == grant.incarnation
    if before is not None and known is not None and is_same:
        if before.is_fence_final and known.fence_offset != grant.fence_offset:
            state.unwritten[resource.key] = None
        grant = replace(grant, fence_offset=known.fence_offset)
        entry.amend(grant)
        entry.is_fence_final = before.is_fence_final
    if before is not None and before.connection is not None:
        if is_same and not grant.has_ended:
            entry.connection, entry.deadline_ms = before.connection, before.deadline_ms
            entry.is_complete, entry.is_contended = before.is_complete, before.is_contended
            entry.renewed_ms = before.renewed_ms
            return
        state.effects.append(Sever(before.connection, f"{resource.key} was granted to another owner"))
    fence = grants.fence_of(state, resource.key, entry.group, grant)
    if fence is not None:
        if entry.is_fence_final and NO_OFFSET < grant.fence_offset <= fence.offset:
            fence = fence._replace(offset=grant.fence_offset)
        else:
            # The leader before this one failed before it wrote the fence, or its log was longer. What
            # this log lacks was never committed, and will not be once the replicas have followed it.
            entry.is_fence_final = False
            entry.amend(replace(grant, fence_offset=fence.offset))
        # Also of a grant that has ended: its owner may resume it.
        entry.is_complete = False
        state.effects.append(AwaitCommit(fence))
    if grant.has_ended or grant.owner.assignment is not None:
        return
    grace_ms = max(state.settings.release_grace_ms, grant.owner.session_timeout_ms)
    grants.watch_owner(state, resource.key, entry, now_ms + grace_ms)


def unload(state: TableState, key: ResourceKey, reason: LossReason = LossReason.NONE) -> None:
    """Forget a resource: another broker decides about it from now on, or, with a `reason`, no broker
    does.

    Owners keep their connections, unless the resource is deleted: they may resume at the other broker.
    """
    resource = state.forget(key)
    state.unwritten.pop(key, None)
    state.to_promote.pop(key, None)
    if resource is None:
        return
    for entry in resource.entries.values():
        if reason is LossReason.NONE:
            state.notify(entry.connection)
        elif entry.grant is not None:
            state.losses[reason] += 1
            state.audit(resource, entry, f"lost ({reason.name})")
            if entry.connection is not None and entry.grant.owner.assignment is None:
                state.effects.append(Sever(entry.connection, f"{key} was deleted"))
    for waiter in resource.waiters:
        state.notify(waiter.connection)
    state.mark_changed(key)
