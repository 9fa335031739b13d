"""What an auditor finds in its books at once: lost, doubled, torn and aborted transfers."""

from __future__ import annotations

import random
from collections.abc import Mapping

from tests.bank.books import START_BALANCE, BankPlan, Books, Entry, decode_entry, transfer

PLAN = BankPlan(accounts=8, tellers=2)


def entries(teller: int, number: int, changed: Mapping[int, int]) -> list[Entry]:
    """A transfer that took place at the first attempt."""
    return [
        Entry(teller, number, number, len(changed), account, balance) for account, balance in changed.items()
    ]


def opened(teller: int = 0) -> tuple[Books, dict[int, int]]:
    """Books with the accounts of one teller, and its balances."""
    books, balances = Books(PLAN), dict.fromkeys(PLAN.accounts_of(teller), START_BALANCE)
    for entry in entries(teller, 0, balances):
        books.take(entry)
    return books, balances


def test_an_entry_is_read_as_it_was_written() -> None:
    entry = Entry(9, 2**41, 2**40, 4, 999, -7)
    assert decode_entry(entry.encode()) == entry


def test_random_transfers_keep_the_sum_in_whatever_order_partitions_are_read() -> None:
    rng = random.Random(1)
    books, balances = opened(1)
    later: list[Entry] = []
    for number in range(1, 200):
        changed = transfer(balances, rng)
        balances |= changed
        later += entries(1, number, changed)
        # Some parts of the last few transfers are read late.
        rng.shuffle(later)
        for _ in range(rng.randint(0, len(later))):
            books.take(later.pop())
    for entry in later:
        books.take(entry)
    assert not books.violations
    assert not books.torn()
    assert books.of(1) == (200, balances)


def test_a_lost_transfer_changes_the_sum() -> None:
    books, balances = opened()
    balances |= {0: 900, 1: 1100}  # Acknowledged, but nobody sees it.
    for entry in entries(0, 1, balances | {0: 850, 2: 1050}):
        if entry.account in (0, 2):
            books.take(entry._replace(parts=2))
    assert books.violations == ["after transfer 1 of teller 0 its accounts have 3900 instead of 4000"]


def test_an_aborted_transfer_that_is_seen_is_there_twice() -> None:
    books, _ = opened()
    for entry in entries(0, 1, {0: 900, 1: 1100}) + entries(0, 1, {0: 950, 3: 1050}):
        books.take(entry)
    assert len(books.violations) == 2
    assert "is there twice" in books.violations[0]


def test_a_part_of_an_aborted_transfer_that_is_seen_is_found() -> None:
    books, _ = opened()
    seen = entries(0, 1, {0: 900, 1: 1100})[:1] + entries(0, 1, {0: 950, 3: 1050})
    for entry in seen:
        books.take(entry)
    assert books.violations


def test_a_transfer_that_is_not_whole_is_torn() -> None:
    books, _ = opened()
    books.take(entries(0, 1, {0: 900, 1: 1100})[1])
    assert not books.violations
    assert len(books.torn()) == 1
