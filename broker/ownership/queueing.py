"""Who has a resource beside its owner, or wants it: sharers, waiters, and owners of a whole topic."""

from __future__ import annotations

from holdfast_log.broker.ownership.deadlines import ReservationDeadline, SharerDeadline, WaiterDeadline
from holdfast_log.broker.ownership.effects import Sever
from holdfast_log.broker.ownership.resources import Resource, Sharer, Waiter
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.coordinator.ownership.records import Owner, PartitionKey


def share(
    state: TableState, resource: Resource, owner: Owner, connection: int, now_ms: int, *, is_written: bool
) -> None:
    """Let a producer write beside others. `is_written`: `record_with_sharers` has been written for it."""
    if is_written:
        resource.incarnation += 1
        resource.write_incarnation = resource.incarnation
    if connection not in state.connections:
        return
    resource.sharers[connection] = Sharer(owner, connection)
    resource.former_owners.pop(connection, None)
    state.link(connection, resource.key)
    state.watch(SharerDeadline(resource.key, connection), now_ms + owner.session_timeout_ms)


def unshare(state: TableState, resource: Resource, connection: int) -> None:
    """End the shared access of a producer."""
    if resource.sharers.pop(connection, None) is not None:
        state.deadlines.cancel(SharerDeadline(resource.key, connection))
        state.offer(resource)


def evict(state: TableState, resource: Resource, sharer: Sharer, to: int | None) -> None:
    """Take the shared access from a producer, and sever its connection, unless the resource goes `to` it."""
    del resource.sharers[sharer.connection]
    state.deadlines.cancel(SharerDeadline(resource.key, sharer.connection))
    if sharer.connection != to:
        reason = f"it shared {resource.key}, which an exclusive owner has taken"
        state.effects.append(Sever(sharer.connection, reason))


def sever_silent_sharer(state: TableState, resource: Resource, connection: int) -> None:
    """Close the connection of a sharer that sent nothing for its session timeout."""
    unshare(state, resource, connection)
    reason = f"it shared {resource.key} and sent nothing for its session timeout"
    state.effects.append(Sever(connection, reason))


def reserve(state: TableState, key: PartitionKey, owner: Owner | None, now_ms: int) -> None:
    """Keep a partition for the owner of its whole topic, if the partition never had a writer; with None,
    for nobody."""
    resource = state.resource(key)
    if resource.write_incarnation or resource.sharers:
        owner = None
    before, resource.reserved_for = resource.reserved_for, owner
    if owner is not None:
        state.watch(ReservationDeadline(key), now_ms + owner.session_timeout_ms)
    if before != owner:
        state.mark_changed(key)
        state.offer(resource)
    state.forget_if_blank(key)


def enqueue(state: TableState, resource: Resource, waiter: Waiter, now_ms: int) -> int:
    """Add a waiter to the queue. Returns its position, counted from 1."""
    behind = resource.join(waiter)
    state.waiters += 1
    for other in behind:
        state.notify(other.connection)
    state.link(waiter.connection, resource.key)
    wait_until(state, resource, waiter, waiter.until_ms, now_ms)
    return len(resource.waiters) - len(behind)


def wait_until(state: TableState, resource: Resource, waiter: Waiter, until_ms: int, now_ms: int) -> None:
    """Keep a waiter in the queue until `until_ms`, -1 for no limit. It has just sent something."""
    waiter.until_ms = until_ms
    state.watch(WaiterDeadline(resource.key, waiter), waiter_deadline_ms(waiter, now_ms))


def waiter_deadline_ms(waiter: Waiter, heard_ms: int) -> int:
    """When a waiter that last sent something at `heard_ms` loses its place."""
    session_ms = heard_ms + waiter.owner.session_timeout_ms
    return session_ms if waiter.until_ms < 0 else min(session_ms, waiter.until_ms)


def dequeue(state: TableState, resource: Resource, *leaving: Waiter) -> None:
    """Remove waiters from the queue, and notify all whose position has changed."""
    resource.leave(leaving)
    state.waiters -= len(leaving)
    for waiter in leaving:
        state.deadlines.cancel(WaiterDeadline(resource.key, waiter))
        state.notify(waiter.connection)
        state.unlink(waiter.connection, resource)
    for other in resource.waiters:
        state.notify(other.connection)
    state.offer(resource)
