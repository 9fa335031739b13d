"""Consumers of confluent-kafka, Java and Holdfast read from a follower in their rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from holdfast_log.broker.replication.settings import RACK_AWARE
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.admin import Admin, NewTopic, ResourceType
from holdfast_log.clients.consumer import Consumer
from holdfast_log.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.cluster import Cluster
from tests.compat.kafka_tools import run_kafka_tool
from tests.integration.clients import consume, produce
from tests.integration.monitored import MonitoredAddress
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import until, until_in_sync

COUNT = 50
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
FAR, NEAR = "far", "near"
FIRST = [b"value %d" % number for number in range(COUNT)]
SECOND = [b"value %d" % number for number in range(COUNT, 2 * COUNT)]
TOPICS: dict[str, dict[str, str | None]] = {"open": {"single.reader": "off"}, "guarded": {}}
PATIENT = {"zookeeper.session.timeout.ms": "60000", "replica.lag.time.max.ms": "120000"}
"""A follower that a busy machine holds up stays in sync: the leader sends no consumer to another one."""


class OfLibrdkafka:
    """A consumer of confluent-kafka that reads a partition from its beginning."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._consumer = ConfluentConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "racks",
                "enable.auto.commit": False,
                "client.rack": rack,
            }
        )
        self._consumer.assign([ConfluentPartition(topic, 0, 0)])

    def read(self, count: int) -> list[bytes]:
        values: list[bytes] = []

        def is_enough() -> bool:
            found = self._consumer.consume(count - len(values), timeout=1)
            values.extend(message.value() for message in found if message.error() is None)
            return len(values) >= count

        until(is_enough)
        return values

    def close(self) -> None:
        self._consumer.close()


class OfHoldfast:
    """Our consumer, as `OfLibrdkafka`."""

    def __init__(self, bootstrap: str, topic: str, rack: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "client.rack": rack, "auto.offset.reset": "earliest"}
        )
        self._consumer.add_topic(topic, 0)

    def read(self, count: int) -> list[bytes]:
        values: list[bytes] = []

        def is_enough() -> bool:
            found = self._consumer.poll(1_000, max_records=count - len(values))
            values.extend(bytes(record.value or b"") for record in found)
            return len(values) >= count

        until(is_enough)
        return values

    def close(self) -> None:
        self._consumer.close()


def librdkafka(bootstrap: str, topic: str, rack: str) -> list[bytes]:
    return consume(bootstrap, topic, COUNT, **{"client.rack": rack})


def java(bootstrap: str, topic: str, rack: str) -> list[bytes]:
    printed = run_kafka_tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(COUNT), "--consumer-property", f"client.rack={rack}"),
    )
    return [line.encode() for line in printed.splitlines() if line.startswith("value ")]


def holdfast(bootstrap: str, topic: str, rack: str) -> list[bytes]:
    reader = OfHoldfast(bootstrap, topic, rack)
    try:
        return reader.read(COUNT)
    finally:
        reader.close()


def single_reader(broker: BackgroundBroker, topic: str) -> list[str | None]:
    """Whether a topic may have an exclusive reader, as this broker has learnt it."""
    asked = DescribeConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configuration_keys=["single.reader"]
    )
    with RawSocket(broker.port) as client:
        answer = client.call(DescribeConfigsRequest(resources=[asked]))
    return [entry.value for result in answer.results for entry in result.configs]


class Racks:
    """Two brokers in two racks. The one in the far rack leads every topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._pages = {rack: MonitoredAddress() for rack in (FAR, NEAR)}
        for rack, page in self._pages.items():
            selection = {"broker.rack": rack, "replica.selector.class": RACK_AWARE}
            cluster.start(1, {**PATIENT, **selection, **page.settings})
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            for topic, configs in TOPICS.items():
                admin.create_topics([NewTopic(topic, 1, assignment={0: [1, 2]}, configs=configs)])
        for topic in TOPICS:
            until_in_sync(cluster.brokers, topic)
        # A follower serves consumers of this topic only once it has learnt of the setting.
        until(lambda: all(single_reader(broker, "open") == ["off"] for broker in cluster.brokers))

    def sent(self, rack: str, topic: str) -> float:
        """The bytes of a topic that the broker in a rack has sent to consumers."""
        return self._pages[rack].metrics().all(BYTES_OUT).get(frozenset({("topic", topic)}), 0)


@pytest.mark.parametrize("read", [librdkafka, java, holdfast])
def test_a_consumer_reads_from_the_follower_in_its_rack(
    cluster: Cluster, read: Callable[[str, str, str], list[bytes]]
) -> None:
    racks = Racks(cluster)
    for topic in TOPICS:
        produce(cluster.bootstrap, topic, FIRST)
    assert read(cluster.bootstrap, "open", NEAR) == FIRST
    assert racks.sent(FAR, "open") == 0
    assert racks.sent(NEAR, "open") > 0
    assert read(cluster.bootstrap, "open", FAR) == FIRST
    assert racks.sent(FAR, "open") > 0
    assert read(cluster.bootstrap, "guarded", NEAR) == FIRST
    assert racks.sent(NEAR, "guarded") == 0, "it may have an exclusive reader: its leader serves it"


@pytest.mark.parametrize("kind", [OfLibrdkafka, OfHoldfast])
def test_a_consumer_goes_back_to_the_leader_when_its_follower_dies(
    cluster: Cluster, kind: type[OfLibrdkafka | OfHoldfast]
) -> None:
    racks = Racks(cluster)
    produce(cluster.bootstrap, "open", FIRST)
    reader = kind(cluster.bootstrap, "open", NEAR)
    try:
        assert reader.read(COUNT) == FIRST
        assert (racks.sent(FAR, "open"), racks.sent(NEAR, "open") > 0) == (0, True)
        cluster.lose(cluster.brokers[1])
        produce(cluster.brokers[0].address, "open", SECOND)
        assert reader.read(COUNT) == SECOND
        assert racks.sent(FAR, "open") > 0
    finally:
        reader.close()
