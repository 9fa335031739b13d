"""Partitions of three replicas on three real brokers: what is acknowledged by all survives any one of them."""

from __future__ import annotations

import pytest

from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic, produce

PROPERTIES = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "3000",
    "min.insync.replicas": "2",
    "controlled.shutdown.retry.backoff.ms": "200",
}


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"value-%d" % number for number in range(start, start + count)]


def test_records_reach_every_replica(cluster: Cluster) -> None:
    cluster.start(3, PROPERTIES)
    create_topic(cluster.bootstrap, "events", partitions=3, replicas=3)
    for partition in range(3):
        offsets = produce(cluster.bootstrap, "events", values(1000), partition=partition, acks="all")
        assert offsets == list(range(1000))
        assert consume(cluster.bootstrap, "events", 1000, partition=partition) == values(1000)
