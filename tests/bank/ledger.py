"""What the tellers have tried, and how the judge compares it with what an auditor has read: pure.

1. *Lost.* A transfer whose commit was acknowledged is not there.
2. *Dirty read.* An entry is there of a transfer that was aborted, or that nobody asked to commit.
3. *Half.* Some entries of a transfer are there, others are not.
4. *Doubled.* An entry, or a transfer of one number, is there twice.
5. *Foreign.* An entry is there that no teller wrote, or in another partition.
6. *Out of order.* In a partition the transfers of a teller are not in the order in which it made them.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bank.books import MARK, BankPlan, Entry


class Ending(enum.StrEnum):
    """What a teller knows of the end of a transfer."""

    COMMITTED = "committed"
    """The commit was acknowledged."""
    ABORTED = "aborted"
    """The abort was acknowledged, or nobody asked to commit, or the client says that nothing counts."""
    UNKNOWN = "unknown"
    """The commit was asked for, and no answer came: all of it is there, or nothing."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A transfer that a teller has tried, or a mark."""

    entries: tuple[Entry, ...]
    ending: Ending

    def __str__(self) -> str:
        first = self.entries[0]
        return f"attempt {first.attempt} of teller {first.teller} (transfer {first.number}, {self.ending})"


Seen = tuple[int, int, Entry]
"""Partition, offset and content of a record, in the order in which they were read."""


def judge(plan: BankPlan, attempts: Sequence[Attempt], seen: Sequence[Seen]) -> Iterator[str]:
    """Yield each violation of the rules above by what an auditor has read from the beginning to the end."""
    known = {entry: attempt for attempt in attempts for entry in attempt.entries}
    count = Counter(entry for _, _, entry in seen)
    yield from _strange(plan, known, seen)
    for entry, times in count.items():
        if times > 1:
            yield f"doubled: {entry} is there {times} times"
    yield from _about(attempts, count)
    yield from _two_of_one_number(attempts, count)
    yield from _out_of_order(seen)


def _strange(plan: BankPlan, known: dict[Entry, Attempt], seen: Sequence[Seen]) -> Iterator[str]:
    for partition, offset, entry in seen:
        if entry not in known:
            yield f"foreign: no teller wrote {entry}, at {offset} of partition {partition}"
        elif partition != plan.partition_of(entry.account):
            yield f"foreign: {entry} does not belong to partition {partition}, where it is at {offset}"


def _about(attempts: Sequence[Attempt], count: Counter[Entry]) -> Iterator[str]:
    for attempt in attempts:
        there = sum(entry in count for entry in attempt.entries)
        if there and attempt.ending is Ending.ABORTED:
            yield f"dirty read: {there} of {len(attempt.entries)} entries of {attempt} are there"
        elif not there and attempt.ending is Ending.COMMITTED:
            yield f"lost: {attempt} is not there"
        elif 0 < there < len(attempt.entries):
            yield f"half: {there} of {len(attempt.entries)} entries of {attempt} are there"


def _two_of_one_number(attempts: Sequence[Attempt], count: Counter[Entry]) -> Iterator[str]:
    there: defaultdict[tuple[int, int], list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        if attempt.entries[0].number != MARK and any(entry in count for entry in attempt.entries):
            there[attempt.entries[0].teller, attempt.entries[0].number].append(attempt)
    for found in there.values():
        if len(found) > 1:
            yield f"doubled: {' and '.join(map(str, found))} are both there"


def _out_of_order(seen: Sequence[Seen]) -> Iterator[str]:
    last: dict[tuple[int, int], Entry] = {}
    for partition, offset, entry in seen:
        before = last.get((partition, entry.teller))
        if before is not None and before.attempt > entry.attempt:
            yield f"out of order: {entry}, at {offset} of partition {partition}, is behind {before}"
        last[partition, entry.teller] = entry
