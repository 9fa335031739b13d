"""Processes of transactional producers come and go during the faulty phase: they die, sleep, and are fenced
by the next process with their id."""

from __future__ import annotations

import random

from tests.sim.client import Client, Surroundings
from tests.sim.committed_reader import CommittedOffsets, CommittedReader
from tests.sim.consumer import IDS_VERSION, NAMES_VERSION
from tests.sim.plan import TransactionsPlan
from tests.sim.told_offsets import ToldOffsets
from tests.sim.transaction_history import TransactionHistory
from tests.sim.transactor import Transactor

_MEAN_PAUSE_S = 3.0
_LEAVES_OPEN_SHARE = 0.5


class TransactionLife:
    """The producers of all transactional ids of a plan, and the readers of what they commit."""

    def __init__(
        self, around: Surroundings, plan: TransactionsPlan, told: TransactionHistory, ends: ToldOffsets
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
        self.readers = [
            CommittedReader(
                around, f"rc{number}", follows=[plan.topic], version=version, told=ends, transactions=told
            )
            for number, version in enumerate((NAMES_VERSION, IDS_VERSION))
        ]
        ids = [f"tx{number}" for number in range(plan.ids)]
        self._offsets = (
            [CommittedOffsets(around, f"{name}-offsets", name, plan.topic, told) for name in ids]
            if plan.has_offsets
            else []
        )
        self._ids = ids

    @property
    def clients(self) -> list[Client]:
        return [*self._present.values(), *self._replaced, *self.readers, *self._offsets]

    def begin(self) -> None:
        for name in self._ids:
            self._come(name)
        for reader in (*self.readers, *self._offsets):
            reader.start()
        self._is_changing = True
        self._change_later()

    def _come(self, transactional_id: str) -> None:
        number = self._counts[transactional_id] = self._counts.get(transactional_id, -1) + 1
        name = f"{transactional_id}.{number}"
        self._present[transactional_id] = Transactor(
            self._around, name, transactional_id, self._plan, self._told
        )
        self._present[transactional_id].start()

    def _change_later(self) -> None:
        self._world.clock.callLater(self._rng.expovariate(1 / _MEAN_PAUSE_S), self._change)

    def _change(self) -> None:
        if not self._is_changing:
            return
        self._change_later()
        name = self._rng.choice(self._ids)
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

    def _sleep(self, transactor: Transactor) -> None:
        transactor.process.pause()
        longest_s = 2.0 * self._plan.timeout_ms / 1000
        self._world.clock.callLater(self._rng.uniform(0.2, longest_s), transactor.process.resume)

    def _replace_fenced(self) -> None:
        for name, transactor in list(self._present.items()):
            if transactor.is_over:
                self._come(name)

    # The end

    def end(self) -> None:
        """Let what is present finish. Half of the ids whose process has died get no other one: what it has
        left open ends by its timeout, if clocks are right."""
        self._is_changing = False
        for transactor in (*self._present.values(), *self._replaced):
            transactor.process.resume()
        self._replace_fenced()
        for name in self._ids:
            leaves_open = self._rng.random() < _LEAVES_OPEN_SHARE and not self._told.may_time_out_early
            if name not in self._present and not leaves_open:
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
        for each in self._offsets:
            each.is_final = True

    @property
    def has_final_offsets(self) -> bool:
        return all(each.is_done for each in self._offsets)
