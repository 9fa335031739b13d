"""Why a batch has no outcome yet, in words: for the errors of calls whose time has run out."""

from __future__ import annotations

from holdfast_log.clients.connection.cluster_view import NO_NODE
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.queues import UNPLACED
from holdfast_log.clients.sending.write_access import WriteAccess


def why_waiting(batch: Batch, connection: Connection, access: WriteAccess | None) -> str:
    """The state of a batch that has no outcome, and of what it waits for. The producer's lock must be held;
    may be called by any thread."""
    parts = [_waits_for(batch, connection, access)]
    if batch.attempts:
        counted = "once" if batch.attempts == 1 else f"{batch.attempts} times"
        parts.append(f"sent {counted}")
    if batch.last_error is not None:
        parts.append(f"the last attempt: {batch.last_error}")
    return "; ".join(parts)


def _waits_for(batch: Batch, connection: Connection, access: WriteAccess | None) -> str:
    metadata = connection.metadata
    if batch.topic not in metadata.topics:
        error = metadata.topic_error(batch.topic)
        detail = "" if error is None else f": {error}"
        return _joined(
            f"no broker has described topic {batch.topic} yet{detail}", connection.standing(ANY_NODE)
        )
    if batch.partition == UNPLACED:
        return _joined(f"no partition of topic {batch.topic} has been chosen", connection.standing(ANY_NODE))
    place = f"{batch.topic}-{batch.partition}"
    leader = metadata.leader(batch.topic, batch.partition)
    if leader == NO_NODE:
        return _joined(f"{place} has no leader", connection.standing(ANY_NODE))
    if access is not None and not access.may_send(batch.topic, batch.partition):
        return _joined(f"this producer has no access to {place} at the moment", connection.standing(leader))
    return _joined(f"{place} is led by broker {leader}", connection.standing(leader))


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
