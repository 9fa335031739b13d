"""What a grant changes in the table: it is put into force, attached to a connection, detached, and ended."""

from __future__ import annotations

from dataclasses import replace

from holdfast_log.broker.ownership import queueing
from holdfast_log.broker.ownership.deadlines import OwnerDeadline
from holdfast_log.broker.ownership.effects import Audit, AwaitCommit, Fence, Sever
from holdfast_log.broker.ownership.resources import Entry, Resource, interrupted, revived
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import NEVER_MS, Grant, Owner, PartitionKey, ResourceKey
from holdfast_log.protocol.messages.ownership import Access, LossReason


def revive(state: TableState, resource: Resource, entry: Entry, owner: Owner, *, is_written: bool) -> None:
    """Put the latest grant into force again, for `owner` as it describes itself now, whether the grant
    had ended or not."""
    grant = entry.last
    assert grant is not None
    again = revived(grant, owner)
    if again == grant:
        return
    entry.amend(again)
    state.not_free(resource.key)
    if grant.has_ended:
        state.audit(resource, entry, "resumed")
    if not is_written:
        state.unwritten[resource.key] = None


def install(
    state: TableState,
    resource: Resource,
    group: str,
    grant: Grant,
    loss: LossReason,
    connection: int | None,
    now_ms: int,
) -> Fence | None:
    """Put a durable grant into force: from now on no other client writes. `connection` is None for a
    member of a consumer group that has not attached itself yet.

    Returns the fence that has to be committed before the owner is answered; None if there is none.
    """
    stolen_from: list[str] = []
    event = "granted"
    for loser in resource.losers(group, grant.owner.access):
        assert loser.last is not None
        before = loser.last.owner
        if (before.owner_id, before.secret_digest) != (grant.owner.owner_id, grant.owner.secret_digest):
            stolen_from.append(before.owner_id)
            if loser.group == group:
                event = f"granted, taken from {before.owner_id!r} ({loss.name})"
        # A change of owner within the group is one line of the audit log, not two.
        lose(state, resource, loser, loss, to=connection, is_audited=loser.group != group)
    if Access.WRITE in grant.owner.access:
        for sharer in list(resource.sharers.values()):
            queueing.evict(state, resource, sharer, to=connection)
    state.not_free(resource.key)
    entry = resource.entry(group)
    fence = fence_of(state, resource.key, group, grant)
    entry.push(grant if fence is None else replace(grant, fence_offset=fence.offset))
    resource.incarnation = grant.incarnation
    resource.write_incarnation = resource.write_incarnation_with(grant)
    if Access.WRITE in grant.owner.access:
        resource.reserved_for = None
    resource.trim()
    entry.is_complete = entry.is_fence_final = fence is None
    entry.is_contended = False
    for counts in (entry.counts, state.totals):
        counts.claims += 1
        counts.steals += bool(stolen_from)
    state.audit(resource, entry, event)
    if connection is None:
        state.mark_changed(resource.key)
    else:
        attach(state, resource, entry, connection, now_ms)
    return fence


def fence_of(state: TableState, key: ResourceKey, group: str, grant: Grant) -> Fence | None:
    """The fence of a grant: the end of the log now. None for a name, and for a member of a group."""
    if not isinstance(key, PartitionKey) or grant.owner.assignment is not None:
        return None
    return Fence(key, group, grant.incarnation, state.log_end(key).end_offset)


def interrupt(state: TableState, resource: Resource, entry: Entry, interlude: Grant) -> None:
    """Put a durable interlude into force: from now on the owner that is gone cannot resume its grant, and
    strangers may write or read."""
    assert entry.last is not None
    gone = entry.last.owner
    fence = fence_of(state, resource.key, entry.group, interlude)
    if fence is not None:
        interlude = replace(interlude, fence_offset=fence.offset)
        state.effects.append(AwaitCommit(fence))
    entry.history = interrupted(entry.history, interlude)
    resource.incarnation = interlude.incarnation
    resource.write_incarnation = resource.write_incarnation_with(interlude)
    resource.trim()
    entry.is_complete = entry.is_fence_final = fence is None
    entry.is_contended = False
    state.effects.append(
        Audit(
            f"ended for good ({interlude.reason.name}): {resource.key} in group {entry.group!r}, by "
            f"client {interlude.owner.client_id!r} {interlude.owner.principal}; owner {gone.owner_id!r} "
            f"at {gone.host} was away. Generation {interlude.generation}, incarnation "
            f"{interlude.incarnation} from offset {interlude.fence_offset}"
        )
    )
    state.mark_changed(resource.key)


