"""A broker that leads t-0, and the owner of that partition. Tests that need another world have their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.ownership.world import Owner, OwnershipWorld


@pytest.fixture
def world(tmp_path: Path) -> OwnershipWorld:
    world = OwnershipWorld(tmp_path)
    world.lead("t")
    return world


@pytest.fixture
def anna(world: OwnershipWorld) -> Owner:
    """The owner of t-0, which she writes."""
    anna = world.owner("anna")
    anna.claim("t")
    return anna
