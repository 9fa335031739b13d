"""The end of sessions, of grace periods, and of waits in the queue.

A deadline only says when to check. Requests extend sessions without moving deadlines, so a session that is
still running at its deadline gets a later one.
"""

from __future__ import annotations

from holdfast_log.broker.ownership import grants, queueing
from holdfast_log.broker.ownership.deadlines import (
    OwnerDeadline,
    ReservationDeadline,
    ResourceDeadline,
    SharerDeadline,
    WaiterDeadline,
)
from holdfast_log.broker.ownership.effects import ExamineReservation
from holdfast_log.broker.ownership.resources import Resource
from holdfast_log.broker.ownership.state import TableState
from holdfast_log.protocol.messages.ownership import LossReason


def end_or_extend(state: TableState, due: ResourceDeadline, now_ms: int) -> int | None:
    """End a session or a wait that has run out. Returns its next deadline in ms if it is still running, else
    None."""
    resource = state.resources.get(due.key)
    if resource is None:
        return None
    match due:
        case OwnerDeadline():
            return _owner(state, resource, due, now_ms)
        case WaiterDeadline():
            return _waiter(state, resource, due, now_ms)
        case SharerDeadline():
            return _sharer(state, resource, due, now_ms)
        case ReservationDeadline():
            return _reservation(state, resource, due, now_ms)


def _owner(state: TableState, resource: Resource, due: OwnerDeadline, now_ms: int) -> int | None:
    entry = resource.entries.get(due.group)
    grant = None if entry is None else entry.grant
    if entry is None or grant is None or grant.incarnation != due.incarnation:
        return None
    if grant.owner.assignment is not None:
        return None  # The group's coordinator decides whether this member is alive.
    if entry.connection is None:
        entry.deadline_ms = max(entry.deadline_ms, entry.renewed_until_ms)
        if entry.deadline_ms > now_ms:
            return entry.deadline_ms
        grants.free(state, resource, entry, LossReason.DISCONNECTED, now_ms)
        return None
    heard_ms = max(state.last_heard_ms(entry.connection), entry.renewed_ms)
    until_ms = heard_ms + grant.owner.session_timeout_ms
    if entry.pinged_ms >= 0:
        if heard_ms >= entry.pinged_ms:
            entry.pinged_ms = -1
        else:
            until_ms = min(until_ms, entry.pinged_ms + state.settings.ping_timeout_ms)
    if until_ms > now_ms:
        return until_ms
    grants.free(state, resource, entry, LossReason.SESSION_TIMED_OUT, now_ms)
    return None


def _waiter(state: TableState, resource: Resource, due: WaiterDeadline, now_ms: int) -> int | None:
    waiter = due.waiter
    if waiter not in resource.waiters:
        return None
    until_ms = queueing.waiter_deadline_ms(waiter, state.last_heard_ms(waiter.connection))
    if until_ms > now_ms:
        return until_ms
    queueing.dequeue(state, resource, waiter)
    return None


def _sharer(state: TableState, resource: Resource, due: SharerDeadline, now_ms: int) -> int | None:
    sharer = resource.sharers.get(due.connection)
    if sharer is None:
        return None
    until_ms = state.last_heard_ms(due.connection) + sharer.owner.session_timeout_ms
    if until_ms > now_ms:
        return until_ms
    queueing.sever_silent_sharer(state, resource, due.connection)
    return None


def _reservation(state: TableState, resource: Resource, due: ReservationDeadline, now_ms: int) -> int | None:
    if resource.reserved_for is None:
        return None
    state.effects.append(ExamineReservation(due.key))
    return now_ms + resource.reserved_for.session_timeout_ms
