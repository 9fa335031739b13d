"""Our clients, each in a process of its own, at a broker on a real socket that lies in every answer."""

from __future__ import annotations

import pytest

from tests.hostile.client_walk import Outcome, outcome
from tests.hostile.lied_to import KINDS, Told
from tests.hostile.lying_broker import Lie, bomb, elsewhere, huge_length, throttled, truth

PATIENCE = 30
"""A client that is not lied to gives nothing up because a busy machine is slow."""
LATE_S_MAX = 120.0
"""On a busy machine a process may not run for long. A call that waits for ever is not ended by then."""


@pytest.mark.parametrize("client", KINDS)
def test_a_client_that_is_not_lied_to_gets_what_it_wants(client: str) -> None:
    found = outcome(truth, client, PATIENCE)
    assert found.over(LATE_S_MAX) == [] and found.told is not None, found
    assert not any("Error" in name for name in found.told.ended), found


@pytest.mark.parametrize("lie", [huge_length, throttled, elsewhere, bomb], ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_a_client_that_is_lied_to_ends_its_calls_and_does_not_grow(lie: Lie, client: str) -> None:
    found = outcome(lie, client)
    assert found.over(LATE_S_MAX) == [], found


def test_each_limit_that_a_client_exceeds_is_told() -> None:
    told = Told({"done": 1}, late_s=9.0, grown_bytes=1 << 30, worked_s=60.0, warnings=0)
    assert len(Outcome("a lie", "producer", 100_000, told).over(2.5)) == 4
    assert Outcome("a lie", "producer", 1, None, "why").over(2.5) == ["why"]
    assert "**why**" in Outcome("a lie", "producer", 1, None, "why").row()
