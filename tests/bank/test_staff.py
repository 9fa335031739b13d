"""Tellers and auditors on a broker in memory: lost answers do not disturb them, and each flaw is found."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.bank.bank import Bank
from tests.bank.books import BankPlan
from tests.bank.ledger import Ending
from tests.bank.tills import BankError, Ended, Library, TillError

PLAN = BankPlan(accounts=24, tellers=3, auditors=2, partitions=3, pace_s=0.0)
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"
SOME = 0.1
_IDLE_S = 0.001


@dataclass(eq=False)
class Transaction:
    state: str = OPEN
    hidden: int = -1
    """A partition of which readers get nothing, by a flaw."""
    sent: list[tuple[int, bytes]] = field(default_factory=list)


class MemoryBroker:
    """The partitions of a bank, in memory. It loses some answers, and has one `flaw`, or none."""

    def __init__(self, flaw: str = "") -> None:
        self.lock = threading.Lock()
        self.logs: list[list[tuple[bytes, Transaction]]] = [[] for _ in range(PLAN.partitions)]
        self.last: dict[str, MemoryTill] = {}
        self.is_broken = False
        """Whether nothing can be sent any more: an error that no teller expects."""
        self._flaw = flaw
        self._rng = random.Random(1)

    def is_hit(self, flaw: str, share: float = SOME) -> bool:
        return self._flaw == flaw and self._rng.random() < share

    def loses_answer(self) -> bool:
        return self._rng.random() < SOME / 2

    def commits(self, till: MemoryTill) -> bool:
        """Whether a commit is carried out; a marker ends it."""
        transaction = till.transaction
        if self.last[till.name] is not till and not self.is_hit("fenced may commit", 1.0):
            return False
        transaction.state = ABORTED if self.is_hit("commits are lost") else COMMITTED
        if self.is_hit("a partition gets no marker"):
            transaction.hidden = self._rng.randrange(PLAN.partitions)
        if self.is_hit("retries are written again"):
            for partition, value in transaction.sent:
                self.logs[partition].append((value, transaction))
        return True

    def abort(self, transaction: Transaction) -> None:
        if transaction.state == OPEN:
            transaction.state = COMMITTED if self.is_hit("aborted ones are shown", 1.0) else ABORTED

    def open_till(self, bootstrap: str, topic: str, name: str, is_over: Callable[[], bool]) -> MemoryTill:
        with self.lock:
            if name in self.last:
                self.abort(self.last[name].transaction)
            self.last[name] = MemoryTill(self, name)
            return self.last[name]

    def open_reader(self, bootstrap: str, plan: BankPlan) -> MemoryReader:
        return MemoryReader(self)


class MemoryTill:
    def __init__(self, broker: MemoryBroker, name: str) -> None:
        self.ends: dict[int, int] = {}
        self.name = name
        self.transaction = Transaction(ABORTED)
        self._broker = broker

    def begin(self) -> None:
        with self._broker.lock:
            self.transaction = Transaction()
            if self._broker.last[self.name] is not self:
                raise TillError("fenced")

    def send(self, partition: int, value: bytes) -> None:
        with self._broker.lock:
            if self._broker.is_broken:
                raise OSError("nothing can be sent")
            if self._broker.last[self.name] is not self:
                raise TillError("fenced")
            self._broker.logs[partition].append((value, self.transaction))
            self.transaction.sent.append((partition, value))
            self.ends[partition] = len(self._broker.logs[partition])

    def flush(self, seconds: float) -> None:
        pass

    def commit(self) -> Ended:
        with self._broker.lock:
            if self._broker.loses_answer():
                if random.random() < 0.5:
                    self._broker.commits(self)
                return Ended(Ending.UNKNOWN, goes_on=False)
            if self._broker.commits(self):
                return Ended(Ending.COMMITTED, goes_on=True)
            return Ended(Ending.ABORTED, goes_on=False)

    def abort(self) -> bool:
        with self._broker.lock:
            self._broker.abort(self.transaction)
        return True

    def close(self) -> None:
        pass


class MemoryReader:
    """Reads up to the first record of an open transaction, a record at a time from each partition."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker
        self._upcoming = [0] * PLAN.partitions

    def read(self) -> Sequence[tuple[int, int, bytes]]:
        found = []
        with self._broker.lock:
            for partition, log in enumerate(self._broker.logs):
                at = self._upcoming[partition]
                if at == len(log) or log[at][1].state == OPEN:
                    continue
                value, transaction = log[at]
                if transaction.state == COMMITTED and transaction.hidden != partition:
                    found.append((partition, at, value))
                self._upcoming[partition] += 1
        if not found:
            time.sleep(_IDLE_S)
        return found

    def upcoming(self) -> Sequence[int]:
        return self._upcoming

    def close(self) -> None:
        pass


@contextmanager
def staff_of(broker: MemoryBroker) -> Iterator[Bank]:
    bank = Bank("", PLAN, {"memory": Library(broker.open_till, broker.open_reader)})
    bank.start()
    try:
        yield bank
    finally:
        bank.close()


def test_lost_answers_and_fenced_tills_change_no_sum() -> None:
    with staff_of(MemoryBroker()) as bank:
        bank.wait_for_more(20)
        while set(bank.endings) < set(Ending):
            bank.wait_for_more(1)
        assert bank.settle() == []
        assert bank.endings[Ending.COMMITTED] >= 20 * PLAN.tellers
        assert str(bank.endings[Ending.UNKNOWN]) in bank.account()


@pytest.mark.parametrize(
    "flaw",
    [
        "aborted ones are shown",
        "commits are lost",
        "a partition gets no marker",
        "retries are written again",
        "fenced may commit",
    ],
)
def test_each_flaw_of_a_broker_is_found(flaw: str) -> None:
    found: list[str] = []
    with staff_of(MemoryBroker(flaw)) as bank:
        while not found:
            bank.wait_for_more(5)
            found = bank.violations()
        assert bank.settle()


def test_a_bank_whose_staff_has_failed_says_so() -> None:
    broker = MemoryBroker()
    with staff_of(broker) as bank:
        bank.wait_for_more(1)
        broker.is_broken = True
        with pytest.raises(BankError, match="teller-"):
            bank.wait_for_more(2)  # The first may have sent its records before.
