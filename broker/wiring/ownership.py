"""Ownership wired into a broker: the service, and the handlers that ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.dispatch import AnyHandler
from broker.handlers.assign_readers import AssignReadersHandler
from broker.handlers.attach_reader import AttachReaderHandler
from broker.handlers.describe_owners import DescribeOwnersHandler
from broker.handlers.force_release import ForceReleaseHandler
from broker.handlers.own import OwnHandler
from broker.handlers.producer_access import ProducerAccessHandler
from broker.handlers.release_ownership import ReleaseHandler
from broker.handlers.renew_ownership import RenewHandler
from broker.handlers.resume_ownership import ResumeHandler
from broker.ownership.service import OwnershipService
from broker.ownership.settings import OwnershipSettings, SessionTimeouts
from broker.replication.replicas import Replicas
from coordinator.clock import Clock
from coordinator.ownership.store import OwnershipStore
from coordinator.zookeeper.interface import ZooKeeper

FEATURES: Mapping[str, tuple[int, int]] = {
    "holdfast.own": (1, 1),
    "holdfast.producer.access": (1, 1),
    "holdfast.expected.offset": (1, 1),
    "holdfast.single.reader": (1, 1),
}
"""What is announced of it."""


class Ownership:
    """Who owns what on one broker. `names_partition` says which partition of `__consumer_offsets` keeps a
    group."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        replicas: Replicas,
        zookeeper: ZooKeeper,
        names_partition: Callable[[str], int | None],
        *,
        clock: Clock,
        date_ms: Callable[[], int],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self.service = OwnershipService(
            replicas,
            OwnershipStore(zookeeper),
            names_partition,
            OwnershipSettings.from_settings(settings),
            clock=clock,
            date_ms=date_ms,
            monotonic_s=monotonic_s,
        )
        self._session_timeouts = SessionTimeouts.from_settings(settings)

    def connect(self) -> None:
        """Have the replicas call the service."""
        self._replicas.add_role_listener(self.service.role_changed)
        self._replicas.conditions.add_mismatch_listener(self.service.append_mismatched)

    def handlers(self) -> list[AnyHandler]:
        service, session_timeouts = self.service, self._session_timeouts
        return [
            OwnHandler(service, session_timeouts),
            ReleaseHandler(service),
            RenewHandler(service),
            ResumeHandler(service, session_timeouts),
            DescribeOwnersHandler(service),
            ForceReleaseHandler(service),
            ProducerAccessHandler(service, session_timeouts),
            AssignReadersHandler(service),
            AttachReaderHandler(service),
        ]
