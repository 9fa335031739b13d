"""Builds the ownership of the resources that this broker decides about."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_log.broker.ownership.committers import CommitterCheck
from holdfast_log.broker.ownership.revocation import Revocation
from holdfast_log.broker.ownership.service import OwnershipService
from holdfast_log.broker.ownership.settings import OwnershipSettings, SessionTimeouts
from holdfast_log.broker.replication.fetches import Fetches
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.replication.right_to_confirm import RightToConfirm
from holdfast_log.broker.requests.authorization import ClientRights
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.coordinator.ownership.store import OwnershipStore


@dataclass(frozen=True, slots=True)
class OwnershipParts:
    """The owners of resources, on one broker."""

    service: OwnershipService
    session_timeouts: SessionTimeouts
    committers: CommitterCheck
    revocation: Revocation | None
    """Ends what clients have no right to any more; None without an authorizer."""


def build_ownership(
    settings: Mapping[str, Any],
    around: Surroundings,
    replicas: Replicas,
    names_partition: Callable[[str], int | None],
    right: RightToConfirm,
    fetches: Fetches,
    rights: ClientRights | None,
) -> OwnershipParts:
    """`names_partition` returns the partition of `__consumer_offsets` that keeps a group's names; `right`
    says what this broker may confirm; `rights` say what clients may do, None: everything."""
    store = OwnershipStore(around.zookeeper)
    service = OwnershipService(
        replicas,
        store,
        names_partition,
        right,
        read_group(OwnershipSettings, settings),
        clock=around.clock,
        date_ms=around.date_ms,
    )
    return OwnershipParts(
        service=service,
        session_timeouts=read_group(SessionTimeouts, settings),
        committers=CommitterCheck(store),
        revocation=None if rights is None else Revocation(rights, fetches, service, around.clock),
    )
