"""The fake cluster of the tests about transactions."""

from __future__ import annotations

import pytest

from holdfast_log.testing import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(brokers=2)
    cluster.create_topic("accounts", partitions=2)
    return cluster
