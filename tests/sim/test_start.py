"""A broker whose ZooKeeper session expires at any moment of its start."""

from __future__ import annotations

import pytest

from holdfast_log.coordinator.znodes.brokers import BROKER_IDS
from tests.models.world import World
from tests.sim.cluster import Cluster, Machine, logs_in_trace

MOMENTS_MS = range(0, 200, 6)
"""Times at which the session expires. ZooKeeper answers two or three requests between two of them; the broker
has registered before the last."""


@pytest.mark.parametrize("others", [0, 1], ids=["first-of-its-cluster", "with-another"])
def test_a_broker_whose_session_expires_during_its_start_continues_with_a_new_session(others: int) -> None:
    before_registration = [starts_although_its_session_expires(others, moment) for moment in MOMENTS_MS]
    assert before_registration.count(True) > 2
    assert before_registration.count(False) > 0


def starts_although_its_session_expires(others: int, moment_ms: int) -> bool:
    """Assert that the broker comes up. Returns whether its session expired before it had registered."""
    world = World(moment_ms)
    with logs_in_trace(world):
        cluster = Cluster(world, others + 1)
        for other in cluster.machines[:others]:
            other.start()
        world.run(5 * others)
        machine = cluster.machine(others + 1)
        machine.start()
        client = machine.client
        assert client is not None
        assert world.run_until(lambda: client.session.session_id != 0, 5)
        world.run(moment_ms / 1000)
        is_registered = str(machine.broker_id) in cluster.zookeeper.names_below(BROKER_IDS)
        session = client.session
        cluster.zookeeper.end_session(session.session_id, "expired")
        session.disconnect()
        client.mend()
        assert world.run_until(lambda: is_served(machine), 30), "\n".join(world.trace.lines)
        assert machine.life == 1, "the broker process was restarted"
    assert world.problems == []
    return not is_registered


def is_served(machine: Machine) -> bool:
    node = None if machine.broker is None else machine.broker.node
    if node is None:
        return False
    cluster = node.cluster
    return cluster.membership.is_connected and cluster.metadata.is_live(cluster.identity.broker_id)
