"""The world of tests with a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.models.world import World
from tests.sim.cluster import logs_in_trace


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """A world of the seed that the test is parametrized with, or of its module's `WORLD_SEED`. At the end, no
    process may have reported a problem."""
    world = World(request.param if hasattr(request, "param") else request.module.WORLD_SEED)
    with logs_in_trace(world):
        yield world
    assert world.problems == []
