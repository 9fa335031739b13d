"""One broker with default settings for all stock clients."""

from __future__ import annotations

import pytest

from tests.cluster import BackgroundBroker, Cluster


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    """A running broker whose new topics have three partitions, because kcat cannot request a number."""
    # Groups assign at once instead of waiting 3 s for more members, as is Kafka's default.
    properties = {"num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
    return cluster_of_module.start(1, {**properties, "offsets.topic.num.partitions": "50"})[0]
