"""The judges of expected versions find histories that are wrong, and accept the others."""

from __future__ import annotations

import pytest

from holdfast_log.protocol.batches import assign, read_header
from tests.models.batches import encoded
from tests.models.world import World
from tests.sim.checkers import StoredBatch, StoredLog
from tests.sim.history import History, Incarnation
from tests.sim.keyed_history import NONE, KeyedHistory, KeyedWrite

PLACE = Incarnation(("keyed", 0))


@pytest.fixture
def told() -> KeyedHistory:
    return KeyedHistory(History(World(1)))


def sent(told: KeyedHistory, value: str, expected: int | None) -> KeyedWrite:
    write = KeyedWrite("w", PLACE, b"k", value.encode(), expected)
    told.sent(write)
    return write


def log_of(*values: str) -> StoredLog:
    """A log with these values, all of one key."""
    stored = []
    for offset, value in enumerate(values):
        data = encoded([(1, b"k", value.encode())])
        assign(data, 0, offset, 0)
        stored.append(StoredBatch(read_header(data), bytes(data)))
    return StoredLog("b1", tuple(stored))


def found(told: KeyedHistory, *values: str) -> list[str]:
    online = [violation.split(": ", 1)[1] for violation in told.history.violations]
    return online + list(told.check(PLACE, log_of(*values)))


def test_a_chain_of_versions_is_accepted(told: KeyedHistory) -> None:
    told.written(sent(told, "a", NONE), 0)
    told.refused(sent(told, "late", NONE), 0)
    told.written(sent(told, "b", 0), 1)
    told.written(sent(told, "blind", None), 2)
    sent(told, "unknown", 2)

    assert found(told, "a", "b", "blind", "unknown") == []


def test_a_write_behind_another_version_than_it_expected_is_found(told: KeyedHistory) -> None:
    told.written(sent(told, "a", NONE), 0)
    told.written(sent(told, "b", NONE), 1)

    assert found(told, "a", "b") == [
        "'b', which expected version -1 of 'k', is in keyed-0 at 1, behind version 0"
    ]


def test_a_write_without_an_answer_is_judged_as_well(told: KeyedHistory) -> None:
    told.written(sent(told, "a", NONE), 0)
    sent(told, "b", NONE)

    assert len(found(told, "a", "b")) == 1


def test_a_refused_write_that_is_in_the_log_is_found(told: KeyedHistory) -> None:
    told.written(sent(told, "a", NONE), 0)
    told.refused(sent(told, "b", 3), 0)

    assert "'b', which expected version 3 of 'k', was refused, but is in keyed-0 at 1" in found(
        told, "a", "b"
    )


def test_a_refusal_that_names_no_record_of_the_log_is_found(told: KeyedHistory) -> None:
    told.refused(sent(told, "b", NONE), 7)

    assert found(told, "a") == [
        "'b', which expected version -1 of 'k', was refused with version 7, which is no record of the key in "
        "keyed-0"
    ]


def test_a_refusal_of_the_present_version_is_found(told: KeyedHistory) -> None:
    told.refused(sent(told, "b", 0), 0)

    assert len(found(told, "a")) == 1


def test_an_answer_that_is_older_than_what_was_known_before_its_request_is_found(told: KeyedHistory) -> None:
    told.written(sent(told, "a", NONE), 0)
    told.written(sent(told, "b", 0), 1)
    told.refused(sent(told, "c", NONE), 0)

    assert found(told, "a", "b") == [
        "'c', which expected version -1 of 'k', was refused with version 0, after 1 had been reported"
    ]


def test_an_answer_may_be_older_than_one_that_arrived_while_its_request_was_under_way(
    told: KeyedHistory,
) -> None:
    told.written(sent(told, "a", NONE), 0)
    slow = sent(told, "c", NONE)
    told.written(sent(told, "b", 0), 1)
    told.refused(slow, 0)

    assert found(told, "a", "b") == []
