"""Conditional publish (KIP-27) against a real broker."""

from __future__ import annotations

import threading

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.errors import GuardMismatchError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import OffsetMismatchError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.cluster import Cluster
from tests.integration import clients

WAIT_MS = 60_000


def _append(producer: Producer, topic: str, value: str, offset: int) -> int:
    """Append at the end of the log, first trying `offset`. Returns how many attempts another producer
    preceded."""
    mismatches = 0
    while True:
        try:
            response = producer.send_at(offset, Message(topic, value=value, partition=0))
            assert response.result(WAIT_MS).offset == offset
            return mismatches
        except OffsetMismatchError as mismatch:
            assert mismatch.next_offset >= 0
            offset = mismatch.next_offset
            mismatches += 1


def _values(bootstrap: str, topic: str, count: int) -> list[bytes]:
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.add_topic(topic, 0)
        values: list[bytes] = []
        while len(values) < count:
            values += [record.value for record in consumer.poll(WAIT_MS)]
        return values


def _guard_each_other(bootstrap: str, producer: Producer) -> None:
    """With terms in one partition and data in another, an append under an ended term is refused."""
    clients.create_topic(bootstrap, "data")
    clients.create_topic(bootstrap, "terms")
    terms = TopicPartition("terms", 0)
    data = [Message("data", value=number, partition=0) for number in ("a", "b")]
    response = producer.send_at(0, *data, guards={terms: 0})
    response.result(WAIT_MS)

    term = Message("terms", value="ben leads", partition=0)
    producer.send_at(0, term, guards={TopicPartition("data", 0): 2}).result(WAIT_MS)
    with pytest.raises(GuardMismatchError) as refused:
        producer.send_at(2, Message("data", value="late", partition=0), guards={terms: 0}).result(WAIT_MS)

    assert refused.value.next_offsets == {terms: 1}
    producer.send_at(2, Message("data", value="c", partition=0), guards={terms: 1}).result(WAIT_MS)
    assert _values(bootstrap, "data", 3) == [b"a", b"b", b"c"]


def test_conditional_appends_are_written_only_if_their_conditions_hold(cluster: Cluster) -> None:
    """ "Compare and set" (KIP-27): of two producers that append, neither overlooks the other. Pipelines,
    guards, leader epochs, and topics that check base offsets."""
    cluster.start()
    properties = {"bootstrap.servers": cluster.bootstrap}
    clients.create_topic(cluster.bootstrap, "log")
    clients.create_topic(cluster.bootstrap, "checked", config={"check.expected.offsets": "true"})

    with Producer(properties) as anna, Producer(properties) as ben:
        count = 50
        threads = [
            threading.Thread(target=lambda p=p, n=n: [_append(p, "log", n, 0) for _ in range(count)])
            for p, n in ((anna, "anna"), (ben, "ben"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(4 * WAIT_MS / 1000)
        assert sorted(_values(cluster.bootstrap, "log", 2 * count)) == [b"anna"] * count + [b"ben"] * count

        pipeline = [anna.send(Message("log", value="p", partition=0, offset=100 + n)) for n in range(200)]
        assert [each.result(WAIT_MS).offset for each in pipeline] == list(range(100, 300))
        pipeline = [ben.send(Message("log", value="p", partition=0, offset=150 + n)) for n in range(200)]
        for each in pipeline:
            with pytest.raises(OffsetMismatchError):
                each.result(WAIT_MS)

        _guard_each_other(cluster.bootstrap, anna)
        epoch = _epoch_after(anna, 250)
        with pytest.raises(OffsetMismatchError):
            anna.send_at(300, Message("log", partition=0), last_leader_epoch=epoch + 1).result(WAIT_MS)
        anna.send_at(300, Message("log", partition=0), last_leader_epoch=epoch).result(WAIT_MS)

        assert ben.send(Message("checked", value="any", partition=0)).result(WAIT_MS).offset == 0
        assert ben.send(Message("checked", value="any", partition=0)).result(WAIT_MS).offset == 1
        with pytest.raises(OffsetMismatchError):
            ben.send(Message("checked", value="no", partition=0, offset=1)).result(WAIT_MS)
        assert ben.send(Message("checked", value="yes", partition=0, offset=2)).result(WAIT_MS).offset == 2


def _epoch_after(producer: Producer, wrong_offset: int) -> int:
    """The leader epoch of the log's last record, taken from the error of a refused append."""
    with pytest.raises(OffsetMismatchError) as refused:
        producer.send_at(wrong_offset, Message("log", partition=0)).result(WAIT_MS)
    return refused.value.last_leader_epoch
