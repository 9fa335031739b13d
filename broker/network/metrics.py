"""The metrics of connections and of the memory for requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from holdfast_log.broker.metrics.row import MetricRow, Sample, counter, gauge, gauges
from holdfast_log.broker.network.listener import Listeners
from holdfast_log.broker.network.memory import RequestMemory


def _by_listener(listeners: Listeners) -> Iterator[Sample]:
    endpoints = listeners.endpoints
    found = Counter(connection.listener for connection in listeners)
    for endpoint in () if endpoints is None else endpoints.listeners:
        yield Sample((endpoint.name,), found[endpoint.name])


CONNECTION_METRICS: tuple[MetricRow[Listeners], ...] = (
    gauges("holdfast_connections", "Open connections of clients and brokers.", ("listener",), _by_listener),
    counter(
        "holdfast_connections_accepted_total",
        "Connections accepted since the broker's start.",
        lambda listeners: listeners.accepted,
    ),
    counter(
        "holdfast_connections_refused_total",
        "Connections closed at once, because too many are open or come too fast.",
        lambda listeners: listeners.refused,
    ),
    gauge(
        "holdfast_connections_paused",
        "Connections that are not read: they have used up their budget, or are throttled.",
        lambda listeners: sum(connection.is_paused for connection in listeners),
    ),
    gauge(
        "holdfast_connections_buffered_bytes",
        "Bytes of unanswered requests and unsent responses of all connections.",
        lambda listeners: sum(connection.buffered_bytes for connection in listeners),
    ),
    gauge(
        "kafka_network_requestchannel_requestqueuesize",
        "Requests that were received and are not being handled yet.",
        lambda listeners: sum(connection.received_requests - connection.requests for connection in listeners),
    ),
    gauge(
        "kafka_network_requestchannel_responsequeuesize",
        "Requests that are being handled, whose responses have not been sent.",
        lambda listeners: sum(connection.in_flight_requests for connection in listeners),
    ),
)

MEMORY_METRICS: tuple[MetricRow[RequestMemory], ...] = (
    gauge(
        "kafka_network_socketserver_memorypoolused",
        "Bytes lent to clients' requests of 32 KiB or more, out of queued.max.request.bytes.",
        lambda memory: memory.lent_bytes,
    ),
    gauge(
        "kafka_network_socketserver_memorypoolavailable",
        "Bytes left of queued.max.request.bytes; infinite if there is no limit.",
        lambda memory: memory.left_bytes,
    ),
    gauge(
        "holdfast_request_memory_waiting",
        "Requests of 32 KiB or more that wait for memory.",
        lambda memory: memory.waiting,
    ),
)
