"""Real brokers remove old records, as their settings say while they run."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import InvalidRecordError
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic, produce
from tests.integration.owners import wait_for_leader
from tests.integration.programs import run_module
from tests.integration.waiting import until

FAST = {
    "log.retention.check.interval.ms": "100",
    "log.segment.bytes": "1000",
    "log.index.interval.bytes": "100",
}
VALUES = [b"%03d" % number + bytes(400) for number in range(20)]


def alter(bootstrap: str, *arguments: str) -> None:
    """Alter settings with scripts/configs.sh."""
    done = run_module(
        "holdfast_log.clients.tools.configs", "--bootstrap-server", bootstrap, "--alter", *arguments
    )
    assert done.returncode == 0, done.stderr
    assert "no effect" not in done.stderr


def start_of(bootstrap: str, topic: str) -> int:
    """The offset of a topic's first record."""
    at = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_offsets({at: OffsetSpec.earliest()})
    return int(found[at].result(60).offset)


def logs(broker: BackgroundBroker, topic: str) -> list[str]:
    """The names of a partition's segments on a broker, and of those that are about to be removed."""
    names = (path.name for path in (broker.log_dirs[0] / f"{topic}-0").iterdir())
    return sorted(name for name in names if name.endswith((".log", ".deleted")))


def test_altered_limits_remove_segments_on_every_replica(cluster: Cluster) -> None:
    brokers = cluster.start(2, FAST)
    bootstrap = cluster.bootstrap
    create_topic(bootstrap, "orders", replicas=2, config={"file.delete.delay.ms": "0"})
    produce(bootstrap, "orders", VALUES, acks="all", **{"batch.num.messages": 1})
    assert start_of(bootstrap, "orders") == 0
    assert all(len(logs(broker, "orders")) > 5 for broker in brokers)

    alter(bootstrap, "--topic", "orders", "--add-config", "retention.bytes=3000")
    until(lambda: all(1 < len(logs(broker, "orders")) <= 5 for broker in brokers))
    start = start_of(bootstrap, "orders")
    assert 0 < start < len(VALUES)
    assert consume(bootstrap, "orders", len(VALUES) - start, offset=start) == VALUES[start:]

    alter(bootstrap, "--topic", "orders", "--add-config", "retention.ms=1")
    until(lambda: all(logs(broker, "orders") == [f"{len(VALUES):020}.log"] for broker in brokers))
    assert start_of(bootstrap, "orders") == len(VALUES)
    assert produce(bootstrap, "orders", [b"next"]) == [len(VALUES)]

    cluster.brokers[0].restart()
    cluster.brokers[1].restart()
    wait_for_leader(cluster.brokers, "orders")
    assert start_of(bootstrap, "orders") >= len(VALUES)


def test_a_brokers_limit_applies_to_topics_without_their_own_and_never_to_committed_offsets(
    cluster: Cluster,
) -> None:
    (broker,) = cluster.start(1, FAST)
    bootstrap = cluster.bootstrap
    for topic, config in (("kept", {"retention.ms": "-1"}), ("bare", {}), ("whole", {"cleanup.policy": ""})):
        create_topic(bootstrap, topic, config=config)
        produce(bootstrap, topic, VALUES, **{"batch.num.messages": 1})
    group = {"bootstrap.servers": bootstrap, "group.id": "books", "enable.auto.commit": False}
    for offset in range(1, 12):
        consumer = Consumer(group)
        consumer.commit(offsets=[TopicPartition("kept", 0, offset)], asynchronous=False)
        consumer.close()

    alter(bootstrap, "--broker", "1", "--add-config", "log.retention.ms=1")
    until(lambda: start_of(bootstrap, "bare") == len(VALUES))
    assert start_of(bootstrap, "kept") == start_of(bootstrap, "whole") == 0
    assert consume(bootstrap, "kept", len(VALUES)) == VALUES
    broker.restart()
    consumer = Consumer(group)
    (found,) = consumer.committed([TopicPartition("kept", 0)], timeout=60)
    consumer.close()
    assert found.offset == 11
    assert (broker.log_dirs[0] / "__consumer_offsets-0" / f"{0:020}.log").stat().st_size > 0


def test_a_record_without_a_key_is_refused_on_a_compacted_topic_in_words(cluster: Cluster) -> None:
    cluster.start(1)
    bootstrap = cluster.bootstrap
    create_topic(bootstrap, "latest", config={"cleanup.policy": "compact"})
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        sent = producer.send(Message("latest", None, b"value"))
        with pytest.raises(InvalidRecordError, match="1 of 1 records have no key"):
            sent.result(60_000)
        assert producer.send(Message("latest", b"key", b"value")).result(60_000).offset == 0
    with pytest.raises((AssertionError, KafkaException), match="INVALID_RECORD"):
        produce(bootstrap, "latest", [b"value"])
