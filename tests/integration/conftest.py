"""A broker with default settings, shared by the tests of a module."""

from __future__ import annotations

import pytest

from tests.cluster import BackgroundBroker, Cluster


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker shared by the tests of a module; each test uses its own topics and names."""
    return cluster_of_module.start()[0]


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    name: str = request.node.name
    return name
