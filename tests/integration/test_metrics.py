"""Brokers count what really happened, and say over HTTP whether they serve."""

from __future__ import annotations

import socket
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from holdfast_log.broker.metrics.row import MetricKind
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.wiring.metrics import SECTIONS
from holdfast_log.coordinator.tools.zookeeper_process import HOST
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.certificates import BOTH_NAMES, Authority
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic, produce
from tests.integration.monitored import MetricValues, MonitoredAddress
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until

_KAFKA = "kafka_server_brokertopicmetrics_"


def answers(address: MonitoredAddress) -> bool:
    try:
        return address.get("/healthz")[0] == 200
    except OSError:
        return False


def monitored(cluster: Cluster, count: int) -> list[MonitoredAddress]:
    """Start brokers, each with an HTTP listener."""
    addresses = [MonitoredAddress() for _ in range(count)]
    brokers = [cluster.add(address.settings) for address in addresses]
    for broker in brokers:
        broker.start()
    for broker in brokers:
        broker.wait_ready(count)
    return addresses


def log_bytes(broker: BackgroundBroker, partition: str) -> int:
    return sum(path.stat().st_size for path in (broker.log_dirs[0] / partition).glob("*.log"))


def test_counts_are_those_of_what_was_written_and_read(cluster: Cluster) -> None:
    pages = monitored(cluster, 2)
    create_topic(cluster.bootstrap, "events", partitions=2, replicas=2)
    create_topic(cluster.bootstrap, "others")
    for partition, count in ((0, 300), (1, 55)):
        produce(cluster.bootstrap, "events", [b"v" * 100] * count, partition)
    produce(cluster.bootstrap, "others", [b"w"] * 7)
    for partition, count in ((0, 300), (1, 55)):
        assert len(consume(cluster.bootstrap, "events", count, partition)) == count

    def everything_is_copied() -> bool:
        both = [page.metrics() for page in pages]
        return sum(each.of(_KAFKA + "replicationbytesin_total", topic="events") for each in both) == sum(
            each.of(_KAFKA + "bytesin_total", topic="events") for each in both
        )

    until(everything_is_copied)
    with RawSocket(cluster.brokers[0].port) as client:
        # A consumer looks for its group, which has the topic of offsets created.
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["any"]))
    until(lambda: sum(page.metrics()["kafka_server_replicamanager_leadercount"] for page in pages) == 4)
    controller = "kafka_controller_kafkacontroller_globalpartitioncount"
    until(lambda: sum(page.metrics()[controller] for page in pages) == 4)
    found = [page.metrics() for page in pages]

    def total(name: str, topic: str) -> float:
        return sum(each.all(name).get(frozenset({("topic", topic)}), 0) for each in found)

    assert total(_KAFKA + "messagesin_total", "events") == 355
    assert total(_KAFKA + "messagesin_total", "others") == 7
    for each in found:
        with_topic = [value for labels, value in each.all(_KAFKA + "messagesin_total").items() if labels]
        assert each[_KAFKA + "messagesin_total"] == sum(with_topic)
    written = sum(log_bytes(cluster.brokers[0], f"events-{partition}") for partition in (0, 1))
    assert total(_KAFKA + "bytesin_total", "events") == written
    assert total(_KAFKA + "replicationbytesin_total", "events") == written
    assert total(_KAFKA + "replicationbytesout_total", "events") == written
    assert total(_KAFKA + "bytesout_total", "events") >= written
    assert _sizes(found[0], "events") == _sizes(found[1], "events") == written
    assert (
        sum(each["kafka_server_replicamanager_leadercount"] for each in found) == 4
    )  # one of __consumer_offsets
    assert sum(each["kafka_server_replicamanager_partitioncount"] for each in found) == 6
    assert sum(each["kafka_controller_kafkacontroller_activecontrollercount"] for each in found) == 1
    assert sum(each["kafka_controller_kafkacontroller_globalpartitioncount"] for each in found) == 4
    assert sum(each["kafka_controller_kafkacontroller_offlinepartitionscount"] for each in found) == 0
    assert [each["kafka_server_replicamanager_underreplicatedpartitions"] for each in found] == [0, 0]
    _check_requests(found)


