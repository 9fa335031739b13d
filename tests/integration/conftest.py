"""One broker with default settings for all tests of a module that need no other."""

from __future__ import annotations

import pytest

from tests.cluster import BackgroundBroker, Cluster


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A broker that the tests of a module share, each with topics and names of its own."""
    return cluster_of_module.start()[0]
