"""The brokers of a bank, one of which coordinates the transactions of all tellers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.bank.kills import STATE_TOPIC, Sight
from tests.forked_brokers import ForkedBroker

BROKERS = 3
IN_SYNC_MIN = 2
_IN_SYNC_S = 240.0
_PROPERTIES = {
    "min.insync.replicas": str(IN_SYNC_MIN),
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
}


class BankCluster:
    """Brokers that run. `state_partitions` is the number of partitions of the coordinators' topic."""

    def __init__(self, cluster: LocalCluster, view: ClusterView, state_partitions: int) -> None:
        self.bootstrap = cluster.bootstrap
        self._cluster = cluster
        self._view = view
        self._state_partitions = state_partitions

    @property
    def brokers(self) -> Sequence[BackgroundBroker]:
        return self._cluster.brokers

    def kill_coordinator(self) -> int:
        """Kill -9 the coordinator, and start it again once another broker leads; its id."""
        leader = self._view.leader(STATE_TOPIC, 0, timeout_s=_IN_SYNC_S)
        broker = self._cluster.brokers[leader - 1]
        broker.kill()
        self._view.leader(STATE_TOPIC, 0, other_than=leader, timeout_s=_IN_SYNC_S)
        broker.start()
        return leader

    def wait_until_in_sync(self) -> None:
        """Return once all replicas of the coordinator's partition are in sync, so that it can be killed."""
        self._cluster.wait_ready(_IN_SYNC_S)
        everyone = range(1, len(self.brokers) + 1)
        self._view.wait_for_in_sync(STATE_TOPIC, 0, everyone, timeout_s=_IN_SYNC_S)

    def restart_killed(self, broker_id: int) -> None:
        """Kill -9 a broker, and start it again at once."""
        broker = self._cluster.brokers[broker_id - 1]
        broker.kill()
        broker.start()

    def sight(self, topic: str, partitions: int) -> Sight:
        """What ZooKeeper says now of the brokers, the coordinators' topic, and this topic. Raises
        `BrokerProcessError` if a broker has ended by itself."""
        self._cluster.check()
        places = [TopicPartition(STATE_TOPIC, number) for number in range(self._state_partitions)]
        places += [TopicPartition(topic, number) for number in range(partitions)]
        brokers = [broker.broker_id for broker in self.brokers]
        return Sight(self._view.registrations(brokers), self._view.states(places))


@contextmanager
def bank_cluster(
    directory: Path,
    python_arguments: Sequence[str] = (),
    *,
    brokers: int = BROKERS,
    state_partitions: int = 1,
    properties: Mapping[str, str] | None = None,
) -> Iterator[BankCluster]:
    """Start the processes, with their data below `directory`, and stop them at the exit. `python_arguments`
    are those of `LocalCluster`, as are `properties`, which are added to a bank's own. All brokers have a
    replica of each partition of the coordinators' topic."""
    cluster = LocalCluster(
        directory,
        brokers=brokers,
        properties={
            **_PROPERTIES,
            "transaction.state.log.num.partitions": str(state_partitions),
            "transaction.state.log.replication.factor": str(brokers),
            **(properties or {}),
        },
        python_arguments=python_arguments,
        broker_type=ForkedBroker,
    )
    with cluster, ClusterView(cluster.zookeeper_connect) as view:
        yield BankCluster(cluster, view, state_partitions)
