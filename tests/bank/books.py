"""The books of a bank, as an auditor keeps them: pure.

Each teller has accounts of its own. A transfer is one transaction, which writes the new balances of some of
them, in any partitions. A teller numbers its transfers, and computes each from the balances after the one
before; so if an acknowledged transfer is lost, or one that was aborted is seen, the sum of the balances
differs. Partitions are not read at one moment: the books take the transfers of a teller in order, each once
all its entries have been seen.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

_ENTRY = struct.Struct(">iqqiiq")
MARK = -1
"""The number of what is no transfer: a teller writes it to every partition to know where they end."""
START_BALANCE = 1000


@dataclass(frozen=True, slots=True)
class BankPlan:
    """The size of a bank. Its accounts are shared out evenly among the tellers, which pause for `pace_s` on
    average between two transfers. Of so many transfers `aborted_share` are aborted; `fenced_share` are left
    to a successor, and as many are committed although there is one."""

    accounts: int = 1000
    tellers: int = 10
    auditors: int = 2
    partitions: int = 6
    pace_s: float = 0.02
    aborted_share: float = 0.1
    fenced_share: float = 0.02
    topic: str = "accounts"

    @property
    def accounts_each(self) -> int:
        return self.accounts // self.tellers

    def accounts_of(self, teller: int) -> range:
        return range(teller * self.accounts_each, (teller + 1) * self.accounts_each)

    def partition_of(self, account: int) -> int:
        return account % self.partitions

    def transactional_id(self, teller: int) -> str:
        return f"{self.topic}-teller-{teller}"

    @property
    def sum_each(self) -> int:
        return self.accounts_each * START_BALANCE


class Entry(NamedTuple):
    """One new balance. `attempt` numbers what the teller has tried, `number` the transfers that took place;
    `parts` is the number of entries of the transfer."""

    teller: int
    attempt: int
    number: int
    parts: int
    account: int
    balance: int

    def encode(self) -> bytes:
        return _ENTRY.pack(*self)


def decode_entry(value: bytes) -> Entry:
    return Entry(*_ENTRY.unpack(value))


def transfer(balances: Mapping[int, int], rng: random.Random) -> dict[int, int]:
    """The new balances of two to four accounts, between which some money has moved."""
    accounts = rng.sample(sorted(balances), rng.randint(2, 4))
    changed = {account: balances[account] for account in accounts}
    for _ in range(rng.randint(1, 3)):
        giver, taker = rng.sample(accounts, 2)
        amount = rng.randint(0, max(0, changed[giver]))
        changed[giver] -= amount
        changed[taker] += amount
    return changed


@dataclass(slots=True)
class _Page:
    """What is known of a teller: its balances after the transfers before `next_number`, and the entries of
    later transfers, by number and account."""

    next_number: int = 0
    balances: dict[int, int] = field(default_factory=dict)
    pending: dict[int, dict[int, Entry]] = field(default_factory=dict)


@dataclass(slots=True)
class Books:
    """What one auditor knows."""

    plan: BankPlan
    violations: list[str] = field(default_factory=list)
    taken: int = 0
    """Number of transfers taken, after each of which the sum was checked."""
    _pages: dict[int, _Page] = field(default_factory=dict)

    def take(self, entry: Entry) -> None:
        """Enter what a reader has got."""
        if entry.number == MARK:
            return
        page = self._pages.setdefault(entry.teller, _Page())
        name = f"transfer {entry.number} of teller {entry.teller}"
        if entry.number < page.next_number:
            self.violations.append(f"{name} is there twice: {entry}")
            return
        parts = page.pending.setdefault(entry.number, {})
        if entry.account in parts:
            self.violations.append(f"{name} is there twice: {entry} after {parts[entry.account]}")
            return
        parts[entry.account] = entry
        self._take_whole(entry.teller, page)

    def _take_whole(self, teller: int, page: _Page) -> None:
        while True:
            parts = page.pending.get(page.next_number)
            if not parts or len(parts) < next(iter(parts.values())).parts:
                return
            del page.pending[page.next_number]
            page.balances.update((entry.account, entry.balance) for entry in parts.values())
            found = sum(page.balances.values())
            if found != self.plan.sum_each:
                self.violations.append(
                    f"after transfer {page.next_number} of teller {teller} its accounts have {found} "
                    f"instead of {self.plan.sum_each}"
                )
            page.next_number += 1
            self.taken += 1

    def of(self, teller: int) -> tuple[int, dict[int, int]]:
        """The number of the teller's next transfer, and its balances."""
        known = self._pages.get(teller, _Page())
        return known.next_number, dict(known.balances)

    def torn(self) -> list[str]:
        """Transfers of which only a part, or none, has been seen, although a later one has. To be asked when
        everything has been read."""
        return [
            f"transfer {page.next_number} of teller {teller} is not whole: "
            f"{sorted(page.pending.get(page.next_number, {}))}, while {sorted(page.pending)} are there"
            for teller, page in sorted(self._pages.items())
            if page.pending
        ]
