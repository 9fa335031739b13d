"""A real Prometheus scrapes brokers under load, and answers the queries of dashboards and alerts.

Needs the programs of Debian's package `prometheus`, which scripts/test.sh installs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port
from tests.broker.metrics.test_monitoring_files import ALERTS, CONFIG, panels
from tests.cluster import Cluster
from tests.integration.clients import create_topic, produce
from tests.integration.monitored import MonitoredAddress
from tests.integration.waiting import until

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Prometheus (Debian: prometheus) is not installed"
)

_TIMEOUT_S = 60.0
JOB = "holdfast"

_TRAFFIC = 'rate(kafka_server_brokertopicmetrics_{}_total{{job="holdfast",topic!=""}}[1m])'
KAFKA_OVERVIEW = (
    'rate(process_cpu_seconds_total{job="holdfast"}[1m]) * 100',
    'sum without(area) (jvm_memory_bytes_used{job="holdfast"})',
    'sum without(gc) (rate(jvm_gc_collection_seconds_sum{job="holdfast"}[1m]))',
    *(
        f"sum without({label}) ({_TRAFFIC.format(name)})"
        for label in ("instance", "topic")
        for name in ("messagesin", "bytesin", "bytesout")
    ),
)
"""What the dashboard with Grafana's id 721 asks: processor, memory, collections, traffic."""

_TOPIC = '{job="holdfast",topic=~"events"}'
KAFKA_EXPORTER_OVERVIEW = (
    f"sum(rate(kafka_topic_partition_current_offset{_TOPIC}[1m])) by (topic)",
    f"sum(delta(kafka_topic_partition_current_offset{_TOPIC}[1m]) / 5) by (topic)",
    f"sum(kafka_consumergroup_lag{_TOPIC}) by (consumergroup, topic)",
    f"sum(delta(kafka_consumergroup_current_offset{_TOPIC}[1m]) / 5) by (consumergroup, topic)",
    f"sum by(topic) (kafka_topic_partitions{_TOPIC})",
)
"""What the dashboard with Grafana's id 7589 asks: messages, lag, consumption and partitions by topic."""

OTHERS = (
    'sum by (request) (rate(kafka_network_requestmetrics_requests_total{job="holdfast"}[1m]))',
    'kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"}',
    'kafka_network_requestmetrics_requestqueuetimems{request="FetchConsumer",quantile="0.95"}',
    "kafka_network_requestchannel_requestqueuesize",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "sum(kafka_controller_kafkacontroller_activecontrollercount)",
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "kafka_log_log_size",
)
"""What alerts and dashboards for the JMX exporter's names ask besides."""


