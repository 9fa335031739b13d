"""Counts reach OpenTelemetry's readers, and trace context passes through the headers of records."""

from __future__ import annotations

import pytest

from holdfast_log.clients.consumer import Consumer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from holdfast_log.clients.feedback.opentelemetry_adapter import (
    observe_clients,
    trace_context,
    with_trace_context,
)

SPAN = SpanContext(0x1234, 0x56, is_remote=False, trace_flags=TraceFlags(1))
SENT = b"00-00000000000000000000000000001234-0000000000000056-01"


def test_counts_of_several_clients_are_observed() -> None:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    producers = {
        name: Producer({"bootstrap.servers": cluster.bootstrap}, network=cluster, is_threaded=False)
        for name in ("first", "second")
    }
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader]).get_meter("test")
    observe_clients({name: producer.feedback for name, producer in producers.items()}, meter)
    producers["second"].send(Message("flights", value="v"))
    producers["second"].flush()

    data = reader.get_metrics_data()
    assert data is not None
    points = {
        (metric.name, *sorted((point.attributes or {}).items())): point.value
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }
    acknowledged = "holdfast.records_acknowledged"
    assert points[acknowledged, ("client", "first")] == 0
    assert points[acknowledged, ("client", "second")] == 1
    assert points["holdfast.connection.apis.requests", ("api", "Produce"), ("client", "second")] == 1
    assert points["holdfast.connection.brokers.opened", ("broker", "1"), ("client", "second")] == 1


def test_trace_context_passes_through_a_topic() -> None:
    cluster = FakeCluster()
    cluster.add_topic("flights")
    producer = Producer({"bootstrap.servers": cluster.bootstrap}, network=cluster, is_threaded=False)
    context = trace.set_span_in_context(NonRecordingSpan(SPAN))
    old = (("traceparent", b"old"), ("other", b"kept"))

    message = with_trace_context(Message("flights", value="v", headers=old), context)
    assert message.headers == (("other", b"kept"), ("traceparent", SENT))
    producer.send(message)
    producer.flush()

    settings = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings, network=cluster)
    consumer.add_topic("flights")
    (record,) = consumer.poll(1000)
    reader = InMemoryMetricReader()
    observe_clients({"reader": consumer.feedback}, MeterProvider([reader]).get_meter("test"))
    assert '"name": "holdfast.lag"' in reader.get_metrics_data().to_json()  # type: ignore[union-attr]
    found = trace.get_current_span(trace_context(record.headers)).get_span_context()
    assert (found.trace_id, found.span_id, found.is_remote) == (SPAN.trace_id, SPAN.span_id, True)


@pytest.mark.parametrize("headers", [(), (("traceparent", None),), (("traceparent", b"\xff"),)])
def test_headers_without_a_trace_leave_the_context_as_it_is(
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    context = trace.set_span_in_context(NonRecordingSpan(SPAN))

    assert trace.get_current_span(trace_context(headers, context)).get_span_context() == SPAN
    message = with_trace_context(Message("flights", value="v"))
    assert message.headers == ()
