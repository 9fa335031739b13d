"""The ZooKeeper outage: clients can write to replicated topics with acks=all, and read what is stored."""

from __future__ import annotations

import time

from benchmarks.steady_load import PartitionAccount
from tests.faults.scene import Scene

_NOTICED = "ZooKeeper connection lost"
_TIMEOUT_S = 240.0


def lose_zookeeper(scene: Scene, fault_s: float) -> None:
    """Kill the ZooKeeper server, check the cluster without it, and start it again after `fault_s`."""
    (server,) = scene.zookeepers
    # A broker whose session has ended on a busy machine could not register again without ZooKeeper.
    scene.wait_until_whole()
    noticed = [broker.log.count(_NOTICED) for broker in scene.brokers]
    server.kill()
    began = time.monotonic()
    for broker, before in zip(scene.brokers, noticed, strict=True):
        while broker.log.count(_NOTICED) == before:
            assert time.monotonic() < began + _TIMEOUT_S, f"broker {broker.broker_id} logged no outage"
            time.sleep(0.02)
    acknowledged = sum(load.acknowledged_count for load in scene.loads)
    stored = scene.read_all()
    assert sum(map(len, stored.values())) >= acknowledged, (
        "some acknowledged records could not be read without ZooKeeper"
    )
    time.sleep(max(0.0, began + fault_s - time.monotonic()))
    late = time.monotonic()
    for load in scene.loads:
        for partition, account in enumerate(load.partitions):
            assert _is_acknowledged(account, late), (
                f"{load.client}: partition {partition} acknowledged no record that was sent "
                f"{late - began:.1f} s after ZooKeeper had been killed"
            )
    server.start()
    server.wait_ready()


def _is_acknowledged(account: PartitionAccount, since: float) -> bool:
    """Whether a record that was sent since then is acknowledged, within four minutes."""
    while account.first_acknowledged_of_those_sent_since(since) is None:
        if time.monotonic() > since + _TIMEOUT_S:
            return False
        time.sleep(0.02)
    return True
