"""Measures what producers notice when a leader is killed, or stopped in order."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from benchmarks.steady_load import CLIENTS, SteadyLoad, steady_loads
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.broker.tools.local_cluster import LocalCluster

BROKERS = 3
PARTITIONS = 6
RECORDS_PER_SECOND = 600.0
"""Rate of each client: a record per partition every 10 ms, the resolution of measured pauses."""
CONFIG = {"reconnect.backoff.max.ms": 200}
"""By default librdkafka waits up to 10 s before it reconnects. Its other settings are the defaults."""
_SETTLE_S = 2.0


@dataclass(frozen=True, slots=True)
class Outage:
    """The outage that one client observed. Times are in s since the broker was killed, or asked to stop.

    `gone_s`, `elected_s`: when the broker's session ended, and when the last of its partitions had another
    leader. `first_write_s`, `all_write_s`: when the first, and the last, of those partitions acknowledged a
    record sent since. `usual_s` and `longest_pause_s` are the longest pauses of any partition before and
    after that time.
    """

    client: str
    gone_s: float
    elected_s: float
    first_write_s: float
    all_write_s: float
    longest_pause_s: float
    usual_s: float
    failed: int


class Scene:
    """A cluster that runs, and for each client a topic of three replicas and a steady load on it."""

    def __init__(self, cluster: LocalCluster, view: ClusterView, loads: Sequence[SteadyLoad]) -> None:
        self.cluster = cluster
        self.view = view
        self.loads = loads

    def leader(self) -> BackgroundBroker:
        """The broker that leads the first partition of the first topic."""
        return self.cluster.brokers[self.view.leader(self.loads[0].topic, 0) - 1]

    def led_by(self, broker: BackgroundBroker, topic: str) -> list[int]:
        return [p for p in range(PARTITIONS) if self.view.leader(topic, p) == broker.broker_id]

    def start_again(self, broker: BackgroundBroker) -> None:
        """Start the broker again. Returns once it is in sync and the load runs as usual."""
        broker.start()
        broker.wait_ready(BROKERS)
        for load in self.loads:
            for partition in range(PARTITIONS):
                self.view.wait_for_in_sync(load.topic, partition, range(1, BROKERS + 1))
        time.sleep(_SETTLE_S)


@contextmanager
def set_scene(directory: Path, session_timeout_ms: int) -> Iterator[Scene]:
    """Start three brokers and the loads, and stop them at the exit."""
    cluster = LocalCluster(
        directory,
        brokers=BROKERS,
        properties={"zookeeper.session.timeout.ms": str(session_timeout_ms), "min.insync.replicas": "2"},
    )
    with (
        cluster,
        ClusterView(cluster.zookeeper_connect) as view,
        steady_loads(
            cluster.bootstrap,
            lambda client: NewTopic(client, PARTITIONS, BROKERS),
            records_per_second=RECORDS_PER_SECOND,
            configs=dict.fromkeys(CLIENTS, CONFIG),
        ) as loads,
    ):
        for load in loads:
            load.wait_for_more(int(RECORDS_PER_SECOND))
        yield Scene(cluster, view, loads)
        for load in loads:
            load.stop()


@dataclass(frozen=True, slots=True)
class _StateBefore:
    """State just before a broker is killed or stopped: by topic, its partitions and the failed records."""

    broker: BackgroundBroker
    led: Mapping[str, Sequence[int]]
    failed: Mapping[str, int]
    since: float


def kill_a_leader(scene: Scene) -> list[Outage]:
    """Kill a leader with SIGKILL, wait for writes to every partition, restart it. Returns each client's
    outage."""
    before = _begin(scene)
    killed = before.broker
    killed.kill()
    gone = scene.view.wait_until_gone(killed.broker_id)
    for topic, partitions in before.led.items():
        for partition in partitions:
            scene.view.leader(topic, partition, other_than=killed.broker_id)
    return _end(scene, before, gone, time.monotonic())


def stop_a_leader(scene: Scene) -> list[Outage]:
    """Stop a leader with SIGTERM, wait for its end, restart it. Returns each client's outage."""
    before = _begin(scene)
    before.broker.stop()
    gone = time.monotonic()
    time.sleep(_SETTLE_S)
    return _end(scene, before, gone, gone)


def _begin(scene: Scene) -> _StateBefore:
    broker = scene.leader()
    return _StateBefore(
        broker,
        {load.topic: scene.led_by(broker, load.topic) for load in scene.loads},
        {load.topic: len(load.failures) for load in scene.loads},
        time.monotonic(),
    )


def _end(scene: Scene, before: _StateBefore, gone: float, elected: float) -> list[Outage]:
    concerned = [load for load in scene.loads if before.led[load.topic]]
    outages = [_outage(load, before, gone, elected) for load in concerned]
    scene.start_again(before.broker)
    return outages


def _outage(load: SteadyLoad, before: _StateBefore, gone: float, elected: float) -> Outage:
    since = before.since
    writes = [_first_write(load, partition, since) - since for partition in before.led[load.topic]]
    pauses = [account.longest_pause_s(since) for account in load.partitions]
    usual = [account.longest_pause_s(since - _SETTLE_S, since) for account in load.partitions]
    return Outage(
        client=load.client,
        gone_s=gone - since,
        elected_s=elected - since,
        first_write_s=min(writes),
        all_write_s=max(writes),
        longest_pause_s=max(pauses),
        usual_s=max(usual),
        failed=len(load.failures) - before.failed[load.topic],
    )


def _first_write(load: SteadyLoad, partition: int, since: float) -> float:
    while True:
        found = load.partitions[partition].first_acknowledged_of_those_sent_since(since)
        if found is not None:
            return found
        load.wait_for_more(1)
