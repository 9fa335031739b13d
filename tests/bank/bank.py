"""A bank: its tellers and auditors, who use all client libraries in turn."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.steady_load import create_once_possible
from tests.bank.auditors import Auditor
from tests.bank.books import BankPlan
from tests.bank.ledger import Attempt, Ending
from tests.bank.librdkafka import CONFIG, LibrdkafkaReader, LibrdkafkaTill
from tests.bank.own_clients import HoldfastReader, HoldfastTill
from tests.bank.tellers import Teller
from tests.bank.tills import WAIT_S, BankError, Libraries, Library

LIBRARIES: Libraries = {
    "librdkafka": Library(LibrdkafkaTill, LibrdkafkaReader),
    "holdfast": Library(HoldfastTill, HoldfastReader),
}
_LOOK_S = 0.05


class Bank:
    """The staff of a bank. `settle` ends the day."""

    def __init__(self, bootstrap: str, plan: BankPlan, libraries: Libraries = LIBRARIES) -> None:
        self._servers = bootstrap
        self._plan = plan
        self._libraries = libraries
        self.auditors = [
            self._new_auditor(f"auditor-{number}-{name}", name)
            for number, name in enumerate(islice(cycle(libraries), plan.auditors))
        ]
        self.tellers = [
            Teller(
                number,
                plan,
                self.auditors[number % plan.auditors],
                partial(libraries[name].open_till, bootstrap, plan.topic, plan.transactional_id(number)),
            )
            for number, name in enumerate(islice(cycle(libraries), plan.tellers))
        ]

    def _new_auditor(self, name: str, library: str) -> Auditor:
        return Auditor(
            name, self._plan, partial(self._libraries[library].open_reader, self._servers, self._plan)
        )

    @property
    def _all(self) -> Sequence[Auditor | Teller]:
        return [*self.tellers, *self.auditors]

    def start(self) -> None:
        for each in self._all:
            each.start()

    @property
    def attempts(self) -> list[Attempt]:
        return [attempt for teller in self.tellers for attempt in teller.attempts]

    @property
    def endings(self) -> Counter[Ending]:
        return sum((teller.endings for teller in self.tellers), Counter())

    @property
    def refused_because_fenced(self) -> int:
        """Number of commits that were refused because another till had the transactional id."""
        return sum(teller.refused_because_fenced for teller in self.tellers)

    def account(self) -> str:
        """How many transfers have ended in which way, and how many sums were checked."""
        endings, fenced = self.endings, self.refused_because_fenced
        counts = ", ".join(f"{endings[ending]} {ending}" for ending in Ending)
        checked = sum(auditor.taken for auditor in self.auditors)
        return f"transfers: {counts}; {fenced} commits of fenced tills, {checked} sums checked"

    def violations(self) -> list[str]:
        """What has been found so far."""
        return [each for staff in self._all for each in staff.violations]

    def check(self) -> None:
        """Raise `BankError` if somebody has failed."""
        errors = [f"{staff.name}: {staff.error!r}" for staff in self._all if staff.error is not None]
        if errors:
            raise BankError("; ".join(errors))

    def wait_for_more(self, transfers: int) -> None:
        """Return once every teller has committed so many more transfers. Raises `BankError`."""
        wanted = {teller: teller.committed + transfers for teller in self.tellers}
        until_s = time.monotonic() + WAIT_S
        while late := [teller.name for teller, count in wanted.items() if teller.committed < count]:
            self.check()
            if time.monotonic() > until_s:
                raise BankError(f"{late} have not committed {transfers} more transfers")
            time.sleep(_LOOK_S)

    def settle(self) -> list[str]:
        """Stop all transfers, have every auditor read everything, and return all violations. So do auditors
        of each library who read it only now."""
        for teller in self.tellers:
            teller.stop()
        for teller in self.tellers:
            teller.join(2 * WAIT_S)
            if teller.is_alive():
                raise BankError(f"{teller.name} does not finish its transfer")
        self.check()
        late = [self._new_auditor(f"late-auditor-{name}", name) for name in self._libraries]
        self.auditors += late
        for auditor in late:
            auditor.start()
        ends, attempts, found = self._ends(), self.attempts, []
        for auditor in self.auditors:
            found += [
                f"{auditor.name} knows other balances of {teller.name} than it does"
                for teller in self.tellers
                if auditor.when_at(ends, teller.number) != (teller.next_number, teller.balances)
            ]
            found += auditor.verdict(attempts)
            if auditor.logs() != self.auditors[0].logs():
                found.append(f"{auditor.name} and {self.auditors[0].name} have read different records")
        self.check()
        return self.violations() + found

    def _ends(self) -> Mapping[int, int]:
        """For each partition the offset behind the last record that was acknowledged."""
        return {
            partition: max(teller.ends.get(partition, 0) for teller in self.tellers)
            for partition in range(self._plan.partitions)
        }

    def close(self) -> None:
        for teller in self.tellers:
            teller.abandon()
        for auditor in self.auditors:
            auditor.stop()
        for teller in self.tellers:
            teller.join(WAIT_S)


@contextmanager
def open_bank(bootstrap: str, plan: BankPlan, *, replicas: int) -> Iterator[Bank]:
    """Create the topic of accounts, and employ the staff until the exit."""
    patient = {name: value for name, value in CONFIG.items() if not name.startswith("socket.")}
    admin = AdminClient({**patient, "bootstrap.servers": bootstrap})
    create_once_possible(admin, NewTopic(plan.topic, plan.partitions, replicas))
    bank = Bank(bootstrap, plan)
    bank.start()
    try:
        yield bank
    finally:
        bank.close()
