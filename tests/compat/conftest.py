"""One broker for all stock clients, as they would find it anywhere: default settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.tools.broker_process import BackgroundBroker


@pytest.fixture(scope="module")
def broker(zookeeper_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundBroker]:
    """A running broker whose new topics have three partitions, which is what kcat can ask for."""
    broker = BackgroundBroker(
        tmp_path_factory.mktemp("broker"),
        broker_id=1,
        zookeeper_connect=f"{zookeeper_server}/compat",
        # Groups begin at once: how long they wait for more members is Kafka's default otherwise.
        properties={"num.partitions": "3", "group.initial.rebalance.delay.ms": "0"},
    )
    broker.start()
    try:
        broker.wait_ready()
        yield broker
    finally:
        broker.stop()
