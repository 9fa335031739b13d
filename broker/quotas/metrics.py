"""The metrics of client quotas: one row each, read on demand. No broker exports them yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast_log.broker.quotas.client_quotas import ClientQuotas
from holdfast_log.broker.quotas.connection_rates import ConnectionRates
from holdfast_log.broker.quotas.keys import CLIENT_KEYS, QuotaKey


@dataclass(frozen=True, slots=True)
class QuotaMetric:
    """One metric. A counter (`is_counter`) only rises, from 0 at the start of the broker; others are present
    values."""

    name: str
    doc: str
    is_counter: bool
    read: Callable[[ClientQuotas, ConnectionRates], int]


def _times(key: QuotaKey) -> QuotaMetric:
    doc = f"Requests throttled by {key}."
    name = f"holdfast_quota_{key}_throttled_total"
    return QuotaMetric(name, doc, True, lambda clients, _: clients.throttled[key].times)


def _total_ms(key: QuotaKey) -> QuotaMetric:
    doc = f"Throttle times by {key} together, in ms."
    name = f"holdfast_quota_{key}_throttle_ms_total"
    return QuotaMetric(name, doc, True, lambda clients, _: clients.throttled[key].total_ms)


QUOTA_METRICS: tuple[QuotaMetric, ...] = (
    *map(_times, CLIENT_KEYS),
    *map(_total_ms, CLIENT_KEYS),
    QuotaMetric(
        "holdfast_quota_muted_connections",
        "Connections that are muted at present because of a quota.",
        False,
        lambda clients, _: clients.muted,
    ),
    QuotaMetric(
        "holdfast_quota_connections_delayed_total",
        "New connections that were read from later because of a connection creation rate.",
        True,
        lambda _, rates: rates.delayed,
    ),
    QuotaMetric(
        "holdfast_quota_connections_refused_total",
        "New connections that were closed because of a connection creation rate.",
        True,
        lambda _, rates: rates.refused,
    ),
)


def read_quota_metrics(clients: ClientQuotas, rates: ConnectionRates) -> dict[str, int]:
    """All metrics, by name."""
    return {metric.name: metric.read(clients, rates) for metric in QUOTA_METRICS}
