"""A controller's term: the time in which one broker is the controller on one session."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.coordinator.znodes.controller import CONTROLLER_EPOCH
from holdfast_log.coordinator.zookeeper.interface import Check, ZooKeeperSession


@dataclass(frozen=True, slots=True)
class Term:
    """One term. `epoch_version` is the version of /controller_epoch after this term's election."""

    session: ZooKeeperSession
    broker_id: int
    epoch: int
    epoch_version: int

    def guard(self) -> Check:
        """The check that makes a multi fail once another controller is elected."""
        return Check(CONTROLLER_EPOCH, self.epoch_version)
