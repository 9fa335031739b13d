"""A cluster without ZooKeeper: nothing is acknowledged by all, and what is there can be read."""

from __future__ import annotations

import time

from tests.faults.scene import Scene

_NOTICED = "ZooKeeper connection lost"
_NOTICE_TIMEOUT_S = 60.0
_GRACE_S = 2.0
"""How much later than its broker's notice an acknowledgement may be counted here: it was on its way."""


def lose_zookeeper(scene: Scene, fault_s: float) -> None:
    """Kill ZooKeeper's server, see what the cluster does meanwhile, and start it again after `fault_s`."""
    (server,) = scene.zookeepers
    noticed = [broker.log.count(_NOTICED) for broker in scene.brokers]
    server.kill()
    began = time.monotonic()
    for broker, before in zip(scene.brokers, noticed, strict=True):
        while broker.log.count(_NOTICED) == before:
            assert time.monotonic() < began + _NOTICE_TIMEOUT_S, f"broker {broker.broker_id} has not noticed"
            time.sleep(0.02)
    all_know = time.monotonic()
    acknowledged = sum(load.acknowledged_count for load in scene.loads)
    stored = scene.read_all()
    assert sum(map(len, stored.values())) >= acknowledged, "not all could be read without ZooKeeper"
    time.sleep(max(0.0, began + fault_s - time.monotonic()))
    late = [
        f"{load.client} {number} of {partition} after {one.at - all_know:.2f} s"
        for load in scene.loads
        for partition, account in enumerate(load.partitions)
        for number, one in list(account.acknowledged.items())
        if one.at > all_know + _GRACE_S
    ]
    assert not late, (
        f"{len(late)} records were acknowledged while no broker could know whether it led: {late[:5]}"
    )
    server.start()
    server.wait_ready()
