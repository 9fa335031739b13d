"""Brokers that keep few names serve any number of them, and survive the loss of one broker."""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.client import KazooClient

from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.coordinator.znodes.layout import OWNED_NAMES
from tests.cluster import Cluster

NAMES = 1000
AT_ONCE = 20
KEPT = 50
GROUPS = 3
WAIT_MS = 120_000


def use(cluster: Cluster, number: int) -> dict[str, tuple[int, int]]:
    """Lease the names from `number` on, and release them; the generation and the token of each."""
    names: Sequence[str] = [f"name-{each}" for each in range(number, number + AT_ONCE)]
    group = f"group-{number // AT_ONCE % GROUPS}"
    lease = Lease({"bootstrap.servers": cluster.bootstrap}, group, names)
    try:
        lease.claim(WAIT_MS)
        return {name: (lease.generation(name), lease.token(name)) for name in names}
    finally:
        lease.close()


def recorded(cluster: Cluster) -> int:
    """How many names have a znode."""
    hosts, _, chroot = cluster.zookeeper_connect.partition("/")
    client = KazooClient(hosts)
    client.start(WAIT_MS / 1000)
    try:
        parent = f"/{chroot}{OWNED_NAMES}"
        return sum(len(client.get_children(f"{parent}/{group}")) for group in client.get_children(parent))
    finally:
        client.stop()
        client.close()


def test_1000_names_are_used_where_50_are_kept_and_tokens_rise(cluster: Cluster) -> None:
    cluster.start(
        3,
        {
            "own.names.max": str(KEPT),
            "own.names.retention.ms": "0",
            "offsets.topic.num.partitions": str(GROUPS),
            "offsets.topic.replication.factor": "3",
        },
    )
    first: dict[str, tuple[int, int]] = {}
    for number in range(0, NAMES, AT_ONCE):
        if number == NAMES // 2:
            cluster.lose(cluster.brokers[0])
        first.update(use(cluster, number))
    assert {generation for generation, _ in first.values()} == {1}
    assert recorded(cluster) <= len(cluster.brokers) * KEPT

    for number in (0, NAMES // 4 // AT_ONCE * AT_ONCE, NAMES // 2):
        for name, (generation, token) in use(cluster, number).items():
            assert generation == 1, "the name was forgotten"
            assert token > first[name][1]
