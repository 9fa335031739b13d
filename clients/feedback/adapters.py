"""Adapters: the events of a client for the module `logging`, and its counts for Prometheus.

    producer = Producer(properties, on_event=log_events(logging.getLogger("orders")))
    REGISTRY.register(PrometheusCollector({"orders": producer.feedback}))

Warnings about connections are logged without any adapter (`clients.feedback.connection_log`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast_log.clients.feedback.events import Event, OnEvent
from holdfast_log.clients.feedback.snapshots import counts
from holdfast_log.protocol.one_line import one_line

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def log_events(logger: logging.Logger) -> OnEvent:
    """An `on_event` that logs every event: as a warning if it has an error, else as information."""

    def log(event: Event) -> None:
        level = logging.WARNING if getattr(event, "error", None) is not None else logging.INFO
        logger.log(level, "%s", one_line(str(event)))

    return log


class PrometheusCollector:
    """A collector for `prometheus_client`: every count of `feedback()` is a gauge with the label `client`.

    `clients` maps that label's value to the method `feedback` of a client. The methods are called by the
    thread that serves Prometheus: those of producers, consumers and admin clients allow it. Needs the package
    `prometheus-client` (the extra `prometheus`).
    """

    def __init__(self, clients: Mapping[str, Callable[[], Any]]) -> None:
        self._clients = clients

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        gauges: dict[str, GaugeMetricFamily] = {}
        for client, feedback in self._clients.items():
            for name, value in counts(feedback()):
                metric = "holdfast_" + re.sub(r"\W", "_", name)
                gauge = gauges.setdefault(metric, GaugeMetricFamily(metric, name, labels=["client"]))
                if value is not None:
                    gauge.add_metric([client], value)
        yield from gauges.values()
