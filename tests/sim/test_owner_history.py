"""The judges of owners find what they are there for, and nothing in what is as it should be."""

from __future__ import annotations

import pytest

from protocol.batches import split
from protocol.records import BatchBuilder
from tests.sim.checkers import StoredBatch, StoredLog
from tests.sim.history import Batch, History, Incarnation
from tests.sim.owner_history import OwnedBatch, OwnerHistory, Told
from tests.sim.world import World

AT = ("owned", 0)
PLACE = Incarnation(AT)


@pytest.fixture
def told() -> OwnerHistory:
    return OwnerHistory(History(World(1)))


def found(told: OwnerHistory) -> list[str]:
    return [violation.split(": ", 1)[1] for violation in told.history.violations]


def grant(
    owner: str,
    generation: int,
    incarnation: int | None = None,
    *,
    fence: int = 0,
    named: int = -1,
    asked_s: float = 0.0,
    told_s: float = 0.0,
) -> Told:
    incarnation = generation if incarnation is None else incarnation
    return Told(owner, PLACE, generation, incarnation, fence, named, asked_s, told_s)


def wrote(told: OwnerHistory, under: Told, value: bytes, expected: int | None = None) -> OwnedBatch:
    batch = Batch(under.owner, AT, len(told.batches), [value], -1, is_idempotent=True, made_s=0.0, sends=1)
    owned = OwnedBatch(batch, under, expected)
    told.batches.append(owned)
    return owned


def log(*values: bytes) -> StoredLog:
    stored = []
    for offset, value in enumerate(values):
        builder = BatchBuilder()
        builder.append(0, None, value)
        data = bytes(builder.build(base_offset=offset))
        stored += [StoredBatch(header, data) for header in split(data)]
    return StoredLog("b1", tuple(stored))


def test_owners_follow_one_another(told: OwnerHistory) -> None:
    one, two = grant("o0", 1, told_s=1), grant("o1", 2, fence=1, named=1, asked_s=2, told_s=3)
    told.granted(one)
    told.granted(two)
    told.resumed(two, asked_s=4)
    told.fenced(one, 2, is_stolen=True)
    wrote(told, one, b"a", expected=0)
    wrote(told, one, b"never arrived").is_refused = True
    wrote(told, two, b"b", expected=1)
    assert found(told) == []
    assert list(told.check(PLACE, log(b"a", b"b"))) == []


def test_a_grant_that_was_told_is_forgotten(told: OwnerHistory) -> None:
    told.granted(grant("o0", 3, told_s=1))
    told.granted(grant("o1", 2, asked_s=2, told_s=3))
    told.granted(grant("o2", 3, asked_s=2, told_s=3))
    assert found(told) == [
        "generation 2 (2) of owned-0 for o1 was granted when generation 3 (3) of owned-0 for o0 had been",
        "generation 3 (3) of owned-0 for o2 has the incarnation of generation 3 (3) of owned-0 for o0",
    ]


def test_what_was_asked_before_tells_nothing_of_the_order(told: OwnerHistory) -> None:
    told.granted(grant("o0", 3, told_s=3))
    told.granted(grant("o1", 2, asked_s=2, told_s=4))
    assert found(told) == []


def test_a_grant_does_not_raise_the_generation(told: OwnerHistory) -> None:
    told.granted(grant("o0", 1, 1))
    told.granted(grant("o1", 1, 2))
    assert len(found(told)) == 1


def test_a_generation_may_begin_anew_where_somebody_claims_with_0(told: OwnerHistory) -> None:
    told.has_resets = True
    told.granted(grant("o0", 5, 1))
    told.granted(grant("o1", 1, 2, named=0))
    told.fenced(grant("o0", 5, 1), 1, is_stolen=True)
    assert found(told) == []


def test_a_stale_claim_is_granted(told: OwnerHistory) -> None:
    told.granted(grant("o0", 5, told_s=1))
    told.granted(grant("o1", 6, named=4, asked_s=2))
    assert len(found(told)) == 1


def test_an_owner_goes_on_after_it_was_fenced(told: OwnerHistory) -> None:
    one = grant("o0", 1, told_s=1)
    told.granted(one)
    told.granted(grant("o1", 2, asked_s=2, told_s=3))
    told.resumed(one, asked_s=4)
    assert found(told) == [
        "generation 1 (1) of owned-0 for o0 was resumed after generation 2 (2) of owned-0 for o1"
    ]


def test_an_owner_loses_what_nobody_has_got(told: OwnerHistory) -> None:
    told.fenced(grant("o0", 2), 2, is_stolen=True)
    told.dropped(grant("o0", 2))
    assert len(found(told)) == 2


def test_an_owner_writes_after_the_next_one(told: OwnerHistory) -> None:
    one, two = grant("o0", 1), grant("o1", 2, fence=1)
    told.grants += [one]
    wrote(told, one, b"a")
    wrote(told, two, b"b")
    wrote(told, one, b"late")
    assert len(list(told.check(PLACE, log(b"a", b"b", b"late")))) == 1


def test_an_owner_writes_behind_the_fence_of_the_next_one(told: OwnerHistory) -> None:
    one, two = grant("o0", 1), grant("o1", 2, fence=1)
    told.grants += [one, two]
    wrote(told, one, b"a")
    wrote(told, one, b"late")
    (violation,) = told.check(PLACE, log(b"a", b"late"))
    assert violation.endswith("wrote at 1, behind the fence 1 of generation 2 (2) of owned-0 for o1")


def test_an_owner_writes_before_its_own_fence(told: OwnerHistory) -> None:
    one = grant("o0", 1, fence=3)
    told.grants += [one]
    wrote(told, one, b"a")
    assert len(list(told.check(PLACE, log(b"a")))) == 1


def test_what_was_refused_is_there_and_a_condition_did_not_hold(told: OwnerHistory) -> None:
    one = grant("o0", 1)
    wrote(told, one, b"a").is_refused = True
    wrote(told, one, b"b", expected=5)
    assert list(told.check(PLACE, log(b"a", b"b"))) == [
        "batch 0 of o0 for owned-0 was refused for good, but is at 0",
        "batch 1 of o0 for owned-0 expected the log to end at 5, and is at 1",
    ]
