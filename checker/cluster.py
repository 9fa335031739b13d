"""The cluster that a check starts for itself: ZooKeeper and three brokers, to which faults can be made.

Each broker is behind relays, which can cut it off, and runs on a machine whose clock can be set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.broker.tools.machine import HookedMachine
from holdfast_log.broker.tools.relays import Relays
from holdfast_log.protocol.topic_partition import TopicPartition

BROKERS = 3
COORDINATION = TopicPartition("__consumer_offsets", 0)
"""The partition whose leader coordinates all groups, and so decides about all names."""
TRANSACTIONS = TopicPartition("__transaction_state", 0)
"""The partition whose leader coordinates all transactions."""
_WHOLE_TIMEOUT_S = 300.0
_PROPERTIES: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "controlled.shutdown.retry.backoff.ms": "200",
}


class CheckedCluster:
    """A cluster that runs. `machines` are the machines of its brokers."""

    def __init__(
        self, cluster: LocalCluster, relays: Relays, machines: list[HookedMachine], view: ClusterView
    ) -> None:
        self.bootstrap = cluster.bootstrap
        self.brokers = cluster.brokers
        self.relays = relays
        self.machines = machines
        self._cluster = cluster
        self._view = view

    def leader(self, place: TopicPartition) -> int:
        """The id of the broker that leads a partition. Waits until one does; raises TimeoutError after
        five minutes."""
        return self._view.leader(*place, timeout_s=_WHOLE_TIMEOUT_S)

    def wait_until_whole(self, places: list[TopicPartition]) -> None:
        """Wait until every broker serves and every replica of these partitions is in sync. Raises
        BrokerProcessError if a broker has ended, and TimeoutError after five minutes."""
        self._cluster.wait_ready(_WHOLE_TIMEOUT_S)
        for place in places:
            self._view.wait_for_in_sync(*place, range(1, BROKERS + 1), _WHOLE_TIMEOUT_S)


@contextmanager
def checked_cluster(
    directory: Path, python_arguments: Sequence[str] = (), properties: Mapping[str, str] | None = None
) -> Iterator[CheckedCluster]:
    """Start the processes, with their data below `directory`, and stop them at the exit.

    `python_arguments` go before `-m holdfast_log.broker`, for a program that runs the broker in another way.
    `properties` are added to the settings of the brokers.
    Use the cluster in one thread only: its processes end with the thread that has started them. Raises
    BrokerProcessError or ZooKeeperServerError if a process does not start.
    """
    machines = [HookedMachine(directory / f"machine-{number}") for number in range(1, BROKERS + 1)]
    for machine in machines:
        machine.python_arguments = (*machine.python_arguments, *python_arguments)
    with closing(Relays()) as relays:
        cluster = LocalCluster(
            directory,
            brokers=BROKERS,
            properties={**_PROPERTIES, **(properties or {})},
            place=relays.place,
            machines=machines,
        )
        with cluster, ExitStack() as stack:
            stack.callback(cluster.kill_brokers)
            view = stack.enter_context(ClusterView(cluster.zookeeper_connect))
            yield CheckedCluster(cluster, relays, machines, view)
