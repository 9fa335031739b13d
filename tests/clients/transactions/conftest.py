"""The fake cluster of the tests about transactions."""

from __future__ import annotations

import pytest

from holdfast_log.testing import FakeCluster


@pytest.fixture(params=[1, 2], ids=["transaction.version 1", "transaction.version 2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    """The way in which transactions work: both are served, and each test tries both."""
    version: int = request.param
    return version


@pytest.fixture
def cluster(transaction_version: int) -> FakeCluster:
    return two_accounts(transaction_version)


def two_accounts(transaction_version: int) -> FakeCluster:
    """Two brokers with a topic of two partitions."""
    cluster = FakeCluster(brokers=2, transaction_version=transaction_version)
    cluster.create_topic("accounts", partitions=2)
    return cluster
