"""Transactions of confluent-kafka (librdkafka): commit, abort, offsets of a group, fencing."""

from __future__ import annotations

import time

import pytest

from tests.cluster import Cluster

kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")


WAIT_S = 240


def _committed(bootstrap: str) -> int:
    consumer = kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    (found,) = consumer.committed([kafka.TopicPartition("in", 0)], WAIT_S)
    consumer.close()
    return int(found.offset)


def test_records_and_offsets_of_a_transaction_count_together(cluster: Cluster) -> None:
    bootstrap = f"127.0.0.1:{cluster.start()[0].port}"
    topics = [admin.NewTopic("in", 1, 1), admin.NewTopic("out", 1, 1)]
    creator = admin.AdminClient({"bootstrap.servers": bootstrap})
    for made in creator.create_topics(topics).values():
        made.result()
    config = {"bootstrap.servers": bootstrap, "transactional.id": "t", "transaction.timeout.ms": 600_000}
    producer = kafka.Producer(config)
    producer.init_transactions(WAIT_S)
    reading = kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    for is_commit, value, offset, expected in ((False, b"no", 9, -1001), (True, b"yes", 7, 7)):
        producer.begin_transaction()
        producer.produce("out", value)
        position = kafka.TopicPartition("in", 0, offset)
        producer.send_offsets_to_transaction([position], reading.consumer_group_metadata(), WAIT_S)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(WAIT_S)
        assert _committed(bootstrap) == expected
    reading.close()

    reader = kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    )
    reader.assign([kafka.TopicPartition("out", 0, 0)])
    deadline_s, found = time.monotonic() + WAIT_S, None
    while found is None and time.monotonic() < deadline_s:
        found = reader.poll(1)
    reader.close()
    assert found is not None
    assert found.value() == b"yes"

    kafka.Producer(config).init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("out", b"late")
    with pytest.raises(kafka.KafkaException) as refused:
        producer.commit_transaction(WAIT_S)
    assert refused.value.args[0].code() == kafka.KafkaError._FENCED
