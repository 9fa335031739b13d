"""A conditional append is repeated by another process after brokers were killed."""

from __future__ import annotations

import uuid

import pytest

from holdfast_log.broker.tools.cluster_view import ClusterView
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import AppendIdUnknownError, InvalidRequestError, OffsetMismatchError
from tests.cluster import Cluster
from tests.integration.clients import consume, create_topic
from tests.integration.waiting import DEADLINE_S

WAIT_MS = 60_000
ID = uuid.uuid4()


def _append(
    bootstrap: str,
    expected: int,
    *values: str,
    append_id: uuid.UUID = ID,
    unused_before: int | None = None,
) -> tuple[int | None, bool]:
    """(offset of the last message, whether it was there already), by a producer of its own."""
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        messages = [Message("ledger", value=value, partition=0) for value in values]
        response = producer.send_at(expected, *messages, append_id=append_id, unused_before=unused_before)
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
        with ClusterView(cluster.zookeeper_connect) as view:
            # Else the next broker could be lost while it is the only one in sync.
            view.wait_for_in_sync("ledger", 0, {each.broker_id for each in brokers}, DEADLINE_S)

    with pytest.raises(OffsetMismatchError):
        _append(cluster.bootstrap, 0, "c", append_id=uuid.uuid4())
    assert consume(cluster.bootstrap, "ledger", 2) == [b"a", b"b"]


def test_an_append_is_not_written_twice_although_its_id_is_forgotten(cluster: Cluster) -> None:
    """The recipe: after OffsetMismatchError, the same id at the error's `next_offset`."""
    (broker,) = cluster.start(1, {"append.ids.max": "2"})
    create_topic(cluster.bootstrap, "ledger")
    first, second, third, fourth = (uuid.uuid4() for _ in range(4))
    for offset, append_id in enumerate((first, second, third)):
        written = _append(cluster.bootstrap, offset, "x", append_id=append_id, unused_before=offset)
        assert written == (offset, False)
    broker.kill()
    broker.start()
    broker.wait_ready(1)
    assert _append(cluster.bootstrap, 1, "x", append_id=second) == (1, True)
    for expected in (0, 3):
        with pytest.raises(AppendIdUnknownError) as unknown:
            _append(cluster.bootstrap, expected, "x", append_id=first)
        assert (unknown.value.next_offset, unknown.value.append_ids_from) == (3, 1)
    with pytest.raises(OffsetMismatchError) as mismatch:
        _append(cluster.bootstrap, 2, "x", append_id=fourth, unused_before=1)
    assert (mismatch.value.next_offset, mismatch.value.append_ids_from) == (3, 1)
    assert _append(cluster.bootstrap, 3, "y", append_id=fourth, unused_before=1) == (3, False)
    with pytest.raises(InvalidRequestError, match="an id of its own"):
        _append(cluster.bootstrap, 3, "z", append_id=fourth, unused_before=1)
    assert consume(cluster.bootstrap, "ledger", 4) == [b"x", b"x", b"x", b"y"]
