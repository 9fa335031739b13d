"""Measures what clients notice of an outage of ZooKeeper and of a rolling restart, beside Apache Kafka:
python -m benchmarks.availability --help.

A steady load of librdkafka writes with acks=all to a topic of three replicas. Meanwhile ZooKeeper is stopped
for a time, and later all brokers are stopped and started again, one after the other, as docs/operating.md
says. An observer asks for the end of each partition all the time. Ends with one line of JSON.
"""

from __future__ import annotations

import logging
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.apache_kafka import KafkaBroker, NoKafkaError, class_path
from benchmarks.results import print_json, print_table
from benchmarks.steady_load import SteadyLoad, create_once_possible
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster

BROKERS = 3
PARTITIONS = 6
RECORDS_PER_SECOND = 300.0
TOPIC = "available"
CLIENT = "librdkafka"
CONFIG = {"reconnect.backoff.max.ms": 200}
_WARM_UP_S = 5.0
_SETTLE_S = 5.0
_ASK_S = 0.1
_ASK_TIMEOUT_S = 1.0
SYSTEMS: dict[str, type[BackgroundBroker]] = {"holdfast": BackgroundBroker, "kafka": KafkaBroker}


@dataclass(frozen=True, slots=True)
class Noticed:
    """What clients noticed. Times in s: the longest from sending a record to its acknowledgement, the longest
    between two acknowledgements of one partition, and the longest in which what could once be read of a
    partition could not."""

    system: str
    case: str
    lasted_s: float
    acknowledged: int
    failed: int
    longest_acknowledgement_s: float
    longest_pause_s: float
    longest_unreadable_s: float


class Observer:
    """Asks for the end of each partition, again and again, as a consumer that starts would.

    A partition cannot be read while the answer is an error, does not come, or is an end before the latest one
    that was ever answered.
    """

    def __init__(self, bootstrap: str) -> None:
        self.longest_s = 0.0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "broker.address.family": "v4",
                "group.id": "observer",
                "log_level": 0,
                **CONFIG,
            }
        )
        self._ends = [0] * PARTITIONS
        self._read_s = [time.monotonic()] * PARTITIONS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """Forget what was observed before."""
        self.longest_s = 0.0

    def end(self) -> float:
        """The longest time in s for which a partition could not be read, since `begin`."""
        now_s = time.monotonic()
        return max(self.longest_s, *(now_s - read_s for read_s in self._read_s))

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopping.wait(_ASK_S):
            for partition in range(PARTITIONS):
                end = self._end_of(partition)
                if end >= self._ends[partition]:
                    now_s = time.monotonic()
                    self.longest_s = max(self.longest_s, now_s - self._read_s[partition])
                    self._ends[partition], self._read_s[partition] = end, now_s

    def _end_of(self, partition: int) -> int:
        try:
            found = self._consumer.get_watermark_offsets(
                TopicPartition(TOPIC, partition), timeout=_ASK_TIMEOUT_S, cached=False
            )
        except KafkaException:
            return -1
        return -1 if found is None else found[1]


class WatchedCluster:
    """Three brokers of one system with a load on them."""

    def __init__(
        self,
        system: str,
        cluster: LocalCluster,
        view: ClusterView,
        load: SteadyLoad,
        observer: Observer,
    ) -> None:
        self.system = system
        (self.zookeeper,) = cluster.zookeepers
        self.brokers = cluster.brokers
        self._view = view
        self._load = load
        self._observer = observer

    def notice(self, case: str, happen: Callable[[], None]) -> Noticed:
        """Have something happen, wait until all is as before, and say what clients noticed."""
        self._wait_until_whole()
        load, since = self._load, time.monotonic()
        before = load.acknowledged_count, len(load.failures)
        self._observer.begin()
        happen()
        lasted_s = time.monotonic() - since
        self._wait_until_whole()
        until = time.monotonic()
        accounts = load.partitions
        return Noticed(
            self.system,
            case,
            round(lasted_s, 1),
            load.acknowledged_count - before[0],
            len(load.failures) - before[1],
            round(max(account.longest_acknowledgement_s(since, until) for account in accounts), 2),
            round(max(account.longest_pause_s(since, until) for account in accounts), 2),
            round(self._observer.end(), 2),
        )

    def restart_all(self) -> None:
        """Restart the brokers in order: the next one once the last one is in sync again."""
        for broker in self.brokers:
            broker.stop()
            broker.start()
            broker.wait_ready(BROKERS)
            self._wait_until_in_sync()

    def _wait_until_in_sync(self) -> None:
        for partition in range(PARTITIONS):
            self._view.wait_for_in_sync(TOPIC, partition, range(1, BROKERS + 1))

    def _wait_until_whole(self) -> None:
        self._wait_until_in_sync()
        self._load.wait_for_more(int(RECORDS_PER_SECOND))
        time.sleep(_SETTLE_S)


