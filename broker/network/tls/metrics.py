"""The metrics of TLS."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.broker.metrics.row import MetricRow, Sample, counter, gauge, gauges
from holdfast_log.broker.network.tls.listeners import TlsListeners


def _days_left(tls: TlsListeners) -> Iterator[Sample]:
    for identity in tls:
        yield Sample((identity.listener,), tls.days_left(identity))


TLS_METRICS: tuple[MetricRow[TlsListeners], ...] = (
    gauges(
        "holdfast_certificate_days_left",
        "Days until the first of the certificates that a listener shows expires; negative once it has.",
        ("listener",),
        _days_left,
    ),
    gauge(
        "holdfast_tls_handshakes",
        "TLS handshakes of clients under way.",
        lambda tls: len(tls.accepting),
    ),
    counter(
        "holdfast_tls_handshakes_ended_total",
        "TLS handshakes of clients that took too long, or gave way to newer ones.",
        lambda tls: tls.accepting.ended,
    ),
)
