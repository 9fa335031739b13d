"""A controller's term: the time in which one broker, on one session, is the controller."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.znodes.controller import CONTROLLER_EPOCH
from coordinator.zookeeper.interface import Check, ZooKeeperSession


@dataclass(frozen=True, slots=True)
class Term:
    """One term. `epoch_version` is the version of /controller_epoch, as this term's election has left it."""

    session: ZooKeeperSession
    broker_id: int
    epoch: int
    epoch_version: int

    def guard(self) -> Check:
        """The operation that makes a multi fail once another controller has been elected."""
        return Check(CONTROLLER_EPOCH, self.epoch_version)
