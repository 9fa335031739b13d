"""The owners in a simulated minute: they contend, fall asleep and wake up late."""

from __future__ import annotations

import random

from tests.sim.client import Surroundings
from tests.sim.name_owner import NameOwner
from tests.sim.owner import Owner
from tests.sim.owner_history import OwnerHistory
from tests.sim.plan import OwnersPlan

_MEAN_PAUSE_S = 4.0


class OwnerLife:
    """Some owners of one partition, or of one name, and those who look in the end whether these can still be
    had."""

    def __init__(self, around: Surroundings, plan: OwnersPlan, told: OwnerHistory) -> None:
        at = (plan.topic, 0)
        self.owners = [
            *(
                Owner(around, f"o{number}", at, told, is_conditional=is_conditional)
                for number, is_conditional in enumerate(plan.are_conditional)
            ),
            *(NameOwner(around, f"n{number}", "name", told) for number in range(plan.names)),
        ]
        self.last: list[Owner] = [Owner(around, "olast", at, told, is_conditional=True)]
        if plan.names:
            self.last.append(NameOwner(around, "nlast", "name", told))
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
        """All owners end, and another one wants what they had."""
        for owner in self.owners:
            owner.process.kill()
        for last in self.last:
            last.start()

    @property
    def is_over(self) -> bool:
        """Whether the last ones have been granted what they want, and have written."""
        if not all(last.grant is not None and last.has_written for last in self.last):
            return False
        for last in self.last:
            last.process.kill()
        return True

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
