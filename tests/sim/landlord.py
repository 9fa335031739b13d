"""Simulated owners that write in transactions: a process claims a partition and keeps it, and gives its fence
to a transactional producer beside it, as `Producer(properties, fence=lease.fence())` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast_log.protocol.messages.ownership import LossReason
from tests.sim.client import Surroundings
from tests.sim.history import TopicPartition
from tests.sim.owner_history import OwnerHistory, Told
from tests.sim.tenant import OFTEN_BREAK_SHARE, SILENT, Tenant


@dataclass(frozen=True, slots=True)
class Tenure:
    """The grant for which a transaction writes, the secret of its claim, and all that owners have been told
    meanwhile."""

    grant: Told
    secret: bytes
    grants: Sequence[Told]
    ends_s: Mapping[int, float]
    """When owners knew that they had released or lost a grant for good, by its incarnation."""

    @property
    def is_known_to_have_ended(self) -> bool:
        """Whether the owner knows now that it has lost the grant for good."""
        return self.grant.incarnation in self.ends_s

    @property
    def ended_s(self) -> float | None:
        """When somebody knew first that the grant had ended for good, in simulated seconds."""
        known = [
            other.told_s
            for other in self.grants
            if other.incarnation > self.grant.incarnation and other.excludes(self.grant)
        ]
        if self.grant.incarnation in self.ends_s:
            known.append(self.ends_s[self.grant.incarnation])
        return min(known, default=None)


class Landlord(Tenant):
    """An owner of a partition that another process writes to."""

    def __init__(
        self,
        around: Surroundings,
        name: str,
        at: TopicPartition,
        told: OwnerHistory,
        ends_s: dict[int, float],
    ) -> None:
        super().__init__(around, name, at, told)
        self._ends_s = ends_s
        self._is_loss_final = True
        if self.rng.random() < 0.5:
            self.break_share = OFTEN_BREAK_SHARE

    def tenure(self) -> Tenure | None:
        """What this owner believes to have; None if it owns nothing."""
        return None if self.grant is None else Tenure(self.grant, self.secret, self.told.grants, self._ends_s)

    def has_gained(self, grant: Told) -> None:
        self._is_loss_final = True

    def fenced(self, grant: Told, generation: int, reason: LossReason) -> None:
        # The next leader may not know of a loss to silence, and restore the grant.
        self._is_loss_final = reason not in SILENT
        super().fenced(grant, generation, reason)

    def has_lost(self, grant: Told) -> None:
        if self._is_loss_final:
            self._ends_s.setdefault(grant.incarnation, self.world.seconds())
