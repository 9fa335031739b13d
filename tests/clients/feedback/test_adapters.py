"""The adapters that pass events to `logging` and counts to Prometheus."""

from __future__ import annotations

import logging

import pytest

from holdfast_log.clients.feedback.adapters import PrometheusCollector, log_events
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster


def test_events_are_logged_and_those_with_an_error_as_warnings(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    cluster.brokers[1].fail_next(ProduceRequest, ErrorCode.REQUEST_TIMED_OUT)
    caplog.set_level(logging.INFO, "orders")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap},
        network=cluster,
        is_threaded=False,
        on_event=log_events(logging.getLogger("orders")),
    )
    producer.send(Message("flights", value="v"))
    producer.flush()

    levels = {message.partition("(")[0]: level for _, level, message in caplog.record_tuples}
    assert levels["ConnectionOpened"] == logging.INFO
    assert levels["BatchRetried"] == logging.WARNING


def test_counts_of_several_clients_are_exposed_to_prometheus() -> None:
    exposition = pytest.importorskip("prometheus_client")
    cluster = FakeCluster()
    cluster.add_topic("flights")
    clients = {}
    for name in ("orders", "audit"):
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap}, network=cluster.network(), is_threaded=False
        )
        producer.send(Message("flights", value="v"))
        producer.flush()
        clients[name] = producer.feedback
    registry = exposition.CollectorRegistry()
    registry.register(PrometheusCollector(clients))

    text = exposition.generate_latest(registry).decode()
    assert 'holdfast_records_acknowledged{client="orders"} 1.0' in text
    assert 'holdfast_records_acknowledged{client="audit"} 1.0' in text
    assert text.count("# TYPE holdfast_records_acknowledged gauge") == 1
    assert 'holdfast_connection_apis_Produce_requests{client="orders"} 1.0' in text
