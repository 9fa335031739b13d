"""The judges of transactions report every kind of violation, and none in a correct history."""

from __future__ import annotations

import pytest

from holdfast_log.protocol.batches import assign, read_header
from holdfast_log.protocol.control_records import EndMarker, end_marker_batch
from tests.models.batches import START_MS, batch
from tests.models.transactional import transactional_batch
from tests.models.world import World
from tests.sim.checkers import StoredBatch, StoredLog
from tests.sim.history import Batch, History, Incarnation
from tests.sim.landlord import Tenure
from tests.sim.owner_history import Told
from tests.sim.transaction_history import Epoch, Fate, TransactionHistory, TransactionTold

PLACE, OTHER = Incarnation(("ledger", 0)), Incarnation(("ledger", 1))
PRODUCER = 7


@pytest.fixture
def told() -> TransactionHistory:
    return TransactionHistory(History(World(1)))


def found(told: TransactionHistory) -> list[str]:
    return [violation.split(" s: ", 1)[1] for violation in told.history.violations]


def given(told: TransactionHistory, epoch: int = 0, process: str = "p0") -> Epoch:
    return told.given("tx", Epoch(process, PRODUCER, epoch))


def written(
    told: TransactionHistory, *values: bytes, places: tuple[Incarnation, ...] = (PLACE,)
) -> TransactionTold:
    """A transaction with one record for each value, the first in the first place, and so on."""
    each = told.begun("tx", given(told))
    for number, (value, place) in enumerate(zip(values, places * len(values), strict=False)):
        told.writes(each, Batch("p0", place.at, number, [value], -1, is_idempotent=True, made_s=0.0))
    return each


def asked(each: TransactionTold, fate: Fate = Fate.UNKNOWN) -> TransactionTold:
    each.asked_s, each.fate = 1.0, fate
    return each


def log(*entries: bytes | bool) -> StoredLog:
    """A log with a transactional record for each value, and a marker for each commit (True) and abort."""
    stored = []
    for offset, entry in enumerate(entries):
        if isinstance(entry, bool):
            data = end_marker_batch(PRODUCER, 0, EndMarker(entry), START_MS)
        else:
            data = transactional_batch(entry, producer_id=PRODUCER)
        assign(data, 0, offset, 0)
        stored.append(StoredBatch(read_header(data), bytes(data)))
    return StoredLog("b1", tuple(stored))


def saw(told: TransactionHistory, offset: int, *values: bytes, visible: bool = True) -> None:
    told.saw("r0", PLACE, offset, values, is_visible=visible)


# Readers --------------------------------------------------------------------------------------------------


def test_a_committed_transaction_that_readers_get_and_an_aborted_one_that_they_drop_are_no_violations(
    told: TransactionHistory,
) -> None:
    committed, aborted = asked(written(told, b"a")), written(told, b"b")
    told.committed(committed, 1.0)
    aborted.fate = Fate.ABORTED
    saw(told, 0, b"a")
    saw(told, 2, b"b", visible=False)
    assert found(told) == []
    assert list(told.check({PLACE: [log(b"a", True, b"b", False)]})) == []


def test_a_record_that_nobody_asked_to_commit_may_not_be_read(told: TransactionHistory) -> None:
    written(told, b"a")
    saw(told, 0, b"a")
    assert found(told) == [
        "r0 got a record of transaction 1 of tx at 0 of ledger-0, but nobody has asked to commit it"
    ]


def test_a_record_that_was_aborted_may_not_be_read(told: TransactionHistory) -> None:
    asked(written(told, b"a"), Fate.ABORTED)
    saw(told, 0, b"a")
    assert found(told) == ["r0 got a record of transaction 1 of tx at 0 of ledger-0, but it was aborted"]


def test_a_record_whose_producer_was_fenced_before_it_asked_may_not_be_read(told: TransactionHistory) -> None:
    each = written(told, b"a")
    given(told, 1, "p1")  # At 0 s of the simulation.
    asked(each)
    saw(told, 0, b"a")
    assert len(found(told)) == 1
    assert found(told)[0].endswith("but its producer was fenced before it asked to commit")


