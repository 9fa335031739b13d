"""The judges of owners report every kind of violation, and none in a correct history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast_log.protocol.batches import split
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.ownership import (
    IF_FREE,
    NO_PARTITION,
    PRODUCERS_GROUP,
    Access,
    LossReason,
)
from tests.models.batches import batch
from tests.models.world import World
from tests.sim.checkers import StoredBatch, StoredLog
from tests.sim.history import Batch, History, Incarnation, Outcome
from tests.sim.owner_history import Guard, OwnedBatch, OwnerHistory, Told

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


def share(owner: str, *, asked_s: float = 0.0, told_s: float = 0.0) -> Told:
    return Told(owner, PLACE, -1, -1, -1, -1, asked_s, told_s, PRODUCERS_GROUP)


def wrote(told: OwnerHistory, under: Told, value: bytes, expected: int | None = None) -> OwnedBatch:
    batch = Batch(under.owner, AT, len(told.batches), [value], -1, is_idempotent=True, made_s=0.0, sends=1)
    owned = OwnedBatch(batch, under, expected)
    told.batches.append(owned)
    return owned


def log(*values: bytes) -> StoredLog:
    stored = []
    for offset, value in enumerate(values):
        data = batch(value, base_offset=offset)
        stored += [StoredBatch(header, data) for header in split(data)]
    return StoredLog("b1", tuple(stored))


def test_successive_owners_have_no_violations(told: OwnerHistory) -> None:
    one, two = grant("o0", 1, told_s=1), grant("o1", 2, fence=1, named=1, asked_s=2, told_s=3)
    told.granted(one)
    told.granted(two)
    told.resumed(two, asked_s=4)
    told.fenced(one, 2, LossReason.STOLEN)
    wrote(told, one, b"a", expected=0)
    wrote(told, one, b"never arrived").is_refused = True
    wrote(told, two, b"b", expected=1)
    assert found(told) == []
    assert list(told.check(PLACE, log(b"a", b"b"))) == []


def test_a_refusal_that_names_a_passed_end_of_the_log_is_found(told: OwnerHistory) -> None:
    one = grant("o0", 1, told_s=1)
    done, refused = wrote(told, one, b"a", expected=0), wrote(told, one, b"b", expected=3)
    told.history.world.run(5)
    done.batch.offset = 0
    told.was_appended(done)
    told.mismatched(refused, 1, asked_s=6.0)
    told.mismatched(refused, 0, asked_s=4.0)
    assert found(told) == []
    told.mismatched(refused, 0, asked_s=6.0)
    assert len(found(told)) == 1 and "the log ends at 0" in found(told)[0]


def test_a_grant_older_than_an_earlier_one_is_found(told: OwnerHistory) -> None:
    told.granted(grant("o0", 3, told_s=1))
    told.granted(grant("o1", 2, asked_s=2, told_s=3))
    told.granted(grant("o2", 3, asked_s=2, told_s=3))
    assert found(told) == [
        "generation 2 (2) of owned-0 for o1 was granted after generation 3 (3) of owned-0 for o0",
        "generation 3 (3) of owned-0 for o2 has the incarnation of generation 3 (3) of owned-0 for o0",
    ]


def test_concurrent_claims_may_be_granted_in_either_order(told: OwnerHistory) -> None:
    told.granted(grant("o0", 3, told_s=3))
    told.granted(grant("o1", 2, asked_s=2, told_s=4))
    assert found(told) == []


def test_a_grant_that_does_not_raise_the_generation_is_found(told: OwnerHistory) -> None:
    told.granted(grant("o0", 1, 1))
    told.granted(grant("o1", 1, 2))
    assert len(found(told)) == 1


def test_a_claim_with_generation_0_may_reset_the_generation(told: OwnerHistory) -> None:
    told.has_resets = True
    told.granted(grant("o0", 5, 1))
    told.granted(grant("o1", 1, 2, named=0))
    told.fenced(grant("o0", 5, 1), 1, LossReason.STOLEN)
    assert found(told) == []


def test_a_granted_claim_with_a_stale_generation_is_found(told: OwnerHistory) -> None:
    told.granted(grant("o0", 5, told_s=1))
    told.granted(grant("o1", 6, named=4, asked_s=2))
    assert len(found(told)) == 1


@pytest.mark.parametrize("is_told_first", [True, False])
def test_a_claim_of_a_free_resource_that_takes_one_from_its_owner_is_found(
    told: OwnerHistory, is_told_first: bool
) -> None:
    told.granted(grant("o0", 1))
    taker = grant("o1", 2, asked_s=2, told_s=3)
    if is_told_first:
        told.granted(taker)
    told.fenced(grant("o0", 1), 2, LossReason.STOLEN)
    if not is_told_first:
        told.granted(taker)
    assert found(told) == [f"{taker} was granted to a claim of a free resource, but took {grant('o0', 1)}"]


@pytest.mark.parametrize(("claimed", "violations"), [(4, 1), (5, 0), (6, 0), (7, 1)])
def test_a_claim_of_a_free_resource_may_be_answered_with_what_an_earlier_one_of_its_owner_took(
    told: OwnerHistory, claimed: int, violations: int
) -> None:
    told.granted(grant("o0", 5))
    taker = replace(grant("o1", 6, asked_s=2, told_s=3), claimed=frozenset({IF_FREE, claimed}))
    told.granted(taker)
    told.fenced(grant("o0", 5), 6, LossReason.STOLEN)
    assert len(found(told)) == violations


def test_a_claim_of_a_free_resource_may_follow_one_that_took_it_and_was_not_told(told: OwnerHistory) -> None:
    told.granted(grant("o0", 1))
    told.fenced(grant("o0", 1), 2, LossReason.STOLEN)
    told.granted(grant("o1", 3, asked_s=2, told_s=3))
    told.granted(grant("o0", 4, asked_s=4, told_s=5))
    assert not found(told)


def test_a_resumption_after_a_newer_grant_is_found(told: OwnerHistory) -> None:
    one = grant("o0", 1, told_s=1)
    told.granted(one)
    told.granted(grant("o1", 2, asked_s=2, told_s=3))
    told.resumed(one, asked_s=4)
    assert found(told) == [
        "generation 1 (1) of owned-0 for o0 was resumed after generation 2 (2) of owned-0 for o1"
    ]


def test_a_lost_grant_without_a_newer_owner_is_found(told: OwnerHistory) -> None:
    told.fenced(grant("o0", 2), 2, LossReason.STOLEN)
    told.dropped(grant("o0", 2), LossReason.DISCONNECTED)
    assert len(found(told)) == 2


def test_a_write_after_a_record_of_the_next_owner_is_found(told: OwnerHistory) -> None:
    one, two = grant("o0", 1), grant("o1", 2, fence=1)
    told.grants += [one]
    wrote(told, one, b"a")
    wrote(told, two, b"b")
    wrote(told, one, b"late")
    assert len(list(told.check(PLACE, log(b"a", b"b", b"late")))) == 1


def test_a_write_at_the_fence_of_the_next_owner_is_found(told: OwnerHistory) -> None:
    one, two = grant("o0", 1), grant("o1", 2, fence=1)
    told.grants += [one, two]
    wrote(told, one, b"a")
    wrote(told, one, b"late")
    (violation,) = told.check(PLACE, log(b"a", b"late"))
    assert violation.endswith("wrote at 1, at or after the fence 1 of generation 2 (2) of owned-0 for o1")


def test_a_write_before_its_own_fence_is_found(told: OwnerHistory) -> None:
    one = grant("o0", 1, fence=3)
    told.grants += [one]
    wrote(told, one, b"a")
    assert len(list(told.check(PLACE, log(b"a")))) == 1


def test_a_refused_batch_and_one_with_an_unmet_condition_in_the_log_are_found(told: OwnerHistory) -> None:
    one = grant("o0", 1)
    wrote(told, one, b"a").is_refused = True
    wrote(told, one, b"b", expected=5)
    assert list(told.check(PLACE, log(b"a", b"b"))) == [
        "batch 0 of o0 for owned-0 was refused for good, but is at 0",
        "batch 1 of o0 for owned-0 expected the log to end at 5, but is at 1",
    ]


def test_sharing_producers_may_interleave_before_an_exclusive_one(told: OwnerHistory) -> None:
    one, two = share("x0", told_s=1), share("x1", told_s=1)
    alone = grant("x2", 1, fence=3, asked_s=2, told_s=3)
    for each in (one, two, alone):
        told.granted(each)
    for writer, value in ((one, b"a"), (two, b"b"), (one, b"c"), (alone, b"d")):
        wrote(told, writer, value)
    told.stands(alone, asked_s=4)
    assert found(told) == []
    assert list(told.check(PLACE, log(b"a", b"b", b"c", b"d"))) == []


def test_a_shared_write_at_the_fence_of_an_exclusive_owner_is_found(told: OwnerHistory) -> None:
    shared, alone = share("x0", told_s=1), grant("x1", 1, fence=1, asked_s=2, told_s=3)
    told.grants += [shared, alone]
    wrote(told, shared, b"a")
    wrote(told, shared, b"late")
    (violation,) = told.check(PLACE, log(b"a", b"late"))
    assert violation.endswith("wrote at 1, at or after the fence 1 of generation 1 (1) of owned-0 for x1")


def test_a_shared_write_between_records_of_an_exclusive_owner_is_found(told: OwnerHistory) -> None:
    alone, shared = grant("x1", 1, told_s=3), share("x0", asked_s=1, told_s=4)
    told.grants += [alone, shared]
    for writer, value in ((alone, b"a"), (shared, b"b"), (alone, b"c")):
        wrote(told, writer, value)
    (violation,) = told.check(PLACE, log(b"a", b"b", b"c"))
    assert violation.endswith("wrote at 2, before and after shared access to owned-0 for x0")


def test_a_strangers_record_within_a_grant_is_found(told: OwnerHistory) -> None:
    one = grant("o0", 1)
    told.granted(one)
    for value in (b"a", b"b"):
        wrote(told, one, value)
    (violation,) = told.check(PLACE, log(b"x", b"a", b"y", b"b"))
    assert violation.endswith("wrote at 3, before and after the record b'y' of a stranger")


def test_strangers_may_write_before_and_after_each_grant(told: OwnerHistory) -> None:
    one, two = grant("o0", 1, told_s=1), grant("o0", 3, fence=3, asked_s=2, told_s=3)
    told.granted(one)
    told.granted(two)
    wrote(told, one, b"a")
    wrote(told, two, b"b")
    assert list(told.check(PLACE, log(b"x", b"a", b"y", b"b", b"z"))) == []


def test_shared_access_beside_an_exclusive_grant_is_found(told: OwnerHistory) -> None:
    shared, alone = share("x0", told_s=1), grant("x1", 1, asked_s=2, told_s=3)
    told.granted(shared)
    told.granted(alone)
    told.stands(shared, asked_s=2.5)
    assert found(told) == []
    told.stands(shared, asked_s=4)
    assert found(told) == [
        "shared access to owned-0 for x0 was confirmed beside generation 1 (1) of owned-0 for x1"
    ]


def test_a_resumption_of_exclusive_access_after_a_shared_grant_is_found(told: OwnerHistory) -> None:
    alone = grant("x1", 1, told_s=1)
    told.granted(alone)
    told.granted(share("x0", asked_s=2, told_s=3))
    told.resumed(alone, asked_s=4)
    assert len(found(told)) == 1


def test_a_reader_and_a_writer_may_own_a_partition_together(told: OwnerHistory) -> None:
    reader = Told("r0", PLACE, 1, 1, 0, -1, 0.0, 1.0, "readers", Access.READ)
    told.granted(reader)
    told.granted(grant("o0", 1, 2, asked_s=2, told_s=3))
    told.resumed(reader, asked_s=4)
    assert found(told) == []


def test_a_write_by_an_owner_that_knows_its_grant_has_ended_is_found(told: OwnerHistory) -> None:
    one = grant("o0", 1)
    told.granted(one)
    wrote(told, one, b"a").is_late = True
    (violation,) = told.check(PLACE, log(b"a"))
    assert violation.endswith(
        "is at 0, though generation 1 (1) of owned-0 for o0 had ended and its owner knew"
    )


def test_a_guard_that_cannot_hold_is_found(told: OwnerHistory) -> None:
    told.history.seen[Incarnation(("t", 0))] = [b"a", b"b"]
    owned = wrote(told, grant("o0", 1), b"c")
    told.guard_held(owned, Guard(("t", 0), 2, told.known_end(("t", 0))))
    assert found(told) == []
    told.guard_held(owned, Guard(("t", 0), 1, told.known_end(("t", 0))))
    assert len(found(told)) == 1
    told.guard_ignored(owned, Guard(("t", 0), 5, 2))
    assert len(found(told)) == 2


def test_a_fence_before_which_not_everything_is_committed_is_found(told: OwnerHistory) -> None:
    told.history.committed = {PLACE: 4}
    told.granted(grant("a", 1, fence=4))
    assert found(told) == []
    told.granted(grant("b", 2, fence=5))
    assert found(told) == [
        "owned-0: fence of generation 2 (2) of owned-0 for b implies that 5 is committed, "
        "but no leader got beyond 4"
    ]


def test_a_repeated_append_is_found_where_it_was_acknowledged(told: OwnerHistory) -> None:
    owned = wrote(told, grant("a", 1), b"x")
    owned.batch.outcome, owned.batch.offset = Outcome.ACKED, 4
    told.was_repeated(owned, 4, is_repeat=True)
    assert found(told) == []

    told.was_repeated(owned, 5, is_repeat=True)
    told.was_repeated(owned, 5, is_repeat=False)
    assert found(told) == [
        f"{owned.batch} is at 4, but its repetition was answered 5",
        f"{owned.batch} was appended again at 5 by its repetition",
    ]


def test_a_repeated_append_without_an_outcome_is_acknowledged_where_it_is_found(told: OwnerHistory) -> None:
    owned = wrote(told, grant("a", 1), b"x")
    told.was_repeated(owned, 4, is_repeat=True)
    assert (owned.batch.outcome, owned.batch.offset) == (Outcome.ACKED, 4)
    assert found(told) == []


def test_a_repetition_that_is_answered_before_the_append_is_committed_is_found(told: OwnerHistory) -> None:
    owned = wrote(told, grant("a", 1), b"x")
    told.history.committed = {PLACE: 4}
    told.was_repeated(owned, 3, is_repeat=True)
    assert found(told) == []

    owned.batch.outcome, owned.batch.offset = Outcome.UNKNOWN, None
    told.was_repeated(owned, 4, is_repeat=True)
    assert found(told) == [
        f"owned-0: the repetition of {owned.batch} implies that 5 is committed, but no leader got beyond 4"
    ]


def test_a_refused_append_is_not_found_by_its_repetition(told: OwnerHistory) -> None:
    owned = wrote(told, grant("a", 1), b"x")
    owned.is_refused = True
    told.was_repeated(owned, 4, is_repeat=True)
    assert found(told) == [f"{owned.batch} was refused for good, but its repetition found it at 4"]


def test_the_id_of_an_acknowledged_append_is_known_while_its_records_are_not_deleted(
    told: OwnerHistory,
) -> None:
    owned = wrote(told, grant("a", 1), b"x")
    owned.batch.outcome, owned.batch.offset = Outcome.ACKED, 4
    told.was_forgotten(owned)
    assert found(told) == [f"{owned.batch} is at 4, but its append id was unknown"]

    told.history.deletes(PLACE, 5)
    told.was_forgotten(owned)
    assert len(told.history.violations) == 1


@pytest.mark.parametrize(("told_s", "violations"), [(1.9, 1), (2.5, 0)])
def test_only_a_name_that_nobody_has_owned_for_long_begins_at_generation_1_again(
    told: OwnerHistory, told_s: float, violations: int
) -> None:
    told.names_forgotten_after_s = 2.0
    name = Incarnation(("name", NO_PARTITION))
    told.granted(replace(grant("n0", 5, 7, told_s=0.1), place=name, access=Access.NONE))
    again = grant("n1", 1, 8, asked_s=1.5, told_s=told_s)
    told.granted(replace(again, place=name, access=Access.NONE))
    assert len(found(told)) == violations


def test_a_partition_never_begins_at_generation_1_again(told: OwnerHistory) -> None:
    told.names_forgotten_after_s = 2.0
    told.granted(grant("o0", 5, 7))
    told.granted(grant("o1", 1, 8, asked_s=100, told_s=101))
    assert len(found(told)) == 1


def test_a_genuine_fence_is_not_refused_as_if_it_were_forged(told: OwnerHistory) -> None:
    told.fence_refused(grant("o0", 1), ErrorCode.OWNERSHIP_DETACHED, 1.0)
    told.fence_refused(grant("o0", 1), ErrorCode.NOT_LEADER_OR_FOLLOWER, 1.0)
    assert found(told) == []
    told.fence_refused(grant("o0", 1), ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1.0)
    (violation,) = found(told)
    assert violation == "the fence of generation 1 (1) of owned-0 for o0 was refused as if it were forged"


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.OWNERSHIP_FENCED])
def test_a_grant_is_not_confirmed_after_its_fence_was_refused_for_good(
    told: OwnerHistory, code: ErrorCode
) -> None:
    first, second = grant("o0", 1), grant("o1", 2)
    told.fence_refused(first, code, 5.0)
    told.stands(first, 4.0)
    told.resumed(second, 6.0)
    assert found(told) == []
    told.stands(first, 6.0)
    told.resumed(first, 6.0)
    assert (
        found(told)
        == ["generation 1 (1) of owned-0 for o0 was confirmed, though its fence was refused for good before"]
        * 2
    )


def test_no_request_is_served_by_a_forged_fence(told: OwnerHistory) -> None:
    told.forged("o1", grant("o0", 1), "wrote")
    (violation,) = found(told)
    assert violation == "o1 wrote by the fence of generation 1 (1) of owned-0 for o0, without its secret"
