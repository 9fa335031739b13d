"""Who owns what (own API, PIP-68): owners, waiters, history; and an administrator's forced release."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from clients.admin.asking import raise_first
from clients.admin.managed_groups import ManagedGroupAdmin
from protocol.messages.ownership import NO_PARTITION, Access, LossReason
from protocol.messages.ownership_sight import (
    DescribedResource,
    DescribeOwnersRequest,
    ForceReleaseRequest,
    OwnershipState,
    ResourceName,
    ResourceToRelease,
)
from protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PastOwnership:
    """One grant of a resource. `until_ms` is None, and `reason` NONE, for the one in force.

    Between `start_offset` (None for names) and that of the next grant nobody else has written. Times are in
    ms since the epoch.
    """

    generation: int
    owner_id: str
    start_offset: int | None
    since_ms: int
    until_ms: int | None
    reason: LossReason


@dataclass(frozen=True, slots=True)
class OwnershipWaiter:
    """One in the queue. `remaining_ms` is how long it still waits, None for as long as it lives."""

    owner_id: str
    client_id: str
    host: str
    remaining_ms: int | None


@dataclass(frozen=True, slots=True)
class OwnershipDescription:
    """A resource as the broker that decides about it knows it.

    `resource` is a partition, or a name of the application's own; `group` is empty for exclusive producers.
    Of an owner that there is not, everything is None. `sharers` are the ids of producers with shared access.
    Counters begin anew with the broker: claims that were granted, those of them that took the resource from
    somebody, those that were refused, appends that were fenced off, and conditions that did not hold.
    """

    group: str
    resource: TopicPartition | str
    generation: int
    state: OwnershipState
    access: Access
    fence_offset: int | None
    owner_id: str | None
    client_id: str | None
    principal: str | None
    host: str | None
    since_ms: int | None
    session_remaining_ms: int | None
    bound_client_id: str | None
    waiters: tuple[OwnershipWaiter, ...]
    sharers: tuple[str, ...]
    history: tuple[PastOwnership, ...]
    claims: int
    steals: int
    refusals: int
    fenced_appends: int
    mismatches: int


class OwnershipAdmin(ManagedGroupAdmin):
    """Describes owners, and takes resources from them."""

    def describe_owners(
        self,
        groups: Iterable[str] | None = None,
        resources: Iterable[TopicPartition | str] | None = None,
        *,
        include_history: bool = False,
    ) -> list[OwnershipDescription]:
        """The resources of these groups, of these partitions and names, or all.

        Names are told of where their group is named, or has been asked about lately.
        """
        request = DescribeOwnersRequest(
            groups=None if groups is None else list(groups),
            resources=None
            if resources is None
            else [ResourceName(name=name, partition=number) for name, number in map(_split, resources)],
            include_history=include_history,
        )
        nodes = [node.id for node in self.describe_cluster().nodes]
        self._know_nodes(nodes)
        found = []
        for node in nodes:
            response = self._ask(node, request, lambda answer: [answer.error_code])
            raise_first([(f"owners at broker {node}", response.error_code, response.error_message)])
            found += [_described(row) for row in response.resources]
        return sorted(found, key=lambda row: (row.group, *_split(row.resource)))

    def force_release(
        self, group: str, resource: TopicPartition | str, *, generation: int = -1, comment: str = ""
    ) -> tuple[int, str | None]:
        """Take a resource from its owner, who is severed and cannot resume.

        A `generation` guards against hitting a later owner by mistake. Returns the generation that was in
        force and the id of who owned it, None where nobody did. `comment` goes to the broker's audit log.
        Raises OwnershipRefusedError (another generation is in force) and others.
        """
        name, number = _split(resource)
        row = ResourceToRelease(name=name, partition=number, generation=generation)
        request = ForceReleaseRequest(
            group=group, resources=[row], timeout_ms=self._timeout_ms, comment=comment
        )
        if isinstance(resource, TopicPartition):
            (node,) = self._by_leader([resource])
            response = self._ask(node, request, lambda answer: [answer.error_code])
        else:
            response, _ = self._ask_coordinator(
                group,
                request,
                lambda answer: [answer.error_code, *(each.error_code for each in answer.resources)],
            )
        raise_first([(f"group {group}", response.error_code, response.error_message)])
        (released,) = response.resources
        raise_first([(str(resource), released.error_code, released.error_message)])
        return released.generation, released.owner_id


def _split(resource: TopicPartition | str) -> tuple[str, int]:
    return (resource, NO_PARTITION) if isinstance(resource, str) else (resource.topic, resource.partition)


def _described(row: DescribedResource) -> OwnershipDescription:
    is_owned = row.owner_id is not None
    return OwnershipDescription(
        group=row.group,
        resource=row.name if row.partition == NO_PARTITION else TopicPartition(row.name, row.partition),
        generation=row.generation,
        state=OwnershipState(row.state),
        access=Access(row.access),
        fence_offset=_known(row.fence_offset),
        owner_id=row.owner_id,
        client_id=row.client_id,
        principal=row.principal,
        host=row.host,
        since_ms=row.since_ms if is_owned else None,
        session_remaining_ms=row.session_remaining_ms if is_owned else None,
        bound_client_id=row.writer_client_id,
        waiters=tuple(
            OwnershipWaiter(each.owner_id, each.client_id, each.host, _known(each.remaining_ms))
            for each in row.waiters
        ),
        sharers=tuple(each.owner_id for each in row.sharers),
        history=tuple(
            PastOwnership(
                each.generation,
                each.owner_id,
                _known(each.start_offset),
                each.since_ms,
                _known(each.until_ms),
                LossReason(each.reason),
            )
            for each in row.history
        ),
        claims=row.claims,
        steals=row.steals,
        refusals=row.refusals,
        fenced_appends=row.fenced_appends,
        mismatches=row.mismatches,
    )


def _known(number: int) -> int | None:
    return None if number < 0 else number