def _sizes(page: MetricValues, topic: str) -> float:
    sizes = page.all("kafka_log_log_size")
    return sum(value for labels, value in sizes.items() if ("topic", topic) in labels)


def _check_requests(found: list[MetricValues]) -> None:
    name = "kafka_network_requestmetrics_totaltimems"
    for page in found:
        produced = page.all("kafka_network_requestmetrics_requests_total")
        counted = sum(value for labels, value in produced.items() if ("request", "Produce") in labels)
        assert page.all(name + "_count").get(frozenset({("request", "Produce")}), 0) == counted
        assert page.of(name + "_count", request="FetchFollower") > 0
        total = page.of(name, request="FetchFollower", quantile="0.50")
        remote = page.of(
            "kafka_network_requestmetrics_remotetimems", request="FetchFollower", quantile="0.99"
        )
        assert total > 0 and remote > 0
    assert any(page.all(name + "_count").get(frozenset({("request", "Produce")})) for page in found)


def test_a_dead_follower_shows(cluster: Cluster) -> None:
    pages = monitored(cluster, 2)
    create_topic(cluster.bootstrap, "events", partitions=4, replicas=2)
    controller = next(
        number for number, page in enumerate(pages)
        if page.metrics()["kafka_controller_kafkacontroller_activecontrollercount"]
    )  # fmt: skip
    cluster.lose(cluster.brokers[1 - controller])

    def is_seen() -> bool:
        page = pages[controller].metrics()
        return (
            page["kafka_server_replicamanager_underreplicatedpartitions"] == 4
            and page["kafka_server_replicamanager_leadercount"] == 4
            and page["kafka_brokers"] == 1
        )

    until(is_seen)
    cluster.brokers[1 - controller].start()
    until(lambda: pages[controller].metrics()["kafka_server_replicamanager_underreplicatedpartitions"] == 0)
    assert pages[controller].metrics()["kafka_server_replicamanager_isrexpands_total"] >= 4


def test_every_documented_metric_is_served_with_its_type(cluster: Cluster, tmp_path: Path) -> None:
    """The broker has a listener with TLS and SASL: without one there are no metrics of them."""
    page = MonitoredAddress()
    broker = cluster.add(page.settings)
    broker.properties |= {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{broker.port},SECURE://127.0.0.1:0,"
            f"INTERNAL://127.0.0.1:{broker.brokers_port}"
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,INTERNAL:PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "ssl.keystore.location": Authority().issue("broker", BOTH_NAMES).write(tmp_path / "broker.pem"),
    }
    broker.start()
    broker.wait_ready(1)
    create_topic(cluster.bootstrap, "events")
    produce(cluster.bootstrap, "events", [b"x"])
    commit(cluster.bootstrap, "readers", {("events", 0): 1})
    status, text = page.get("/metrics")
    assert status == 200

    shown = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE ")}
    rows = [row for section in SECTIONS for row in section.rows]
    assert {row.name: row.kind.value for row in rows}.items() <= shown.items()
    assert {name for name in shown if not name.startswith(("process_", "python_gc_"))} == {
        row.name for row in rows
    }
    for row in rows:
        assert row.name.endswith("_total") == (row.kind is MetricKind.COUNTER), row.name
        assert row.doc.endswith("."), row.name


def test_a_broker_that_waits_for_zookeeper_is_alive_and_not_ready(tmp_path: Path) -> None:
    page = MonitoredAddress()
    with socket.create_server((HOST, 0)) as silent:
        address = f"{HOST}:{silent.getsockname()[1]}"
        broker = BackgroundBroker(
            tmp_path, broker_id=1, zookeeper_connect=address,
            properties={**page.settings, "zookeeper.connection.timeout.ms": "600000"},
        )  # fmt: skip
        broker.start()
        try:
            until(lambda: answers(page))
            until(lambda: "ZooKeeper" in page.get("/readyz")[1])
            assert page.get("/readyz")[0] == 503
            assert page.get("/healthz")[0] == 200
            assert page.metrics()["holdfast_reactor_turns_total"] > 0
        finally:
            broker.kill()


