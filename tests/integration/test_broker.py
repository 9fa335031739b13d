"""A broker process with ZooKeeper, used by stock clients."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource
from kazoo.client import KazooClient

from tests.cluster import Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce
from tests.integration.programs import run_module


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"value %d" % number for number in range(start, start + count)]


@pytest.fixture
def bootstrap(shared_cluster: Cluster) -> str:
    """The address of a broker that tests share; each test uses its own topic."""
    if not shared_cluster.brokers:
        properties = {
            "num.partitions": "3",
            "file.delete.delay.ms": "0",
            "log.segment.delete.delay.ms": "0",
            "num.partition": "3",
        }
        shared_cluster.start(properties=properties)
    return shared_cluster.bootstrap


def test_produced_records_are_consumed(bootstrap: str) -> None:
    create_topic(bootstrap, "events", partitions=2)
    assert produce(bootstrap, "events", values(1000), partition=1) == list(range(1000))
    assert consume(bootstrap, "events", 1000, partition=1) == values(1000)
    assert consume(bootstrap, "events", 10, partition=1, offset=990) == values(10, 990)


def test_each_acknowledgement_level_works(bootstrap: str) -> None:
    create_topic(bootstrap, "acknowledged")
    for acks in ("1", "all", "0"):
        produce(bootstrap, "acknowledged", values(100), acks=acks)
    assert consume(bootstrap, "acknowledged", 300) == values(100) * 3


def test_writing_to_an_unknown_topic_creates_it(bootstrap: str) -> None:
    produce(bootstrap, "unheard-of", values(10), partition=2)
    assert consume(bootstrap, "unheard-of", 10, partition=2) == values(10)
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=TIMEOUT_S)
    assert len(metadata.topics["unheard-of"].partitions) == 3


def test_no_topic_is_created_if_auto_create_is_disabled(cluster: Cluster) -> None:
    cluster.start(properties={"auto.create.topics.enable": "false"})
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert admin.list_topics("unheard-of", timeout=TIMEOUT_S).topics["unheard-of"].error is not None
    assert "unheard-of" not in admin.list_topics(timeout=TIMEOUT_S).topics


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_keeps_topics_and_records(cluster: Cluster, end: str) -> None:
    (broker,) = cluster.start()
    create_topic(cluster.bootstrap, "events", config={"retention.ms": "123456789"})
    produce(cluster.bootstrap, "events", values(500), **{"enable.idempotence": True})
    if end == "stop":
        broker.stop()
    else:
        broker.kill()
    broker.start()
    broker.wait_ready()
    assert consume(cluster.bootstrap, "events", 500) == values(500)
    assert produce(cluster.bootstrap, "events", values(1)) == [500]
    assert topic_config(cluster.bootstrap, "events")["retention.ms"] == "123456789"


def topic_config(bootstrap: str, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in described.items()}


def test_deleting_a_topic_deletes_its_files(bootstrap: str, shared_cluster: Cluster) -> None:
    (broker,) = shared_cluster.brokers
    create_topic(bootstrap, "deleted")
    produce(bootstrap, "deleted", values(10))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics(["deleted"], operation_timeout=TIMEOUT_S)["deleted"].result(TIMEOUT_S)
    assert "deleted" not in admin.list_topics(timeout=TIMEOUT_S).topics
    assert not (broker.log_dirs[0] / "deleted-0").exists()
    create_topic(bootstrap, "deleted")
    assert produce(bootstrap, "deleted", values(1)) == [0]


def test_an_invalid_topic_is_refused_with_the_reason(bootstrap: str) -> None:
    create_topic(bootstrap, "good")
    with pytest.raises(KafkaException, match="exists"):
        create_topic(bootstrap, "good")
    with pytest.raises(KafkaException, match=r"Invalid value soon for configuration retention\.ms"):
        create_topic(bootstrap, "bad", config={"retention.ms": "soon"})
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        create_topic(bootstrap, "bad", replicas=2)


def test_a_broker_paused_beyond_its_session_registers_again(cluster: Cluster) -> None:
    (broker,) = cluster.start(properties={"zookeeper.session.timeout.ms": "3000"})
    create_topic(cluster.bootstrap, "events")
    produce(cluster.bootstrap, "events", values(10))
    zookeeper = KazooClient(cluster.zookeeper_connect)
    zookeeper.start(TIMEOUT_S)
    try:
        epoch = zookeeper.get("/brokers/ids/1")[1].czxid
        gone, back = threading.Event(), threading.Event()
        zookeeper.exists("/brokers/ids/1", lambda event: gone.set())
        broker.pause()
        assert gone.wait(TIMEOUT_S)
        if zookeeper.exists("/brokers/ids/1", lambda event: back.set()):
            back.set()
        broker.resume()
        assert back.wait(TIMEOUT_S)
        assert zookeeper.get("/brokers/ids/1")[1].czxid > epoch
    finally:
        zookeeper.stop()
        zookeeper.close()
    assert produce(cluster.bootstrap, "events", values(10)) == list(range(10, 20))
    assert consume(cluster.bootstrap, "events", 20) == values(10) * 2


def test_two_brokers_describe_and_serve_the_same_cluster(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    create_topic(first.address, "events", partitions=4)
    described = [
        AdminClient({"bootstrap.servers": broker.address}).list_topics(timeout=TIMEOUT_S)
        for broker in (first, second)
    ]
    for metadata in described:
        assert sorted(metadata.brokers) == [1, 2]
        leaders = [partition.leader for _, partition in sorted(metadata.topics["events"].partitions.items())]
        assert sorted(leaders) == [1, 1, 2, 2]
    assert described[0].cluster_id == described[1].cluster_id
    for partition in range(4):
        produce(second.address, "events", values(5), partition=partition)
        assert consume(first.address, "events", 5, partition=partition) == values(5)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("broker.id=minus one", "broker.id='minus one' is not allowed: expected a whole number"),
        (
            "log.cleanup.policy=burn",
            "log.cleanup.policy='burn' is not allowed: expected any of delete, compact",
        ),
        ("listeners=PLAINTEXT", "listeners"),
        ("num.partitions=0", "num.partitions='0' is not allowed"),
    ],
)
def test_an_invalid_setting_ends_the_start_with_one_line(
    tmp_path: Path, override: str, expected: str
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text("zookeeper.connect=127.0.0.1:1\n")
    ended = run_module("holdfast_log.broker", str(properties), "--override", override)
    assert ended.returncode == 1
    assert expected in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_the_warning_about_an_unknown_setting_suggests_a_known_one(
    bootstrap: str, shared_cluster: Cluster
) -> None:
    (broker,) = shared_cluster.brokers
    assert "Ignoring unknown setting num.partition; did you mean num.partitions?" in broker.log
