"""A conditional append is repeated by another process after brokers were killed."""

from __future__ import annotations

import uuid

import pytest

from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import OffsetMismatchError
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic

WAIT_MS = 60_000
ID = uuid.uuid4()


def _append(
    bootstrap: str, expected: int, *values: str, append_id: uuid.UUID = ID
) -> tuple[int | None, bool]:
    """(offset of the last message, whether it was there already), by a producer of its own."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        messages = [Message("ledger", value=value, partition=0) for value in values]
        response = producer.send_at(expected, *messages, append_id=append_id)
        return response.result(WAIT_MS).offset, response.is_repeat


def test_an_append_is_written_once_although_each_leader_is_killed_before_it_is_repeated(
    cluster: Cluster,
) -> None:
    brokers = cluster.start(3, {"default.replication.factor": "3", "min.insync.replicas": "2"})
    create_topic(cluster.bootstrap, "ledger", replicas=3)
    assert _append(cluster.bootstrap, 0, "a", "b") == (1, False)

    for broker in brokers:
        cluster.lose(broker)
        running = ",".join(each.address for each in brokers if each is not broker)
        assert _append(running, 0, "a", "b") == (1, True)
        cluster.make_whole()

    with pytest.raises(OffsetMismatchError):
        _append(cluster.bootstrap, 0, "c", append_id=uuid.uuid4())
    assert consume(cluster.bootstrap, "ledger", 2) == [b"a", b"b"]


def test_an_id_is_unknown_once_enough_others_were_used(cluster: Cluster) -> None:
    (broker,) = cluster.start(1, {"append.ids.max": "2"})
    create_topic(cluster.bootstrap, "ledger")
    first, second, third = (uuid.uuid4() for _ in range(3))
    for offset, append_id in enumerate((first, second, third)):
        assert _append(cluster.bootstrap, offset, "x", append_id=append_id) == (offset, False)
    broker.kill()
    broker.start()
    broker.wait_ready(1)
    assert _append(cluster.bootstrap, 1, "x", append_id=second) == (1, True)
    with pytest.raises(OffsetMismatchError):
        _append(cluster.bootstrap, 0, "x", append_id=first)
