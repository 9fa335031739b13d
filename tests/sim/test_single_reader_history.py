"""The judge of single readers reports answers and records that a replaced reader got."""

from __future__ import annotations

import pytest

from holdfast_log.protocol.messages.ownership import Access
from tests.models.world import World
from tests.sim.history import Batch, History, Incarnation
from tests.sim.owner_history import OwnerHistory, Told
from tests.sim.single_reader_history import SingleReaderHistory

AT = ("owned", 0)


def reads(owner: str, incarnation: int, told_s: float, group: str = "readers") -> Told:
    return Told(
        owner, Incarnation(AT), incarnation, incarnation, 0, -1, told_s - 0.1, told_s, group, Access.READ
    )


FIRST, NEXT = reads("r0", 1, told_s=1.0), reads("r1", 2, told_s=5.0)


@pytest.fixture
def read() -> SingleReaderHistory:
    told = OwnerHistory(History(World(1)))
    told.grants += [FIRST, NEXT, reads("other", 3, told_s=1.0, group="others")]
    for value, made_s in ((b"early", 4.0), (b"late", 6.0)):
        told.history.batches.append(Batch("p0", AT, 0, [value], -1, is_idempotent=True, made_s=made_s))
    return SingleReaderHistory(told)


def test_a_replaced_reader_may_get_answers_that_it_requested_before(read: SingleReaderHistory) -> None:
    read.answered(FIRST, 4.9)
    read.got(FIRST, 0, [b"early"])
    read.answered(NEXT, 7.0)
    read.got(NEXT, 0, [b"early", b"late"])
    assert read.told.history.violations == []


def test_an_answer_to_a_request_after_the_next_reader_began_is_found(read: SingleReaderHistory) -> None:
    read.answered(FIRST, 5.1)
    assert len(read.told.history.violations) == 1


def test_a_waiting_fetch_answered_with_newer_records_is_found(read: SingleReaderHistory) -> None:
    read.got(FIRST, 0, [b"early", b"late"])
    assert len(read.told.history.violations) == 1