@contextmanager
def set_scene(system: str, directory: Path, session_timeout_ms: int) -> Iterator[WatchedCluster]:
    """Start ZooKeeper, three brokers and the load; stop them at the exit."""
    with ExitStack() as stack:
        properties = {
            "zookeeper.session.timeout.ms": str(session_timeout_ms),
            "min.insync.replicas": "2",
        }
        cluster = stack.enter_context(
            LocalCluster(directory, brokers=BROKERS, properties=properties, broker_type=SYSTEMS[system])
        )
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap, "broker.address.family": "v4", "log_level": 0})
        create_once_possible(admin, NewTopic(TOPIC, PARTITIONS, BROKERS))
        view = stack.enter_context(ClusterView(cluster.zookeeper_connect))
        load = SteadyLoad(
            CLIENT,
            bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            records_per_second=RECORDS_PER_SECOND,
            config=CONFIG,
        )
        load.start()
        stack.callback(load.abandon)
        load.wait_for_more(int(RECORDS_PER_SECOND * _WARM_UP_S))
        observer = Observer(bootstrap)
        stack.callback(observer.close)
        yield WatchedCluster(system, cluster, view, load, observer)


@click.command()
@click.option(
    "--system",
    "systems",
    type=click.Choice(sorted(SYSTEMS)),
    multiple=True,
    help="Measure only this one; may be repeated. [both, if Maven or the local repository has Kafka's jars]",
)
@click.option(
    "--outage-s", type=click.FloatRange(1), default=30.0, show_default=True, help="Length of the outage."
)
@click.option(
    "--session-timeout-ms",
    type=click.IntRange(1000),
    default=6000,
    show_default=True,
    help="Session timeout of the brokers in ZooKeeper, in ms (zookeeper.session.timeout.ms).",
)
@click.option("--directory", type=click.Path(path_type=Path), help="Directory for the brokers' data.")
def main(systems: tuple[str, ...], outage_s: float, session_timeout_ms: int, directory: Path | None) -> None:
    """Measure what clients notice of an outage of ZooKeeper and of a rolling restart, on three brokers."""
    logging.disable(logging.WARNING)  # The view of the cluster loses ZooKeeper too, again and again.
    report: dict[str, Any] = {
        "benchmark": "availability",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "session_timeout_ms": session_timeout_ms,
    }
    notices: list[Noticed] = []
    own_directory = Path(tempfile.mkdtemp(prefix="holdfast-benchmark-", dir=directory))
    try:
        for system in systems or _available():
            with set_scene(system, own_directory / system, session_timeout_ms) as scene:
                notices += _measure(scene, outage_s)
    finally:
        shutil.rmtree(own_directory, ignore_errors=True)
    print_table(
        "acks=all, three replicas, min.insync.replicas=2; seconds",
        ["system", "case", "lasted", "acknowledged", "failed", "longest ack", "longest pause", "unreadable"],
        [[str(value) for value in asdict(notice).values()] for notice in notices],
    )
    report["notices"] = [asdict(notice) for notice in notices]
    print_json(report)


def _available() -> list[str]:
    try:
        class_path()
    except NoKafkaError as error:
        click.echo(f"without Apache Kafka: {error}", err=True)
        return ["holdfast"]
    return ["holdfast", "kafka"]


def _measure(scene: WatchedCluster, outage_s: float) -> list[Noticed]:
    def lose_zookeeper() -> None:
        scene.zookeeper.kill()
        time.sleep(outage_s)
        scene.zookeeper.start()
        scene.zookeeper.wait_ready()

    return [
        scene.notice("nothing", lambda: time.sleep(_SETTLE_S)),
        scene.notice("ZooKeeper away", lose_zookeeper),
        scene.notice("rolling restart", scene.restart_all),
    ]


if __name__ == "__main__":
    main()
