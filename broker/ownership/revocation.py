"""Ends what clients hold by a right that they have lost, after the rules of the authorizer have changed.

Requests are judged when they arrive. What outlives a request is judged again here: fetches that wait, fetch
sessions, ownership, claims that wait, and shared producers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import chain

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.ownership.answers import Standings
from holdfast_log.broker.ownership.operations import ForcedResource, ForceRelease
from holdfast_log.broker.ownership.resources import Entry, Resource
from holdfast_log.broker.ownership.rights import operations_of
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.rechecks import Recheck
from holdfast_log.broker.replication.fetches import Fetches
from holdfast_log.broker.requests.authorization import ClientRights
from holdfast_log.coordinator.clock import Clock
from holdfast_log.coordinator.ownership.records import NameKey, Owner, ResourceKey
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.messages.ownership import PRODUCERS_GROUP, Access

PER_TURN = 100
"""Maximum number of readers and resources checked before other clients are served."""

_TIMEOUT_MS = 30_000

_log = logging.getLogger(__name__)
_audit = logging.getLogger("holdfast_log.broker.ownership.audit")


class Revocation:
    """Checks everything that clients hold, within `rechecks.DELAY_S` of a change. Call `rules_changed` after
    each change."""

    def __init__(
        self, rights: ClientRights, fetches: Fetches, ownership: OwnershipService, clock: Clock
    ) -> None:
        self._rights = rights
        self._fetches = fetches
        self._ownership = ownership
        self._recheck = Recheck(self._judged_again, PER_TURN, clock)

    def rules_changed(self) -> None:
        """Check soon what clients hold."""
        self._recheck.changed()

    def stop(self) -> None:
        """Check nothing any more, because the broker stops."""
        self._recheck.stop()

    def _judged_again(self) -> Iterator[None]:
        return chain(self._fetches.judged_again(), self._owners_judged_again())

    # -- ownership ---------------------------------------------------------------------------------------

    def _owners_judged_again(self) -> Iterator[None]:
        for resource in self._ownership.resources():
            for entry in list(resource.entries.values()):
                self._judge_entry(resource, entry)
            for waiter in list(resource.waiters):
                self._judge_connection(waiter.connection, waiter.owner, resource.key, waiter.group)
            for sharer in list(resource.sharers.values()):
                self._judge_connection(sharer.connection, sharer.owner, resource.key, PRODUCERS_GROUP)
            yield

    def _judge_entry(self, resource: Resource, entry: Entry) -> None:
        """End the grant of an owner that has lost the right to it, also one that could resume. A group's
        coordinator decides about its members; their fetches are judged."""
        grant, key = entry.last, resource.key
        if grant is None or not grant.may_resume or grant.owner.assignment is not None:
            return
        if self._is_broker(entry.connection):
            return
        lost = self._lost(grant.owner, key, entry.group)
        if lost is None:
            return
        what = "ended the ownership of %s in group %r by %r: %s may not %s any more"
        _audit.info(what, key, entry.group, grant.owner.owner_id, grant.owner.principal, lost)
        forced = ForceRelease(entry.group, [ForcedResource(key, entry.generation)])
        released: Deferred[Standings] = self._ownership.submit(None, forced, _TIMEOUT_MS)
        released.addErrback(_not_released, key)

    def _judge_connection(self, connection_id: int, owner: Owner, key: ResourceKey, group: str) -> None:
        """Close the connection of a claim that waits, or of a shared producer, without the right to it."""
        connection = self._ownership.connection(connection_id)
        if connection is None or connection.is_broker:
            return
        lost = self._lost(owner, key, group)
        if lost is not None:
            what = "closing the connection of %r, which claims %s in group %r: %s may not %s any more"
            _audit.info(what, owner.owner_id, key, group, owner.principal, lost)
            connection.close(f"{owner.principal} may not {lost} any more")

    def _is_broker(self, connection_id: int | None) -> bool:
        connection = self._ownership.connection(connection_id)
        return connection is not None and connection.is_broker

    def _lost(self, owner: Owner, key: ResourceKey, group: str) -> str | None:
        """The right that an owner lacks, as a log line names it; None if it has all that it needs."""
        for operation, kind, name in _needed(owner.access, key, group):
            if not self._rights.may_principal(owner.principal, owner.host, operation, kind, name):
                return f"{operation.name} the {kind.name.lower()}"
        return None


def _needed(access: Access, key: ResourceKey, group: str) -> Iterable[tuple[AclOperation, AclResource, str]]:
    """What the owner of a resource needs, as for its claim."""
    if group != PRODUCERS_GROUP:
        yield AclOperation.READ, AclResource.GROUP, group
    if isinstance(key, NameKey):
        return
    operations = [AclOperation.WRITE] if group == PRODUCERS_GROUP else operations_of(access)
    for operation in operations:
        yield operation, AclResource.TOPIC, key.topic


def _not_released(failure: Failure, key: ResourceKey) -> None:
    """Log it. The broker that decides about the resource next judges its owner when it resumes."""
    _log.warning("The ownership of %s could not be ended: %s", key, failure.getErrorMessage())
