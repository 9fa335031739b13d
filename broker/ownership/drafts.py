"""Resources as they will be once something is in force: what has to be durable first."""

from __future__ import annotations

from dataclasses import replace

from broker.ownership.resources import Entry, Resource, pushed
from coordinator.ownership.records import NEVER_MS, Grant, History, OwnershipRecord, trimmed
from protocol.messages.ownership import Access, LossReason


def with_grant(
    resource: Resource, group: str, grant: Grant, loss: LossReason, date_ms: int
) -> OwnershipRecord:
    """Once `grant` is in force, and those beside whom it cannot be have lost theirs, at `date_ms`."""
    histories: dict[str, History] = {
        entry.group: entry.history for entry in resource.entries.values() if entry.history
    }
    for loser in losers(resource, group, grant.owner.access):
        assert loser.last is not None
        histories[loser.group] = (*loser.history[:-1], loser.last.ended(loss, date_ms))
    histories[group] = pushed(histories.get(group, ()), grant)
    written = write_incarnation(resource, grant)
    return trimmed(OwnershipRecord(grant.incarnation, histories, written, resource.floor))


def with_revival(resource: Resource, group: str, session_timeout_ms: int) -> OwnershipRecord:
    """Once the last grant of `group`, which is over, is in force again."""
    record = resource.record()
    *before, grant = record.histories[group]
    histories = {**record.histories, group: (*before, revived(grant, session_timeout_ms))}
    return replace(record, histories=histories)


def with_sharers(resource: Resource) -> OwnershipRecord:
    """Once producers share it: whoever wrote alone before cannot go on then as if nobody had come, not even
    when they have left again."""
    incarnation = resource.incarnation + 1
    return replace(resource.record(), incarnation=incarnation, write_incarnation=incarnation)


def revived(grant: Grant, session_timeout_ms: int) -> Grant:
    """A grant, over or not, that goes on."""
    owner = replace(grant.owner, session_timeout_ms=session_timeout_ms)
    return replace(grant, owner=owner, reason=LossReason.NONE, until_ms=NEVER_MS)


def losers(resource: Resource, group: str, access: Access) -> list[Entry]:
    """The entries whose owners cannot be beside a new owner in `group`."""
    return [
        entry
        for entry in resource.entries.values()
        if entry.grant is not None and (entry.group == group or (Access.WRITE in access and entry.writes))
    ]


def write_incarnation(resource: Resource, grant: Grant) -> int:
    """The newest grant of the partition to a writer, once `grant` is in force."""
    return grant.incarnation if Access.WRITE in grant.owner.access else resource.write_incarnation
