"""Transactions of confluent-kafka (librdkafka): commit, abort, offsets of a group, fencing."""

from __future__ import annotations

import time

import pytest

from tests.cluster import Cluster

kafka = pytest.importorskip("confluent_kafka")
admin = pytest.importorskip("confluent_kafka.admin")


def _committed(bootstrap: str) -> int:
    consumer = kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    (found,) = consumer.committed([kafka.TopicPartition("in", 0)], 60)
    consumer.close()
    return int(found.offset)


def test_records_and_offsets_of_a_transaction_count_together(cluster: Cluster) -> None:
    bootstrap = f"127.0.0.1:{cluster.start()[0].port}"
    topics = [admin.NewTopic("in", 1, 1), admin.NewTopic("out", 1, 1)]
    creator = admin.AdminClient({"bootstrap.servers": bootstrap})
    for made in creator.create_topics(topics).values():
        made.result()
    config = {"bootstrap.servers": bootstrap, "transactional.id": "t"}
    producer = kafka.Producer(config)
    producer.init_transactions(60)
    reading = kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    for is_commit, value, offset, expected in ((False, b"no", 9, -1001), (True, b"yes", 7, 7)):
        producer.begin_transaction()
        producer.produce("out", value)
        position = kafka.TopicPartition("in", 0, offset)
        producer.send_offsets_to_transaction([position], reading.consumer_group_metadata(), 60)
        (producer.commit_transaction if is_commit else producer.abort_transaction)(60)
        assert _committed(bootstrap) == expected
    reading.close()

    reader = kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": "read_committed"}
    )
    reader.assign([kafka.TopicPartition("out", 0, 0)])
    deadline_s, found = time.monotonic() + 120, None
    while found is None and time.monotonic() < deadline_s:
        found = reader.poll(1)
    reader.close()
    assert found is not None
    assert found.value() == b"yes"

    kafka.Producer(config).init_transactions(60)
    producer.begin_transaction()
    producer.produce("out", b"late")
    with pytest.raises(kafka.KafkaException) as refused:
        producer.commit_transaction(60)
    assert refused.value.args[0].code() == kafka.KafkaError._FENCED
