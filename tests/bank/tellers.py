"""Tellers: threads that make one transfer after the other, and note how each ended."""

from __future__ import annotations

import enum
import random
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from tests.bank.auditors import Auditor
from tests.bank.books import MARK, START_BALANCE, BankPlan, Entry, transfer
from tests.bank.ledger import Attempt, Ending
from tests.bank.tills import BankError, Ended, Till, TillError


class _Way(enum.Enum):
    """How a teller means to end a transfer."""

    COMMIT = enum.auto()
    ABORT = enum.auto()
    COMMIT_FENCED = enum.auto()
    """Another till takes the transactional id over; then it commits nevertheless, which must be refused."""
    LEAVE = enum.auto()
    """Another till takes the transactional id over, and this one says nothing any more."""


_FLUSH_S = 2.0


class Teller(threading.Thread):
    """Makes transfers between accounts of its own. It learns its balances from an auditor whenever it begins
    anew with another till, and finds then how a transfer of unknown outcome has ended. For that it first
    commits a mark to every partition: a broker that does not know yet that it was replaced might name an
    earlier end.

    `open_till` opens a till with the teller's transactional id.
    """

    def __init__(
        self,
        number: int,
        plan: BankPlan,
        auditor: Auditor,
        open_till: Callable[[Callable[[], bool]], Till],
    ) -> None:
        super().__init__(name=f"teller-{number}", daemon=True)
        self.number = number
        self.attempts: list[Attempt] = []
        # All keys from the start: others add these counters up while this thread counts.
        self.endings: Counter[Ending] = Counter(dict.fromkeys(Ending, 0))
        self.refused_because_fenced = 0
        self.violations: list[str] = []
        self.error: Exception | None = None
        self.balances: dict[int, int] = {}
        """The balances after the transfers before `next_number`."""
        self.next_number = 0
        self.ends: Mapping[int, int] = {}
        """For each partition the offset behind the last record of this teller that was acknowledged."""
        self._plan = plan
        self._auditor = auditor
        self._open_till = open_till
        self._rng = random.Random(number)
        self._doubt: Attempt | None = None
        """The last attempt, if its outcome is unknown."""
        self._stopping = threading.Event()
        self._abandoning = threading.Event()

    def stop(self) -> None:
        """Finish the transfer under way, and learn how it ended."""
        self._stopping.set()

    def abandon(self) -> None:
        """End soon, whatever is under way."""
        self._stopping.set()
        self._abandoning.set()

    @property
    def committed(self) -> int:
        """Number of transfers that have taken place, as far as the teller knows."""
        return self.next_number

    def run(self) -> None:
        try:
            till = self._new_till()
            while True:
                if self._has_marked(till):
                    self._learn()
                    if self._serve(till):
                        till.close()
                        return
                former, till = till, self._new_till()
                former.close()
        except Exception as error:
            self.error = error

    def _new_till(self) -> Till:
        """A till that has fenced all earlier ones."""
        return self._open_till(self._abandoning.is_set)

    def _has_marked(self, till: Till) -> bool:
        """Commit a mark to every partition, which are then known to `ends`. False if another till is
        needed."""
        count = self._plan.partitions
        while not self._abandoning.is_set():
            attempt = len(self.attempts)
            entries = tuple(
                Entry(self.number, attempt, MARK, count, partition, 0) for partition in range(count)
            )
            ended = self._write(till, entries, _Way.COMMIT)
            self.attempts.append(Attempt(entries, ended.ending))
            if ended.ending is Ending.COMMITTED and len(till.ends) == count:
                return True
            if not ended.goes_on:
                return False
        raise BankError("abandoned")

    def _learn(self) -> None:
        """Compare what the teller knows with the committed records, after all earlier tills were fenced."""
        possible = [(self.next_number, self.balances)]
        if self._doubt is not None:
            possible.append((self.next_number + 1, self._after(self._doubt.entries)))
        found = self._auditor.when_at(self.ends, self.number)
        if found not in possible:
            self.violations.append(
                f"{self.name}: {found[0]} transfers are there, with balances of {sum(found[1].values())}; "
                f"there must be {' or '.join(str(number) for number, _ in possible)}"
            )
        self.next_number, self.balances = found
        self._doubt = None

    def _serve(self, till: Till) -> bool:
        """Make transfers. Returns whether all is done, False if another till is needed."""
        while not self._stopping.wait(self._rng.uniform(0.5, 1.5) * self._plan.pace_s):
            if not self._transfer(till):
                return False
        return True

    def _transfer(self, till: Till) -> bool:
        """Make a transfer. Returns whether the till can make another one."""
        entries = self._draw()
        aborted, fenced = self._plan.aborted_share, self._plan.fenced_share
        shares = [1.0 - aborted - 2 * fenced, aborted, fenced, fenced]
        ended = self._write(till, entries, self._rng.choices(list(_Way), shares)[0])
        self._note(Attempt(entries, ended.ending))
        return ended.goes_on

    def _write(self, till: Till, entries: Sequence[Entry], way: _Way) -> Ended:
        try:
            till.begin()
            for entry in entries:
                till.send(self._plan.partition_of(entry.account), entry.encode())
            return self._end(till, way)
        except TillError:
            return Ended(Ending.ABORTED, goes_on=False)
        finally:
            self.ends = {**self.ends, **till.ends}

    def _draw(self) -> tuple[Entry, ...]:
        if self.next_number:
            changed = transfer(self.balances, self._rng)
        else:
            changed = dict.fromkeys(self._plan.accounts_of(self.number), START_BALANCE)
        attempt = len(self.attempts)
        return tuple(
            Entry(self.number, attempt, self.next_number, len(changed), account, balance)
            for account, balance in changed.items()
        )

    def _end(self, till: Till, way: _Way) -> Ended:
        if way is _Way.COMMIT:
            return till.commit()
        # Some of it is in the partitions, so that those see it who should not.
        till.flush(self._rng.uniform(0.0, _FLUSH_S))
        if way is _Way.ABORT:
            return Ended(Ending.ABORTED, goes_on=till.abort())
        successor = self._new_till()
        if way is _Way.COMMIT_FENCED:
            if till.commit().ending is Ending.COMMITTED:
                self.violations.append(f"{self.name}: transfer {self.next_number} was committed while fenced")
            self.refused_because_fenced += 1
        successor.close()
        return Ended(Ending.ABORTED, goes_on=False)

    def _note(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        self.endings[attempt.ending] += 1
        if attempt.ending is Ending.COMMITTED:
            self.balances = self._after(attempt.entries)
            self.next_number += 1
        self._doubt = attempt if attempt.ending is Ending.UNKNOWN else None

    def _after(self, entries: Sequence[Entry]) -> dict[int, int]:
        return self.balances | {entry.account: entry.balance for entry in entries}