class RunningPrometheus:
    """A Prometheus that scrapes `targets` every second."""

    def __init__(self, directory: Path, targets: list[str]) -> None:
        self.port = free_port()
        config = directory / "prometheus.yml"
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(CONFIG / "prometheus" / "alerts.yml")],
                    "scrape_configs": [{"job_name": JOB, "static_configs": [{"targets": targets}]}],
                }
            )
        )
        self._log = (directory / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={HOST}:{self.port}",
            ],
            stdout=self._log,
            stderr=self._log,
            preexec_fn=die_with_parent,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(2 * _TIMEOUT_S)
        self._log.close()

    def get(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(
            f"http://{HOST}:{self.port}/api/v1/{path}?{query}", timeout=_TIMEOUT_S
        ) as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that answer a query."""
        result: list[dict[str, Any]] = self.get("query", query=query)["result"]
        return result

    def is_up(self) -> bool:
        try:
            return bool(self.ask(f'up{{job="{JOB}"}} == 1'))
        except OSError:
            return False


@contextmanager
def load(bootstrap: str, topic: str) -> Iterator[None]:
    """Write and read a topic all the time."""
    ended = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 10})
        while not ended.wait(0.005):
            producer.produce(topic, b"v" * 200)
            producer.poll(0)
        producer.flush(_TIMEOUT_S)

    def read() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
            }
        )  # fmt: skip
        consumer.subscribe([topic])
        while not ended.is_set():
            consumer.poll(0.2)
        consumer.close()

    threads = [threading.Thread(target=work) for work in (write, read)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join(5 * _TIMEOUT_S)
            assert not thread.is_alive(), "the load goes on, and changes what the test compares"


def without_variables(query: str) -> str:
    """A dashboard's query as Grafana sends it."""
    return (
        query.replace("$__rate_interval", "1m")
        .replace("$job", JOB)
        .replace("$instance", ".*")
        .replace("$topic", ".*")
        .replace("$group", ".*")
    )


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[RunningPrometheus]:
    addresses = [MonitoredAddress() for _ in range(2)]
    for address in addresses:
        cluster.add(address.settings).start()
    for broker in cluster.brokers:
        broker.wait_ready(len(cluster.brokers))
    create_topic(cluster.bootstrap, "events", partitions=4, replicas=2)
    running = RunningPrometheus(
        tmp_path, [address.settings["metrics.http.listener"] for address in addresses]
    )
    try:
        until(running.is_up)
        yield running
    finally:
        running.stop()


def test_queries_of_dashboards_and_alerts_are_answered(
    cluster: Cluster, prometheus: RunningPrometheus
) -> None:
    with load(cluster.bootstrap, "events"):
        for query in (*KAFKA_OVERVIEW, *KAFKA_EXPORTER_OVERVIEW, *OTHERS):
            until(lambda query=query: prometheus.ask(query) != [])  # type: ignore[misc]
        until(lambda: len(prometheus.ask(f'up{{job="{JOB}"}} == 1')) == 2)
        rate = 'sum(rate(kafka_server_brokertopicmetrics_messagesin_total{topic="events"}[30s]))'
        until(lambda: any(float(each["value"][1]) > 10 for each in prometheus.ask(rate)))
        for panel in panels():
            for target in panel["targets"]:
                prometheus.ask(without_variables(target["expr"]))
        for panel in panels():
            until(lambda panel=panel: _answers(prometheus, panel))  # type: ignore[misc]
    rules = _rules(prometheus)
    assert len(rules) == len(ALERTS["groups"][0]["rules"])
    until(lambda: {rule["health"] for rule in _rules(prometheus)} == {"ok"})
    # A page that a busy machine has not made within a second counts as a broker that is down, until the next.
    until(lambda: prometheus.ask('ALERTS{alertname="HoldfastBrokerDown"}') == [])

    for rule in ALERTS["groups"][0]["rules"]:
        prometheus.ask(rule["expr"])


def test_the_lag_that_is_scraped_is_the_truth(cluster: Cluster, prometheus: RunningPrometheus) -> None:
    with load(cluster.bootstrap, "events"):
        until(lambda: _lag(prometheus).keys() == set(range(4)))
        until(lambda: sum(_committed(cluster.bootstrap).values()) > 100)
    for partition in range(4):
        produce(cluster.bootstrap, "events", [b"v"] * (10 + partition), partition)
    committed = _committed(cluster.bootstrap)
    ends = _ends(cluster.bootstrap)
    truth = {partition: ends[partition] - committed[partition] for partition in range(4)}
    assert all(lag >= 10 + partition for partition, lag in truth.items())
    until(lambda: _lag(prometheus) == truth)
    total = 'sum(kafka_consumergroup_lag_sum{consumergroup="readers"})'
    # A page that comes too late leaves Prometheus without these series until the next one.
    until(lambda: [float(each["value"][1]) for each in prometheus.ask(total)] == [sum(truth.values())])


def _rules(prometheus: RunningPrometheus) -> list[dict[str, Any]]:
    """The alerts. Their health is unknown until Prometheus has first evaluated them."""
    found: list[dict[str, Any]] = prometheus.get("rules")["groups"][0]["rules"]
    return found


def _lag(prometheus: RunningPrometheus) -> dict[int, float]:
    """What Prometheus has of the readers' lag, by partition."""
    series = prometheus.ask('kafka_consumergroup_lag{consumergroup="readers",topic="events"}')
    return {int(each["metric"]["partition"]): float(each["value"][1]) for each in series}


def _committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
    found = consumer.committed([TopicPartition("events", partition) for partition in range(4)], _TIMEOUT_S)
    consumer.close()
    return {each.partition: max(0, each.offset) for each in found}


def _ends(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looker"})
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition("events", partition), _TIMEOUT_S)[1]
        for partition in range(4)
    }
    consumer.close()
    return ends


def _answers(prometheus: RunningPrometheus, panel: dict[str, Any]) -> bool:
    return any(prometheus.ask(without_variables(target["expr"])) for target in panel["targets"])


def test_an_alert_fires_when_a_broker_dies(cluster: Cluster, prometheus: RunningPrometheus) -> None:
    until(lambda: len(prometheus.ask(f'up{{job="{JOB}"}} == 1')) == 2)
    cluster.lose(cluster.brokers[1])
    for name in ("HoldfastUnderReplicated", "HoldfastBrokerDown"):
        alert = f'ALERTS{{alertname="{name}"}}'
        until(lambda alert=alert: prometheus.ask(alert) != [])  # type: ignore[misc]
