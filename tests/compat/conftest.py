"""One broker with default settings for all stock clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.tools.broker_process import BackgroundBroker


@pytest.fixture(scope="module")
def broker(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundBroker]:
    """A running broker whose new topics have three partitions, because kcat cannot request a number."""
    broker = BackgroundBroker(
        tmp_path_factory.mktemp("broker"),
        broker_id=1,
        zookeeper_connect=f"{zookeeper_server}/compat",
        # Groups assign at once instead of waiting 3 s for more members, as is Kafka's default.
        properties={"num.partitions": "3", "group.initial.rebalance.delay.ms": "0"},
    )
    broker.start()
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.stop()