def test_a_broker_that_serves_is_ready(cluster: Cluster) -> None:
    (page,) = monitored(cluster, 1)
    until(lambda: page.get("/readyz") == (200, "ready\n"))


def test_a_broker_whose_port_for_metrics_is_taken_says_so_and_does_not_start(cluster: Cluster) -> None:
    with socket.create_server((HOST, 0)) as taken:
        broker = cluster.add({"metrics.http.listener": f"{HOST}:{taken.getsockname()[1]}"})
        broker.start()
        assert broker.wait() == 1
    assert "metrics.http.listener" in broker.log and "another program uses the port" in broker.log


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit offsets for a group that has no members."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    positions = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def positions_of(pages: list[MonitoredAddress], name: str, group: str) -> dict[tuple[str, int], float]:
    """A value of each partition of a group, from whichever broker shows it; no partition twice."""
    found: dict[tuple[str, int], float] = {}
    for page in pages:
        for labels, value in page.metrics().all(name).items():
            named = dict(labels)
            if named["consumergroup"] == group:
                key = named["topic"], int(named["partition"])
                assert key not in found
                found[key] = value
    return found


def test_lag_is_the_truth_wherever_the_partitions_are_led(cluster: Cluster) -> None:
    pages = monitored(cluster, 2)
    create_topic(cluster.bootstrap, "events", partitions=6)
    written = {index: 10 * index + 3 for index in range(6)}
    for index, count in written.items():
        produce(cluster.bootstrap, "events", [b"v"] * count, index)
    committed = {index: index + 1 for index in range(6)}
    commit(cluster.bootstrap, "readers", {("events", index): offset for index, offset in committed.items()})
    leaders = [len(page.metrics().all("kafka_topic_partition_current_offset")) for page in pages]
    assert all(leaders), "both brokers lead some of the partitions"

    def expected() -> dict[tuple[str, int], float]:
        return {("events", index): written[index] - committed[index] for index in written}

    until(lambda: positions_of(pages, "kafka_consumergroup_lag", "readers") == expected())
    current = positions_of(pages, "kafka_consumergroup_current_offset", "readers")
    assert current == {("events", index): offset for index, offset in committed.items()}
    labels = frozenset({("consumergroup", "readers"), ("topic", "events")})
    sums = [page.metrics().all("kafka_consumergroup_lag_sum").get(labels) for page in pages]
    assert sorted(sums, key=lambda value: value is None) == [sum(expected().values()), None]
    ends = {
        int(dict(labels)["partition"]): value
        for page in pages
        for labels, value in page.metrics().all("kafka_topic_partition_current_offset").items()
        if ("topic", "events") in labels
    }
    assert ends == written

    produce(cluster.bootstrap, "events", [b"v"] * 5, 4)
    written[4] += 5
    assert positions_of(pages, "kafka_consumergroup_lag", "readers") == expected(), "asked at each page"
    committed = dict(written)
    commit(cluster.bootstrap, "readers", {("events", index): offset for index, offset in committed.items()})
    assert set(positions_of(pages, "kafka_consumergroup_lag", "readers").values()) == {0}


def test_the_lag_of_a_dead_leaders_partitions_is_missing_and_the_page_is_made(cluster: Cluster) -> None:
    pages = monitored(cluster, 2)
    create_topic(cluster.bootstrap, "events", partitions=6)
    commit(cluster.bootstrap, "readers", {("events", index): 0 for index in range(6)})
    holders = [page for page in pages if page.metrics().all("kafka_consumergroup_current_offset")]
    (holder,) = holders
    ends = holder.metrics().all("kafka_topic_partition_current_offset")
    led = sum(("topic", "events") in labels for labels in ends)
    assert 0 < led < 6
    other = cluster.brokers[1 - pages.index(holder)]
    other.pause()
    try:
        page = holder.metrics()
    finally:
        other.resume()

    assert len(page.all("kafka_consumergroup_current_offset")) == 6
    assert len(page.all("kafka_consumergroup_lag")) == led
    assert not page.all("kafka_consumergroup_lag_sum")
