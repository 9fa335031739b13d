"""The broker's HTTP server for metrics and health, from before its logs are loaded until it has stopped.

Imported only where `metrics.http.listener` is set, because it brings Twisted's web server and
prometheus-client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector
from twisted.internet.defer import Deferred

from holdfast_log.broker.metrics.collector import RowCollector
from holdfast_log.broker.metrics.page import MetricsPage
from holdfast_log.broker.metrics.server import MonitoringServer
from holdfast_log.broker.wiring.metrics import MeasuredParts, bound_rows
from holdfast_log.coordinator.repeated_log import RepeatedLog


def monitoring_server(
    reactor: Any,
    parts: Callable[[], MeasuredParts],
    unready: Callable[[], Sequence[str]],
    prepare: Callable[[], Deferred[None]],
) -> MonitoringServer:
    """The server of one broker, not listening yet. `parts` returns what there is of the broker at present;
    `prepare` is called before each page."""
    registry = CollectorRegistry()
    registry.register(RowCollector(lambda: bound_rows(parts()), RepeatedLog(reactor)))
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    return MonitoringServer(reactor, MetricsPage(registry, reactor, prepare).make, unready)
