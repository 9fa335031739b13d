"""Auditors: threads that read all committed records of the accounts, and keep books."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from tests.bank.books import BankPlan, Books, decode_entry
from tests.bank.ledger import Attempt, Seen, judge
from tests.bank.tills import WAIT_S, BankError, Reader

_LOOK_S = 1.0


class Auditor(threading.Thread):
    """Reads from the beginning, and checks the sum after every transfer."""

    def __init__(self, name: str, plan: BankPlan, open_reader: Callable[[], Reader]) -> None:
        super().__init__(name=name, daemon=True)
        self.error: Exception | None = None
        self._plan = plan
        self._open_reader = open_reader
        self._books = Books(plan)
        self._seen: list[Seen] = []
        self._upcoming: Sequence[int] = [0] * plan.partitions
        self._has_read = threading.Condition()
        self._stopping = threading.Event()

    @property
    def violations(self) -> list[str]:
        with self._has_read:
            return [f"{self.name}: {each}" for each in self._books.violations]

    @property
    def taken(self) -> int:
        """Number of sums checked."""
        return self._books.taken

    def run(self) -> None:
        try:
            reader = self._open_reader()
            try:
                while not self._stopping.is_set():
                    self._take(reader.read(), reader.upcoming())
            finally:
                reader.close()
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._stopping.set()
        if self.is_alive():
            self.join()

    def _take(self, records: Sequence[tuple[int, int, bytes]], upcoming: Sequence[int]) -> None:
        with self._has_read:
            for partition, offset, value in records:
                entry = decode_entry(value)
                self._seen.append((partition, offset, entry))
                self._books.take(entry)
            self._upcoming = list(upcoming)
            self._has_read.notify_all()

    def when_at(self, ends: Mapping[int, int], teller: int) -> tuple[int, dict[int, int]]:
        """What the books say of a teller once everything before these offsets, by partition, has been read.
        Raises `BankError` if that never comes."""
        until_s = time.monotonic() + WAIT_S
        with self._has_read:
            while any(self._upcoming[partition] < end for partition, end in ends.items()):
                if self.error is not None or self._stopping.is_set() or time.monotonic() > until_s:
                    raise BankError(
                        f"{self.name} is at {self._upcoming} and has to get to {ends}: "
                        f"{self.error or 'it has stopped, or it is too late'}"
                    )
                self._has_read.wait(_LOOK_S)
            return self._books.of(teller)

    def verdict(self, attempts: Sequence[Attempt]) -> list[str]:
        """What the judge finds in all that was read. To be asked when everything has been."""
        with self._has_read:
            found = [*self._books.torn(), *judge(self._plan, attempts, self._seen)]
        return [f"{self.name}: {each}" for each in found]

    def logs(self) -> list[list[Seen]]:
        """What was read of each partition, in this order."""
        logs: list[list[Seen]] = [[] for _ in range(self._plan.partitions)]
        with self._has_read:
            for seen in self._seen:
                logs[seen[0]].append(seen)
        return logs
