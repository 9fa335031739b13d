"""The owners of one partition in a simulated minute: they contend, fall asleep and wake up late."""

from __future__ import annotations

import random

from tests.sim.client import Surroundings
from tests.sim.history import TopicPartition
from tests.sim.owner import Owner
from tests.sim.owner_history import OwnerHistory
from tests.sim.plan import OwnersPlan

_MEAN_PAUSE_S = 4.0


class OwnerLife:
    """Some owners of one partition, and the one who looks in the end whether it can still be had."""

    def __init__(self, around: Surroundings, plan: OwnersPlan, told: OwnerHistory) -> None:
        self.at: TopicPartition = (plan.topic, 0)
        self.owners = [
            Owner(around, f"o{number}", self.at, told, is_conditional=is_conditional)
            for number, is_conditional in enumerate(plan.are_conditional)
        ]
        self.last = Owner(around, "olast", self.at, told, is_conditional=True)
        self._world = around.world
        self._rng: random.Random = around.world.rng("owners")
        self._is_changing = False

    def begin(self) -> None:
        for owner in self.owners:
            owner.start()
        self._is_changing = True
        self._sleep_later()

    def end(self) -> None:
        """All who sleep wake up, and finish what they have begun."""
        self._is_changing = False
        for owner in self.owners:
            owner.process.resume()
            owner.is_making = False

    @property
    def is_idle(self) -> bool:
        return all(owner.is_idle for owner in self.owners)

    def leave_it_to_the_last(self) -> None:
        """All owners end, and another one wants the partition."""
        for owner in self.owners:
            owner.process.kill()
        self.last.start()

    @property
    def is_over(self) -> bool:
        """Whether the last one has been granted the partition, and has written."""
        last = self.last
        if last.grant is not None and last.has_written:
            last.process.kill()
            return True
        return False

    def _sleep_later(self) -> None:
        self._world.clock.callLater(self._rng.expovariate(1 / _MEAN_PAUSE_S), self._sleep)

    def _sleep(self) -> None:
        if not self._is_changing:
            return
        owner = self._rng.choice(self.owners)
        self._world.trace(owner.name, "sleeps")
        owner.process.pause()
        self._world.clock.callLater(self._rng.uniform(0.2, 7.0), owner.process.resume)
        self._sleep_later()
