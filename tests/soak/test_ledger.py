"""The balance of a soak counts each way in which a record can be wrong."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.soak.ledger import Balance, Ledger, Visit

Stored = list[tuple[str, int, int, bytes]]


def written(ledger: Ledger, *, is_idempotent: bool = True, may_fail: bool = False) -> tuple[Visit, Stored]:
    """A visit with four records in two partitions, and the records that the topic then holds."""
    visit = ledger.open("topic", 2, is_idempotent=is_idempotent, may_fail=may_fail)
    stored = []
    for offset in (0, 0, 1, 1):
        partition, number, value = visit.next_value()
        visit.told(partition, number, offset, "")
        stored.append(("topic", partition, offset, value))
    return visit, stored


def test_a_ledger_balances_if_every_record_is_where_it_was_acknowledged() -> None:
    ledger = Ledger()
    _, first = written(ledger)
    _, second = written(ledger)
    moved = [(topic, partition, offset + 2, value) for topic, partition, offset, value in second]
    for number, (_, partition, offset, _) in enumerate(moved):
        ledger.visits[1].told(partition, number, offset, "")

    balance = ledger.balance(first + moved)

    assert balance == Balance(acknowledged=8, consumed=8)
    assert not balance.faults


def test_each_fault_is_counted() -> None:
    ledger = Ledger()
    visit, stored = written(ledger)
    partition, number, unacknowledged = visit.next_value()
    visit.told(partition, number, None, "timed out")
    topic, at, _, value = stored[3]
    found = [
        *stored[1:3],  # The first record is missing, so it is lost.
        (topic, at, 7, value),  # A wrong offset: misplaced.
        (*stored[1][:2], 9, stored[1][3]),  # A second copy: duplicated.
        ("topic", partition, 5, unacknowledged),  # It failed, but was stored: this is allowed.
        ("topic", 0, 10, b"other words"),
        ("other", 0, 0, stored[1][3]),
    ]

    balance = ledger.balance(found)

    assert balance.faults == {"lost": 1, "misplaced": 1, "duplicated": 1, "foreign": 2, "failed": 1}
    assert (balance.acknowledged, balance.consumed) == (4, 7)


@pytest.mark.parametrize(("is_idempotent", "kind"), [(True, "duplicated"), (False, "repeated")])
def test_only_a_producer_that_is_not_idempotent_may_repeat_records(is_idempotent: bool, kind: str) -> None:
    ledger = Ledger()
    _, stored = written(ledger, is_idempotent=is_idempotent)

    balance = ledger.balance([*stored, (*stored[0][:2], 2, stored[0][3])])

    assert asdict(balance)[kind] == 1
    assert bool(balance.faults) == is_idempotent


def test_an_owner_that_was_fenced_may_fail() -> None:
    ledger = Ledger()
    visit, stored = written(ledger, may_fail=True)
    partition, number, _ = visit.next_value()
    visit.told(partition, number, None, "fenced")

    assert not ledger.balance(stored).faults


def test_a_record_at_an_unknown_offset_must_be_stored() -> None:
    ledger = Ledger()
    visit = ledger.open("librdkafka", 3, is_idempotent=True)
    partition, number, value = visit.next_value()
    visit.told(partition, number, None, "")
    assert not ledger.balance([("librdkafka", partition, 7, value)]).faults
    assert ledger.balance([]).faults == {"lost": 1}