def test_a_committed_record_may_not_be_dropped(told: TransactionHistory) -> None:
    asked(written(told, b"a"), Fate.COMMITTED)
    saw(told, 0, b"a", visible=False)
    assert found(told) == ["r0 had to drop a record of transaction 1 of tx, which was committed"]


def test_a_record_outside_of_transactions_may_not_be_dropped(told: TransactionHistory) -> None:
    saw(told, 3, b"plain", visible=False)
    assert found(told) == ["r0 had to drop 3 of ledger-0, of no transaction"]


def test_readers_must_agree_for_ever_about_a_record(told: TransactionHistory) -> None:
    asked(written(told, b"a"))
    saw(told, 0, b"a")
    saw(told, 0, b"a", visible=False)
    assert found(told) == ["r0 was told that the record at 0 of ledger-0 is aborted; before, committed"]


# Last stable offsets ---------------------------------------------------------------------------------------


def test_a_last_stable_offset_that_rises_up_to_the_high_watermark_is_no_violation(
    told: TransactionHistory,
) -> None:
    for stable in (0, 3, 3, 9):
        told.told_stable("r0", PLACE, (1, 1), stable, 9)
    told.told_stable("r0", OTHER, (1, 1), 0, 9)
    told.told_stable("r1", PLACE, (1, 1), 3, 9)  # The answer to another reader may come late.
    told.told_stable("r0", PLACE, (2, 1), 4, 5)  # Another leader may know less until it is followed.
    assert found(told) == []


def test_a_last_stable_offset_that_falls_is_found(told: TransactionHistory) -> None:
    for stable in (3, 7, 6, 7):
        told.told_stable("r0", PLACE, (1, 1), stable, 9)
    assert found(told) == ["r0 got last stable offset 6 of ledger-0 after 7, in the same leader epoch 1"]


@pytest.mark.parametrize("stable", [-1, 10])
def test_a_last_stable_offset_beyond_the_high_watermark_is_found(
    told: TransactionHistory, stable: int
) -> None:
    told.told_stable("r0", PLACE, (1, 1), stable, 9)
    assert f"r0 got last stable offset {stable} of ledger-0, beyond high watermark 9" in found(told)


# Epochs ---------------------------------------------------------------------------------------------------


def test_an_epoch_that_its_own_process_is_given_again_is_no_violation(told: TransactionHistory) -> None:
    assert given(told) is given(told)
    assert found(told) == []


def test_an_epoch_of_two_processes_is_found(told: TransactionHistory) -> None:
    given(told)
    given(told, process="p1")
    assert found(told) == ["p0 and p1 were both given epoch 0 of producer 7 of tx"]


def test_another_producer_id_is_found(told: TransactionHistory) -> None:
    given(told)
    told.given("tx", Epoch("p1", 8, 0))
    assert found(told) == ["tx was given producer id 8 after 7"]


def test_an_epoch_that_comes_late_is_fenced_from_the_start(told: TransactionHistory) -> None:
    given(told, 5)
    assert given(told, 4, "p1").fenced_s is not None
    assert given(told, 5).fenced_s is None


def test_an_acknowledged_commit_of_a_fenced_producer_is_found(told: TransactionHistory) -> None:
    each = written(told, b"a")
    given(told, 1, "p1")
    told.committed(each, each.epoch.fenced_s or 0.0)
    assert found(told) == []  # Asked for at the same moment.
    told.committed(each, 2.5)
    assert found(told) == [
        "the commit of transaction 1 of tx was acknowledged, although epoch 0 of producer 7 was fenced "
        "2.500 s before it was asked for"
    ]


# Offsets --------------------------------------------------------------------------------------------------


