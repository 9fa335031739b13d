"""The metrics of client quotas."""

from __future__ import annotations

from typing import NamedTuple

from holdfast_log.broker.metrics.row import MetricRow, counter, gauge
from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.connection_rates import ConnectionRates
from holdfast_log.broker.quotas.keys import CLIENT_KEYS, QuotaKey


class ThrottlingParts(NamedTuple):
    """What throttles clients."""

    clients: ClientQuotas
    connections: ConnectionRates


def _times(key: QuotaKey) -> MetricRow[ThrottlingParts]:
    doc = f"Requests throttled by {key}."
    name = f"holdfast_quota_{key}_throttled_total"
    return counter(name, doc, lambda parts: parts.clients.throttled[key].times)


def _total_ms(key: QuotaKey) -> MetricRow[ThrottlingParts]:
    doc = f"Throttle times by {key} together, in ms."
    name = f"holdfast_quota_{key}_throttle_ms_total"
    return counter(name, doc, lambda parts: parts.clients.throttled[key].total_ms)


QUOTA_METRICS: tuple[MetricRow[ThrottlingParts], ...] = (
    *map(_times, CLIENT_KEYS),
    *map(_total_ms, CLIENT_KEYS),
    gauge(
        "holdfast_quota_muted_connections",
        "Connections that are muted at present because of a quota.",
        lambda parts: parts.clients.muted,
    ),
    counter(
        "holdfast_quota_connections_delayed_total",
        "New connections that were read from later because of a connection creation rate.",
        lambda parts: parts.connections.delayed,
    ),
    counter(
        "holdfast_quota_connections_refused_total",
        "New connections that were closed because of a connection creation rate.",
        lambda parts: parts.connections.refused,
    ),
)