def attach(state: TableState, resource: Resource, entry: Entry, connection: int, now_ms: int) -> None:
    """Make `connection` the connection of the entry's owner, and sever the one that it had before."""
    grant = entry.grant
    assert grant is not None
    previous = entry.connection
    entry.connection = connection
    entry.pinged_ms = entry.renewed_ms = NEVER_MS
    state.mark_changed(resource.key)
    if previous not in (None, connection):
        state.effects.append(
            Sever(previous, f"the owner of {resource.key} has attached itself on another connection")
        )
    if connection not in state.connections:
        detach(state, resource, entry, now_ms)
        return
    resource.former_owners.pop(connection, None)
    state.link(connection, resource.key)
    if grant.owner.assignment is None:
        watch_owner(state, resource.key, entry, now_ms + grant.owner.session_timeout_ms)


def detach(state: TableState, resource: Resource, entry: Entry, now_ms: int) -> None:
    """The owner's connection has closed: it may resume within `own.release.grace.ms`, or as long as its
    renewals on other connections keep its session."""
    entry.connection = None
    if entry.last is not None and entry.last.owner.assignment is not None:
        state.mark_changed(resource.key)
        return
    until_ms = max(now_ms + state.settings.release_grace_ms, entry.renewed_until_ms)
    if until_ms > now_ms:
        watch_owner(state, resource.key, entry, until_ms)
        state.mark_changed(resource.key)
    else:
        free(state, resource, entry, LossReason.DISCONNECTED, now_ms)


def free(
    state: TableState,
    resource: Resource,
    entry: Entry,
    reason: LossReason,
    now_ms: int,
    *,
    is_written: bool = False,
) -> None:
    """End an ownership without a successor. `is_written`: its record says so already."""
    lose(state, resource, entry, reason)
    state.note_free(resource.key, now_ms)
    if not is_written:
        state.unwritten[resource.key] = None
    state.offer(resource)


def lose(
    state: TableState,
    resource: Resource,
    entry: Entry,
    reason: LossReason,
    to: int | None = None,
    *,
    is_audited: bool = True,
) -> None:
    """Take the resource from its owner, and sever the owner's connection, unless the resource goes `to`
    that same connection or its owner has released it."""
    grant = entry.last
    assert grant is not None
    connection, entry.connection = entry.connection, None
    entry.amend(grant.ended(reason, state.date_ms()))
    state.deadlines.cancel(OwnerDeadline(resource.key, entry.group, grant.incarnation))
    if not grant.has_ended:
        state.losses[reason] += 1
    if is_audited and not grant.has_ended:
        state.audit(resource, entry, f"lost ({reason.name})")
    state.mark_changed(resource.key)
    if connection is None or connection == to:
        return
    if grant.owner.assignment is not None:
        return  # The member still reads other partitions on it. The guard refuses this one.
    if reason is LossReason.RELEASED:
        _remember_former_owner(state, resource, connection)
        state.unlink(connection, resource)
        return
    state.effects.append(Sever(connection, f"it lost {resource.key} ({reason.name})"))


def _remember_former_owner(state: TableState, resource: Resource, connection: int) -> None:
    if connection in state.connections and isinstance(resource.key, PartitionKey):
        resource.former_owners[connection] = None


def watch_owner(state: TableState, key: ResourceKey, entry: Entry, at_ms: int) -> None:
    """Look at an owner's session at `at_ms`, which is its deadline from now on."""
    assert entry.last is not None
    entry.deadline_ms = at_ms
    state.watch(OwnerDeadline(key, entry.group, entry.last.incarnation), at_ms)