def test_an_offset_that_falls_or_was_never_asked_for_is_found(told: TransactionHistory) -> None:
    first, second = asked(written(told), Fate.COMMITTED), written(told)
    first.offset, second.offset = 4, 5
    assert told.least_offset("tx") == 4
    told.saw_offset("r0", "tx", 4, 4)
    assert found(told) == []
    told.saw_offset("r0", "tx", 3, 4)
    told.saw_offset("r0", "tx", 5, 4)
    assert found(told) == [
        "r0 was told that the group of tx is at 3, after 4",
        "r0 was told the offset 5 of transaction 2 of tx, but nobody has asked to commit it",
    ]


@pytest.mark.parametrize(("at", "is_right"), [(4, True), (0, False), (5, False)])
def test_the_offset_in_the_end_is_that_of_the_last_committed_transaction(
    told: TransactionHistory, at: int, is_right: bool
) -> None:
    first, second = asked(written(told, b"a")), asked(written(told, b"b"), Fate.ABORTED)
    first.offset, second.offset = 4, 5
    told.final_offsets["tx"] = at
    saw(told, 0, b"a")
    saw(told, 2, b"b", visible=False)
    violations = list(told.check({PLACE: [log(b"a", True, b"b", False)]}))
    assert (violations == []) is is_right
    if not is_right:
        assert violations == [
            f"the group of tx is at {at} in the end; its last committed transaction with an offset has 4"
        ]


# Logs -----------------------------------------------------------------------------------------------------


def test_a_transaction_that_stays_open_is_found(told: TransactionHistory) -> None:
    written(told, b"a")
    assert list(told.check({PLACE: [log(b"a")]})) == [
        "ledger-0: transaction 1 of tx of producer 7 is still open, from 0 on"
    ]


def test_a_record_that_readers_never_got_is_found(told: TransactionHistory) -> None:
    asked(written(told, b"a"), Fate.COMMITTED)
    assert list(told.check({PLACE: [log(b"a", True)]})) == [
        "ledger-0: readers of committed records never got 0, which is committed"
    ]


def test_a_record_that_readers_took_for_the_opposite_is_found(told: TransactionHistory) -> None:
    asked(written(told, b"a"))
    saw(told, 0, b"a")
    assert list(told.check({PLACE: [log(b"a", False)]})) == [
        "ledger-0: readers of committed records took 0, which is aborted, for the opposite"
    ]


def test_a_plain_record_between_is_visible(told: TransactionHistory) -> None:
    asked(written(told, b"a"), Fate.COMMITTED)
    plain = bytearray(batch(b"plain"))
    assign(plain, 0, 2, 0)
    stored = log(b"a", True)
    stored = StoredLog("b1", (*stored.batches, StoredBatch(read_header(plain), bytes(plain))))
    saw(told, 0, b"a")
    assert list(told.check({PLACE: [stored]})) == [
        "ledger-0: readers of committed records never got 2, which is committed"
    ]
    saw(told, 2, b"plain")
    assert list(told.check({PLACE: [stored]})) == []


def test_an_acknowledged_commit_that_the_log_lacks_is_found(told: TransactionHistory) -> None:
    asked(written(told, b"a 1", b"b 1"), Fate.COMMITTED)
    saw(told, 0, b"a 1")
    assert list(told.check({PLACE: [log(b"a 1", True)]})) == [
        "transaction 1 of tx: its commit was acknowledged, but b is not visible"
    ]


def test_a_transaction_that_is_whole_in_one_place_only_is_found(told: TransactionHistory) -> None:
    asked(written(told, b"a 1", b"b 1", places=(PLACE, OTHER)))
    saw(told, 0, b"a 1")
    told.saw("r0", OTHER, 0, [b"b 1"], is_visible=False)
    assert list(told.check({PLACE: [log(b"a 1", True)], OTHER: [log(b"b 1", False)]})) == [
        "transaction 1 of tx is committed in one place and aborted in another",
        "transaction 1 of tx: a part of it is committed, but b is not visible",
    ]


