"""A client's counters, printed line by line."""

from __future__ import annotations

import pytest

from holdfast_log.clients.feedback.snapshots import counts
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.tools.feedback_table import show_feedback
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.test_consumer import consumer_on, fill, read


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster(2)
    for partition in cluster.add_topic("flights", 2):
        fill(partition, 100)
    return cluster


def test_counters_of_apis_brokers_and_partitions_have_dotted_names(cluster: FakeCluster) -> None:
    consumer = consumer_on(cluster)
    consumer.add_topic("flights")
    read(consumer, 200)
    feedback = consumer.feedback()

    found = dict(counts(feedback))

    assert len(found) == len(list(counts(feedback))), "no name comes twice"
    assert found["records"] == 200
    assert found["lag.flights-0"] == found["lag.flights-1"] == 0
    assert found["connection.apis.Fetch.responses"] == feedback.fetches
    assert found["connection.brokers.2.bytes_in"] == feedback.connection.brokers[1].bytes_in
    assert found["connection.total.latency.max_ms"] == feedback.connection.total.latency.max_ms


def test_the_clients_own_counters_come_first_and_unknown_values_are_dashes(
    cluster: FakeCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap}, network=cluster, is_threaded=False)
    show_feedback(producer.feedback())
    producer.send(Message("flights", value=bytes(200)))
    producer.flush()
    show_feedback(producer.feedback())

    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    starts = [number for number, line in enumerate(lines) if line == ["metric", "value"]]
    assert starts[0] == 0 and len(starts) == 2
    assert ["batch_fill", "-"] in lines[: starts[1]]
    assert ["batch_fill", f"{producer.feedback().batch_fill:.3f}"] in lines[starts[1] :]
    assert lines[1] == ["records_waiting", "0"] and lines[-1][0].startswith("connection.brokers.")
