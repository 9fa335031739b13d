"""Fences: requests that prove by themselves that they are made for an owner, whichever connection they use.

An owner may let other connections, and other processes, write and read for it. Each of their requests names
the grant by its incarnation, and proves it by the secret of the claim. Connections play no part: the grant
itself is compared with the one in force, in the turn of the reactor's thread that appends or reads.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast_log.broker.ownership.confirming import unconfirmed
from holdfast_log.broker.ownership.resources import Entry, Resource
from holdfast_log.broker.ownership.rules import is_resumable
from holdfast_log.broker.replication.admission import RequestFence
from holdfast_log.broker.replication.appends import ACKS_ALL
from holdfast_log.coordinator.ownership.credentials import NO_SECRET, digest_of, is_proof
from holdfast_log.coordinator.ownership.records import Grant, ResourceKey
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.ownership import Access


class FenceGuard:
    """Admits requests with a fence while its grant is in force.

    Every partition that this broker leads has one, whether it has an owner or not, and whatever
    `single.writer` and `single.reader` say: a fence is a condition that the client sets. While `may_confirm`
    returns False, this broker does not know which grant is in force. `on_refused` is called with the resource
    for each refused append. `owned` is None while nobody has owned the partition.
    """

    __slots__ = ("_key", "_may_confirm", "_on_refused", "_owned")

    def __init__(
        self,
        key: ResourceKey,
        owned: Resource | None,
        on_refused: Callable[[Resource], None],
        may_confirm: Callable[[], bool],
    ) -> None:
        self._key = key
        self._owned = owned
        self._on_refused = on_refused
        self._may_confirm = may_confirm

    def admit_append(self, fence: RequestFence, acks: int) -> None:
        """Return if the fence is that of the writer's grant.

        Raises BrokerError: NOT_LEADER_OR_FOLLOWER while this broker does not hold its lease; PRODUCER_FENCED
        for a grant that has ended for good, OWNERSHIP_DETACHED for one that its owner may still resume;
        TOPIC_AUTHORIZATION_FAILED for a fence that proves no grant; INVALID_REQUIRED_ACKS.
        """
        self._check_right()
        try:
            self._check(fence, Access.WRITE, ErrorCode.PRODUCER_FENCED)
        except BrokerError:
            self._on_refused(self._resource())
            raise
        if acks != ACKS_ALL:
            raise error_for(
                ErrorCode.INVALID_REQUIRED_ACKS,
                f"{self._key} is owned: write with acks=all, because writes with other acks could "
                "be lost when the owner changes",
            )

    def admit_read(self, fence: RequestFence) -> None:
        """Return if the fence is that of a reader's grant, in any group.

        Raises BrokerError as `admit_append`, with OWNERSHIP_FENCED for a grant that has ended for good.
        """
        self._check_right()
        self._check(fence, Access.READ, ErrorCode.OWNERSHIP_FENCED)

    def _resource(self) -> Resource:
        # An empty one takes a kilobyte, too much to keep for each partition that nobody owns.
        return self._owned or Resource(self._key)

    def _check_right(self) -> None:
        # First: a leader that has been replaced does not know the newest grant, and must refuse nothing for
        # good.
        if not self._may_confirm():
            raise unconfirmed()

    def _check(self, fence: RequestFence, access: Access, fenced: ErrorCode) -> None:
        resource = self._resource()
        entry, grant = _named(resource, fence.incarnation)
        if entry is None or grant is None:
            if 0 < fence.incarnation <= resource.incarnation:
                raise _ended(resource, fence, fenced)
            raise _unproven(resource, f"no grant has incarnation {fence.incarnation}")
        if not _is_proven(grant, fence):
            raise _unproven(resource, "it lacks the secret of the claim")
        if access not in grant.owner.access:
            raise _unproven(resource, f"its grant does not allow to {_VERBS[access]}")
        if not grant.has_ended:
            return
        if is_resumable(resource, entry, grant):
            raise error_for(
                ErrorCode.OWNERSHIP_DETACHED,
                f"the owner of {resource.key} was silent for too long: try again once it has resumed its "
                f"grant, incarnation {fence.incarnation}",
            )
        raise _ended(resource, fence, fenced)


_VERBS = {Access.WRITE: "write", Access.READ: "read"}


def _named(resource: Resource, incarnation: int) -> tuple[Entry | None, Grant | None]:
    """The latest grant of a group that has this incarnation. No two grants of a resource have the same one,
    in whatever group."""
    for entry in resource.entries.values():
        last = entry.last
        if last is not None and last.incarnation == incarnation:
            return entry, last
    return None, None


def _is_proven(grant: Grant, fence: RequestFence) -> bool:
    return is_proof(digest_of(fence.secret), grant.owner.secret_digest or NO_SECRET)


def _ended(resource: Resource, fence: RequestFence, code: ErrorCode) -> BrokerError:
    return error_for(
        code,
        f"the grant with incarnation {fence.incarnation} of {resource.key} has ended: stop using its fence. "
        f"The newest grant has incarnation {resource.incarnation}",
    )


def _unproven(resource: Resource, why: str) -> BrokerError:
    return error_for(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        f"the request's fence does not prove that its sender acts for the owner of {resource.key}: {why}",
    )
