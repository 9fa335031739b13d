"""An operator writes garbage to ZooKeeper, or deletes znodes that brokers need, while real brokers run."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kazoo.client import KazooClient

from holdfast_log.coordinator.znodes.brokers import broker_path
from holdfast_log.coordinator.znodes.controller import CONTROLLER, encode_controller
from holdfast_log.coordinator.znodes.topics import topic_path
from tests.cluster import Cluster
from tests.integration.clients import TIMEOUT_S, consume, create_topic, produce

VALUES = [b"%d" % number for number in range(20)]


@pytest.fixture
def operator(cluster: Cluster) -> Iterator[KazooClient]:
    # A test holds the controller's znode with this session.
    client = KazooClient(cluster.zookeeper_connect, timeout=TIMEOUT_S)
    client.start(TIMEOUT_S)
    try:
        client.ensure_path("/")
        yield client
    finally:
        client.stop()
        client.close()


def test_brokers_start_and_serve_around_a_topic_that_cannot_be_read(
    cluster: Cluster, operator: KazooClient
) -> None:
    (broker,) = cluster.start()
    for topic in ("broken", "sound"):
        create_topic(cluster.bootstrap, topic)
        produce(cluster.bootstrap, topic, VALUES)
    good, _ = operator.get(topic_path("broken"))
    operator.set(topic_path("broken"), b"{")
    operator.create("/brokers/topics/garbage", b"{")
    broker.stop()
    broker.start()
    broker.wait_ready()
    assert produce(cluster.bootstrap, "sound", VALUES) == list(range(20, 40))
    create_topic(cluster.bootstrap, "new")
    produce(cluster.bootstrap, "new", VALUES)
    for topic in ("broken", "garbage"):
        with pytest.raises(KafkaException, match=f"{topic_path(topic)} does not hold JSON"):
            create_topic(cluster.bootstrap, topic)
    assert broker.log.count("Cannot read the znode /brokers/topics/broken") == 1
    assert (broker.log_dirs[0] / "broken-0").exists()
    operator.set(topic_path("broken"), good)
    assert consume(cluster.bootstrap, "broken", 20) == VALUES


def test_a_broker_whose_registration_is_deleted_registers_again(
    cluster: Cluster, operator: KazooClient
) -> None:
    (broker,) = cluster.start()
    create_topic(cluster.bootstrap, "events")
    produce(cluster.bootstrap, "events", VALUES)
    _, before = operator.get(broker_path(1))
    operator.delete(broker_path(1))
    back = threading.Event()
    if operator.exists(broker_path(1), lambda event: back.set()) is None:
        assert back.wait(TIMEOUT_S)
    _, now = operator.get(broker_path(1))
    assert now.czxid > before.czxid
    assert now.ephemeralOwner == before.ephemeralOwner
    assert produce(cluster.bootstrap, "events", VALUES, acks="all") == list(range(20, 40))
    assert "another process has removed this broker's registration" in broker.log


def test_metadata_waits_until_the_broker_knows_the_cluster(cluster: Cluster, operator: KazooClient) -> None:
    """The broker accepts connections before a controller has sent it the metadata of the cluster."""
    operator.create(CONTROLLER, encode_controller(9, 0), ephemeral=True)
    broker = cluster.add()
    broker.start()
    registered = threading.Event()
    operator.ensure_path("/brokers/ids")
    while operator.exists(broker_path(1), lambda event: registered.set()) is None:
        assert registered.wait(TIMEOUT_S)
    answers: list[int] = []
    admin = AdminClient({"bootstrap.servers": broker.address})

    def ask() -> None:
        answers.append(len(admin.list_topics(timeout=TIMEOUT_S).brokers))

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(2)  # No answer may come yet, and there is no event to wait for.
    assert answers == []
    operator.delete(CONTROLLER)
    asking.join(TIMEOUT_S)
    assert answers == [1]
    broker.wait_ready()
