"""The cluster that a check starts for itself: ZooKeeper and three brokers, to which faults can be made.

Each broker is behind relays, which can cut it off, and runs on a machine whose clock can be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from broker.tools.broker_process import BackgroundBroker
from broker.tools.cluster_view import ClusterView
from broker.tools.machine import HookedMachine
from broker.tools.relays import Relays
from coordinator.tools.zookeeper_process import ZooKeeperProcess
from protocol.topic_partition import TopicPartition

BROKERS = 3
COORDINATION = TopicPartition("__consumer_offsets", 0)
"""The partition whose leader coordinates all groups, and so decides about all names."""
_WHOLE_TIMEOUT_S = 120.0
_PROPERTIES: Mapping[str, str] = {
    "zookeeper.session.timeout.ms": "3000",
    "zookeeper.connection.timeout.ms": "60000",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "5000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "controlled.shutdown.retry.backoff.ms": "200",
}


class CheckedCluster:
    """A context manager that starts the processes, with their data below `directory`, and stops them at its
    exit.

    Use it in one thread only: a broker ends with the thread that has started it. Raises BrokerProcessError
    or ZooKeeperServerError if a process does not start.
    """

    def __init__(self, directory: Path) -> None:
        self.relays = Relays()
        self.brokers: list[BackgroundBroker] = []
        self.machines: list[HookedMachine] = []
        self.bootstrap = ""
        self._directory = directory
        self._view: ClusterView
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._stack.close)
            self._start()
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        zookeeper = ZooKeeperProcess(self._directory / "zookeeper")
        self._stack.callback(zookeeper.stop)
        zookeeper.start()
        zookeeper.wait_ready()
        self._stack.callback(self.relays.close)
        addresses = []
        for number in range(1, BROKERS + 1):
            place = self.relays.place(number, zookeeper.connect)
            machine = HookedMachine(self._directory / f"machine-{number}")
            broker = BackgroundBroker(
                self._directory / f"broker-{number}",
                broker_id=number,
                zookeeper_connect=place.zookeeper_connect,
                host=place.host,
                port=place.port,
                python_arguments=machine.python_arguments,
                properties={**_PROPERTIES, **place.properties, "log.dirs": str(machine.log_dir)},
            )
            addresses.append(place.address)
            self.machines.append(machine)
            self.brokers.append(broker)
            self._stack.callback(broker.kill)
            broker.start()
        for broker in self.brokers:
            broker.wait_ready(BROKERS)
        self._view = self._stack.enter_context(ClusterView(zookeeper.connect))
        self.bootstrap = ",".join(addresses)

    def leader(self, place: TopicPartition) -> int:
        """The id of the broker that leads a partition. Waits until one does; raises TimeoutError after a
        minute."""
        return self._view.leader(*place)

    def wait_until_whole(self, places: list[TopicPartition]) -> None:
        """Wait until every broker serves and every replica of these partitions is in sync. Raises
        BrokerProcessError if a broker has ended, and TimeoutError after two minutes."""
        for broker in self.brokers:
            broker.wait_ready(BROKERS, _WHOLE_TIMEOUT_S)
        for place in places:
            self._view.wait_for_in_sync(*place, range(1, BROKERS + 1), _WHOLE_TIMEOUT_S)