def test_a_commit_in_the_log_that_nobody_asked_for_is_found(told: TransactionHistory) -> None:
    each = asked(written(told, b"a"))
    saw(told, 0, b"a")
    each.asked_s = None
    assert list(told.check({PLACE: [log(b"a", True)]})) == [
        "transaction 1 of tx is committed in the log, but nobody has asked to commit it"
    ]


def test_what_was_given_up_may_be_in_the_log_or_not(told: TransactionHistory) -> None:
    asked(written(told, b"a"))
    assert list(told.check({PLACE: [log()]})) == []
    saw(told, 0, b"a", visible=False)
    assert list(told.check({PLACE: [log(b"a", False)]})) == []


# Epochs that end with transactions ------------------------------------------------------------------------


def test_a_producer_that_goes_on_with_the_epoch_that_has_ended_is_found(told: TransactionHistory) -> None:
    before = given(told, 3)
    told.went_on("tx", before, Epoch("p0", PRODUCER, 4))
    assert found(told) == []
    assert before.fenced_s is not None
    told.went_on("tx", before, Epoch("p0", PRODUCER, 3))
    assert found(told) == ["p0 goes on with epoch 3 of producer 7 after epoch 3 of producer 7 has ended"]


def test_a_batch_of_an_epoch_that_had_ended_is_found(told: TransactionHistory) -> None:
    asked(written(told, b"a 1"), Fate.COMMITTED)
    told.straggles(Batch("p0", PLACE.at, 1, [b"late 1"], -1, is_idempotent=True, made_s=0.0))
    saw(told, 0, b"a 1")
    assert list(told.check({PLACE: [log(b"a 1", True)]})) == []
    assert list(told.check({PLACE: [log(b"a 1", True, b"late 1", True)]})) == [
        "ledger-0: b'late 1' is at 2, but its epoch had ended when it was sent"
    ]


# Owners ---------------------------------------------------------------------------------------------------


def grant(incarnation: int, told_s: float = 0.0) -> Told:
    return Told(f"o{incarnation}", PLACE, incarnation, incarnation, 0, -1, told_s, told_s)


def owned(told: TransactionHistory, grants: list[Told], ends_s: dict[int, float]) -> TransactionTold:
    """A transaction for the first of these grants, asked to be committed after a second."""
    each = asked(written(told, b"a 1"))
    each.tenure = Tenure(grants[0], b"", grants, ends_s)
    return each


def test_an_owner_that_keeps_its_grant_may_commit(told: TransactionHistory) -> None:
    each = owned(told, [grant(5), grant(4, 0.5), grant(6, 1.5)], {4: 0.5, 5: 1.5})
    saw(told, 0, b"a 1")
    told.committed(each, 1.0)
    assert found(told) == []
    assert list(told.check({PLACE: [log(b"a 1", True)]})) == []


@pytest.mark.parametrize(
    ("grants", "ends_s"), [([grant(5), grant(6, 0.5)], {}), ([grant(5)], {5: 0.5})], ids=["taken", "released"]
)
def test_a_commit_of_an_owner_that_had_lost_its_grant_is_found(
    told: TransactionHistory, grants: list[Told], ends_s: dict[int, float]
) -> None:
    each = owned(told, grants, ends_s)
    had_ended = f"{grants[0]} had ended before it"
    saw(told, 0, b"a 1")
    told.committed(each, 1.0)
    assert found(told) == [
        f"r0 got a record of transaction 1 of tx at 0 of ledger-0, but {had_ended} asked to commit",
        f"the commit of transaction 1 of tx was acknowledged, although {had_ended} was asked for",
    ]
    assert list(told.check({PLACE: [log(b"a 1", True)]})) == [
        f"transaction 1 of tx is committed in the log, but {had_ended} asked to commit"
    ]


def test_a_grant_of_another_partition_ends_none(told: TransactionHistory) -> None:
    other = Told("o6", OTHER, 6, 6, 0, -1, 0.5, 0.5)
    assert owned(told, [grant(5), other], {}).why_invisible is None
