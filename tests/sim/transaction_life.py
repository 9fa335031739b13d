"""Processes of transactional producers come and go during the faulty phase: they die, sleep, and are fenced
by the next process with their id."""

from __future__ import annotations

import random

from tests.sim.client import Client, Surroundings
from tests.sim.committed_reader import CommittedOffsets, CommittedReader
from tests.sim.consumer import IDS_VERSION, NAMES_VERSION
from tests.sim.landlord import Landlord
from tests.sim.owner_history import OwnerHistory
from tests.sim.plan import TransactionsPlan
from tests.sim.told_offsets import ToldOffsets
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactor import Transactor

_MEAN_PAUSE_S = 3.0
_LEAVES_OPEN_SHARE = 0.5
_LANDLORD_SHARE = 0.4
"""The share of changes of an owner's producer that are the owner's: it sleeps, perhaps past its session."""
_BUMPS_SHARE = 0.75
"""The share of processes that get a new epoch with each transaction, where brokers offer that."""


class TransactionLife:
    """The producers of all transactional ids of a plan, and the readers of what they commit."""

    def __init__(
        self,
        around: Surroundings,
        plan: TransactionsPlan,
        told: TransactionHistory,
        owned: OwnerHistory,
        ends: ToldOffsets,
    ) -> None:
        self._around = around
        self._plan = plan
        self._told = told
        self._world = around.world
        self._rng: random.Random = around.world.rng("transactions")
        self._counts: dict[str, int] = {}
        self._is_changing = False
        self._present: dict[str, Transactor] = {}
        """The newest process of each transactional id."""
        self._replaced: list[Transactor] = []
        """Processes that live on, and do not know yet that another one has their id."""
        follows = [plan.topic, plan.estate] if plan.owners else [plan.topic]
        self.readers = [
            CommittedReader(
                around, f"rc{number}", follows=follows, version=version, told=ends, transactions=told
            )
            for number, version in enumerate((NAMES_VERSION, IDS_VERSION))
        ]
        ends_s: dict[int, float] = {}
        self._landlords = {
            f"ow{number}": Landlord(around, f"lord{number}", (plan.estate, 0), owned, ends_s)
            for number in range(plan.owners)
        }
        ids = [*(f"tx{number}" for number in range(plan.ids)), *self._landlords]
        self._offsets = (
            [CommittedOffsets(around, f"{name}-offsets", name, plan.topic, told) for name in ids]
            if plan.has_offsets
            else []
        )
        self._ids = ids

    @property
    def clients(self) -> list[Client]:
        others = (*self._landlords.values(), *self.readers, *self._offsets)
        return [*self._present.values(), *self._replaced, *others]

    def begin(self) -> None:
        for landlord in self._landlords.values():
            landlord.start()
        for name in self._ids:
            self._come(name)
        for reader in (*self.readers, *self._offsets):
            reader.start()
        self._is_changing = True
        self._change_later()

    def _come(self, transactional_id: str) -> None:
        number = self._counts[transactional_id] = self._counts.get(transactional_id, -1) + 1
        name = f"{transactional_id}.{number}"
        bumps = self._plan.bumps and self._rng.random() < _BUMPS_SHARE
        self._present[transactional_id] = Transactor(
            self._around,
            name,
            transactional_id,
            self._plan,
            self._told,
            bumps=bumps,
            landlord=self._landlords.get(transactional_id),
        )
        self._present[transactional_id].start()

    def _change_later(self) -> None:
        self._world.clock.callLater(self._rng.expovariate(1 / _MEAN_PAUSE_S), self._change)

    def _change(self) -> None:
        if not self._is_changing:
            return
        self._change_later()
        name = self._rng.choice(self._ids)
        landlord = self._landlords.get(name)
        if landlord is not None and self._rng.random() < _LANDLORD_SHARE:
            self._world.trace(landlord.name, "sleeps")
            self._sleep(landlord)
            return
        self._replace_fenced()
        present = self._present.get(name)
        if present is None:
            self._come(name)
            return
        what = self._rng.choice(["dies", "sleeps", "fenced", "fenced asleep"])
        self._world.trace(present.name, what)
        if what == "dies":
            present.process.kill()
            del self._present[name]
        elif what == "sleeps":
            self._sleep(present)
        else:
            if what == "fenced asleep":
                self._sleep(present)
            self._replaced.append(present)
            self._come(name)

    def _sleep(self, client: Client) -> None:
        client.process.pause()
        longest_s = 2.0 * self._plan.timeout_ms / 1000
        self._world.clock.callLater(self._rng.uniform(0.2, longest_s), client.process.resume)

    def _replace_fenced(self) -> None:
        for name, transactor in list(self._present.items()):
            if transactor.is_over:
                self._come(name)

    # The end

    def end(self) -> None:
        """Let what is present finish. Half of the ids have no process in the end: it has died, or dies now in
        the middle of a transaction. What it leaves open ends by its timeout, if clocks are right."""
        self._is_changing = False
        for client in (*self._present.values(), *self._replaced, *self._landlords.values()):
            client.process.resume()
        self._replace_fenced()
        for name in self._ids:
            leaves_open = self._rng.random() < _LEAVES_OPEN_SHARE and not self._told.may_time_out_early
            if name in self._present:
                self._present[name].dies_open = leaves_open
            elif not leaves_open:
                self._come(name)

    def finish(self) -> None:
        """Begin no further transaction."""
        for transactor in (*self._present.values(), *self._replaced):
            transactor.is_making = False
        for reader in self.readers:
            reader.is_rewinding = False

    @property
    def is_idle(self) -> bool:
        return all(each.is_idle for each in (*self._present.values(), *self._replaced))

    def ask_for_final_offsets(self) -> None:
        for landlord in self._landlords.values():
            landlord.process.kill()
        for each in self._offsets:
            each.is_final = True

    @property
    def has_final_offsets(self) -> bool:
        return all(each.is_done for each in self._offsets)
