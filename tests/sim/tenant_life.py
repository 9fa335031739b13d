"""The tenants of a simulation: they contend, are paused and resumed, and leave at the end."""

from __future__ import annotations

import random
from collections.abc import Iterator

from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.sim.client import Surroundings
from tests.sim.exclusive_producer import ExclusiveProducer
from tests.sim.name_owner import NameOwner
from tests.sim.owner import Owner, WriterHabits
from tests.sim.owner_history import OwnerHistory
from tests.sim.plan import TenantsPlan
from tests.sim.single_reader import SingleReader
from tests.sim.single_reader_history import SingleReaderHistory
from tests.sim.stranger import Stranger
from tests.sim.stray_reader import StrayReader
from tests.sim.tenant import Tenant

_MEAN_PAUSE_S = 4.0
_GUARDS = (("t", 0), ("t", 1), ("t", 2))
"""Partitions of a topic that always exists and is always written."""


class TenantLife:
    """The clients that contend for a partition or a name, and the strangers that write to the partition, or
    read it, without claiming it. At the end, new clients check that each can still be claimed."""

    def __init__(self, around: Surroundings, plan: TenantsPlan, told: OwnerHistory) -> None:
        self.tenants = list(_tenants(around, plan, told))
        self.strangers = list(_strangers(around, plan, told))
        self._last = list(_last(around, plan, told))
        self._world = around.world
        self._rng: random.Random = around.world.rng("owners")
        self._is_changing = False

    def begin(self) -> None:
        for client in (*self.tenants, *self.strangers):
            client.start()
        self._is_changing = True
        self._sleep_later()

    def end(self) -> None:
        """Resume all paused tenants, and stop new claims and writes."""
        self._is_changing = False
        for tenant in self.tenants:
            tenant.process.resume()
            tenant.is_making = False
        for stranger in self.strangers:
            stranger.is_making = False

    @property
    def _living(self) -> list[Tenant]:
        return [tenant for tenant in self.tenants if tenant.process.alive]

    @property
    def is_idle(self) -> bool:
        return all(client.is_idle for client in (*self._living, *self.strangers))

    def leave(self) -> None:
        """Kill some tenants. The others release what they own, or what they are waiting for once granted."""
        for tenant in self.tenants:
            if self._rng.random() < 0.3:
                tenant.process.kill()
            tenant.is_leaving = True

    @property
    def is_empty(self) -> bool:
        return all(tenant.is_away for tenant in self._living)

    def stuck(self) -> str:
        """The tenants that still own or wait for something."""
        return ", ".join(
            f"{tenant.claimant_id}: {tenant.grant or tenant.in_queue}"
            for tenant in self._living
            if not tenant.is_away
        )

    def leave_it_to_the_last(self) -> None:
        """Kill all tenants, and start new clients that claim the same resources."""
        for tenant in self.tenants:
            tenant.process.kill()
        for last in self._last:
            last.start()

    @property
    def is_over(self) -> bool:
        """Whether every new client has been granted its resource and has written."""
        if not all(last.grant is not None and last.has_worked for last in self._last):
            return False
        for last in self._last:
            last.process.kill()
        return True

    def _sleep_later(self) -> None:
        self._world.clock.callLater(self._rng.expovariate(1 / _MEAN_PAUSE_S), self._sleep)

    def _sleep(self) -> None:
        if not self._is_changing:
            return
        tenant = self._rng.choice(self.tenants)
        self._world.trace(tenant.name, "sleeps")
        tenant.process.pause()
        self._world.clock.callLater(self._rng.uniform(0.2, 7.0), tenant.process.resume)
        self._sleep_later()


def _tenants(around: Surroundings, plan: TenantsPlan, told: OwnerHistory) -> Iterator[Tenant]:
    at = (plan.topic, 0)
    guards = _GUARDS if plan.has_guards else ()
    for number, is_conditional in enumerate(plan.are_conditional):
        habits = WriterHabits(
            is_conditional, guards, plan.is_strict, plan.write_rarely, plan.leave_soon, plan.break_often
        )
        yield Owner(around, f"o{number}", at, told, habits)
    for number in range(plan.producers):
        habits = WriterHabits(
            False, guards, plan.is_strict, plan.write_rarely, plan.leave_soon, plan.break_often
        )
        yield ExclusiveProducer(around, f"x{number}", at, told, habits, plan.modes)
    others = [f"name{number}" for number in range(2 * plan.names_kept)]
    names = ["name", *others]
    for number in range(plan.names):
        yield NameOwner(around, f"n{number}", names, told)
    read = SingleReaderHistory(told)
    for number in range(plan.readers):
        yield SingleReader(around, f"r{number}", at, told, read, breaks_often=plan.break_often)


def _strangers(
    around: Surroundings, plan: TenantsPlan, told: OwnerHistory
) -> Iterator[Stranger | StrayReader]:
    at = (plan.topic, 0)
    for number in range(plan.strangers):
        yield Stranger(around, f"s{number}", at)
    for number in range(plan.stray_readers):
        yield StrayReader(around, f"stray{number}", at, SingleReader.group, told.foreign_reads)


def _last(around: Surroundings, plan: TenantsPlan, told: OwnerHistory) -> Iterator[Tenant]:
    at = (plan.topic, 0)
    habits = WriterHabits(is_conditional=True, may_be_rash=plan.is_strict)
    if plan.producers:
        modes = (ProducerAccessMode.EXCLUSIVE,)
        yield ExclusiveProducer(around, "xlast", at, told, habits, modes)
    else:
        yield Owner(around, "olast", at, told, habits)
    if plan.names:
        yield NameOwner(around, "nlast", ["name"], told)
