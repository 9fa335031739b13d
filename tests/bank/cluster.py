"""The brokers of a bank, one of which coordinates the transactions of all tellers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster

STATE_TOPIC = "__transaction_state"
BROKERS = 3
_IN_SYNC_S = 240.0
_PROPERTIES = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
    "transaction.state.log.num.partitions": "1",
}


class BankCluster:
    """Three brokers that run."""

    def __init__(self, cluster: LocalCluster, view: ClusterView) -> None:
        self.bootstrap = cluster.bootstrap
        self._cluster = cluster
        self._view = view

    @property
    def brokers(self) -> Sequence[BackgroundBroker]:
        return self._cluster.brokers

    def kill_coordinator(self) -> int:
        """Kill -9 the coordinator, and start it again once another broker leads; its id."""
        leader = self._view.leader(STATE_TOPIC, 0)
        broker = self._cluster.brokers[leader - 1]
        broker.kill()
        self._view.leader(STATE_TOPIC, 0, other_than=leader, timeout_s=_IN_SYNC_S)
        broker.start()
        return leader

    def wait_until_in_sync(self) -> None:
        """Return once all replicas of the coordinator's partition are in sync, so that it can be killed."""
        self._cluster.wait_ready(_IN_SYNC_S)
        self._view.wait_for_in_sync(STATE_TOPIC, 0, range(1, BROKERS + 1), timeout_s=_IN_SYNC_S)


@contextmanager
def bank_cluster(directory: Path, python_arguments: Sequence[str] = ()) -> Iterator[BankCluster]:
    """Start the processes, with their data below `directory`, and stop them at the exit. `python_arguments`
    are those of `LocalCluster`."""
    cluster = LocalCluster(
        directory, brokers=BROKERS, properties=_PROPERTIES, python_arguments=python_arguments
    )
    with cluster, ClusterView(cluster.zookeeper_connect) as view:
        yield BankCluster(cluster, view)
