"""The judge finds each kind of wrong history, and nothing in random correct ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from tests.bank.books import START_BALANCE, BankPlan, Entry, transfer
from tests.bank.ledger import Attempt, Ending, Seen, judge

PLAN = BankPlan(accounts=8, tellers=2, partitions=3)
COMMITTED, ABORTED, UNKNOWN = Ending


def attempt(at: int, number: int, changed: dict[int, int], ending: Ending = COMMITTED) -> Attempt:
    """What teller 0 has tried."""
    parts = len(changed)
    return Attempt(tuple(Entry(0, at, number, parts, *pair) for pair in changed.items()), ending)


OPENING = attempt(0, 0, dict.fromkeys(PLAN.accounts_of(0), START_BALANCE))
PAID = attempt(1, 1, {0: 900, 1: 1100})


def logs(attempts: Iterable[Attempt]) -> list[Seen]:
    """What an auditor reads of these, with a marker behind each transaction."""
    ends = [0] * PLAN.partitions
    found: list[Seen] = []
    for each in attempts:
        for entry in each.entries:
            partition = PLAN.partition_of(entry.account)
            found.append((partition, ends[partition], entry))
            ends[partition] += 2
    return found


def first_words(attempts: Sequence[Attempt], seen: Sequence[Seen]) -> set[str]:
    return {violation.partition(":")[0] for violation in judge(PLAN, attempts, seen)}


def test_what_was_committed_is_there() -> None:
    assert not first_words([OPENING, PAID], logs([OPENING, PAID]))


def test_an_aborted_transfer_is_not_there() -> None:
    aborted = attempt(1, 1, {0: 900, 1: 1100}, ABORTED)
    again = attempt(2, 1, {0: 1, 1: 1999})
    assert not first_words([OPENING, aborted, again], logs([OPENING, again]))


@pytest.mark.parametrize("is_there", [True, False])
def test_a_transfer_of_unknown_outcome_is_there_or_not(is_there: bool) -> None:
    unknown = attempt(1, 1, {0: 900, 1: 1100}, UNKNOWN)
    assert not first_words([OPENING, unknown], logs([OPENING, unknown] if is_there else [OPENING]))


def test_a_lost_transfer_is_found() -> None:
    assert first_words([OPENING, PAID], logs([OPENING])) == {"lost"}


def test_a_dirty_read_is_found_also_if_it_is_only_a_part() -> None:
    aborted = attempt(1, 1, {0: 900, 1: 1100}, ABORTED)
    seen = logs([OPENING, aborted])
    assert first_words([OPENING, aborted], seen) == {"dirty read"}
    assert first_words([OPENING, aborted], seen[:-1]) == {"dirty read"}


@pytest.mark.parametrize("ending", [COMMITTED, UNKNOWN])
def test_half_a_transfer_is_found(ending: Ending) -> None:
    paid = attempt(1, 1, {0: 900, 1: 1100}, ending)
    assert first_words([OPENING, paid], logs([OPENING, paid])[:-1]) == {"half"}


def test_a_transfer_that_is_written_twice_is_found() -> None:
    seen = logs([OPENING, PAID, PAID])
    assert first_words([OPENING, PAID], seen) == {"doubled"}


def test_a_transfer_that_is_made_again_although_it_took_place_is_found() -> None:
    unknown, again = attempt(1, 1, {0: 900, 1: 1100}, UNKNOWN), attempt(2, 1, {0: 900, 1: 1100})
    assert first_words([OPENING, unknown, again], logs([OPENING, unknown, again])) == {"doubled"}


def test_what_no_teller_wrote_is_foreign_and_so_is_what_is_elsewhere() -> None:
    assert first_words([OPENING], [*logs([OPENING]), (0, 9, PAID.entries[0])]) == {"foreign"}
    partition, offset, entry = logs([OPENING])[0]
    moved = [(partition + 1, offset, entry), *logs([OPENING])[1:]]
    assert first_words([OPENING], moved) == {"foreign"}


def test_transfers_that_change_places_are_out_of_order() -> None:
    later = attempt(2, 2, {0: 800, 1: 1200})
    assert first_words([OPENING, PAID, later], logs([OPENING, later, PAID])) == {"out of order"}


def random_history(seed: int) -> tuple[list[Attempt], list[Attempt]]:
    """What a teller has tried, and what of that took place."""
    rng = random.Random(seed)
    attempts, there, balances = [OPENING], [OPENING], dict.fromkeys(PLAN.accounts_of(0), START_BALANCE)
    for at in range(1, 40):
        changed = transfer(balances, rng)
        each = attempt(at, len(there), changed, rng.choices(list(Ending), [6, 2, 1])[0])
        attempts.append(each)
        if each.ending is COMMITTED or (each.ending is UNKNOWN and rng.random() < 0.5):
            there.append(each)
            balances |= changed
    return attempts, there


@pytest.mark.parametrize("seed", range(20))
def test_random_histories_are_clean_and_wrong_ones_are_not(seed: int) -> None:
    attempts, there = random_history(seed)
    assert Counter(each.ending for each in attempts).keys() == set(Ending)
    assert not first_words(attempts, logs(there))
    rng = random.Random(seed)

    seen = logs(there)
    del seen[rng.randrange(len(seen))]
    assert first_words(attempts, seen) & {"half", "lost"}

    seen = logs(there)
    seen.insert(rng.randrange(len(seen)), rng.choice(seen))
    assert "doubled" in first_words(attempts, seen)

    aborted = rng.choice([each for each in attempts if each.ending is ABORTED])
    assert "dirty read" in first_words(attempts, logs([*there, aborted]))

    committed = rng.choice([each for each in there if each.ending is COMMITTED])
    assert "lost" in first_words(attempts, logs([each for each in there if each is not committed]))
