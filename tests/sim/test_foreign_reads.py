"""The judge of foreign reads reports what was read for a group within a grant to its single reader."""

from __future__ import annotations

import pytest

from holdfast_log.protocol.messages.ownership import Access
from tests.models.world import World
from tests.sim.foreign_reads import ForeignRead
from tests.sim.history import History, Incarnation
from tests.sim.owner_history import OwnerHistory, Told

AT = Incarnation(("owned", 0))


def grant(told_s: float, access: Access = Access.READ) -> Told:
    return Told("r0", AT, 1, 1, 0, -1, told_s - 0.1, told_s, "readers", access)


def read(sent_s: float, answered_s: float, group: str = "readers") -> ForeignRead:
    return ForeignRead("stray0", AT, group, sent_s, answered_s)


FIRST = grant(told_s=1.0)


@pytest.fixture
def told() -> OwnerHistory:
    told = OwnerHistory(History(World(1)))
    told.granted(FIRST)
    return told


def test_a_read_between_a_grant_and_its_resumption_is_found(told: OwnerHistory) -> None:
    told.foreign_reads.served(read(2.0, 2.1))
    told.resumed(FIRST, 2.2)
    (violation,) = told.history.violations
    assert violation.endswith(
        "generation 1 (1) of owned-0 for r0 was confirmed at 2.2000 s or later, although stray0 read owned-0 "
        "for 'readers' between 2.0000 s and 2.1000 s"
    )


def test_a_read_between_a_grant_and_its_renewal_is_found(told: OwnerHistory) -> None:
    told.foreign_reads.served(read(2.0, 2.1))
    told.stands(FIRST, 2.2)
    assert len(told.history.violations) == 1


def test_a_read_between_a_grant_and_its_repetition_is_found(told: OwnerHistory) -> None:
    told.foreign_reads.served(read(2.0, 2.1))
    told.granted(grant(told_s=2.5))
    assert len(told.history.violations) == 1


@pytest.mark.parametrize(
    "served",
    [
        pytest.param(read(0.9, 1.1), id="begun before the grant"),
        pytest.param(read(2.0, 2.3), id="perhaps served after the confirmation"),
        pytest.param(read(2.0, 2.1, group="others"), id="of another group"),
    ],
)
def test_other_reads_are_lawful(told: OwnerHistory, served: ForeignRead) -> None:
    told.foreign_reads.served(served)
    told.resumed(FIRST, 2.2)
    assert told.history.violations == []


def test_a_grant_to_write_alone_keeps_no_reader_away(told: OwnerHistory) -> None:
    writes = grant(told_s=1.0, access=Access.WRITE)
    told.foreign_reads.served(read(2.0, 2.1))
    told.resumed(writes, 2.2)
    assert told.history.violations == []
