"""The ZooKeeper outage: brokers must refuse acks=all writes, and clients can still read stored records."""

from __future__ import annotations

import time

from tests.faults.scene import Scene

_NOTICED = "ZooKeeper connection lost"
_NOTICE_TIMEOUT_S = 60.0
_GRACE_S = 2.0
"""Seconds after all brokers noticed the outage in which an acknowledgement may still arrive at a client."""


def lose_zookeeper(scene: Scene, fault_s: float) -> None:
    """Kill the ZooKeeper server, check the cluster without it, and start it again after `fault_s`."""
    (server,) = scene.zookeepers
    noticed = [broker.log.count(_NOTICED) for broker in scene.brokers]
    server.kill()
    began = time.monotonic()
    for broker, before in zip(scene.brokers, noticed, strict=True):
        while broker.log.count(_NOTICED) == before:
            assert time.monotonic() < began + _NOTICE_TIMEOUT_S, f"broker {broker.broker_id} logged no outage"
            time.sleep(0.02)
    all_know = time.monotonic()
    acknowledged = sum(load.acknowledged_count for load in scene.loads)
    stored = scene.read_all()
    assert sum(map(len, stored.values())) >= acknowledged, (
        "some acknowledged records could not be read without ZooKeeper"
    )
    time.sleep(max(0.0, began + fault_s - time.monotonic()))
    late = [
        f"{load.client} {number} of {partition} after {one.at - all_know:.2f} s"
        for load in scene.loads
        for partition, account in enumerate(load.partitions)
        for number, one in list(account.acknowledged.items())
        if one.at > all_know + _GRACE_S
    ]
    assert not late, (
        f"brokers acknowledged {len(late)} records while they could not know whether they led: {late[:5]}"
    )
    server.start()
    server.wait_ready()
