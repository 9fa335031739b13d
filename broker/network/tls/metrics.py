"""The metrics of TLS."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_log.broker.metrics.row import MetricRow, Sample, counters, gauges
from holdfast_log.broker.network.tls.listeners import TlsListeners


def _days_left(tls: TlsListeners) -> Iterator[Sample]:
    for identity in tls:
        yield Sample((identity.listener,), tls.days_left(identity))


def _connections(tls: TlsListeners) -> Iterator[Sample]:
    for name, handshakes in tls.accepting.items():
        yield Sample((name, "kernel"), handshakes.succeeded_kernel)
        yield Sample((name, "openssl"), handshakes.succeeded_openssl)


TLS_METRICS: tuple[MetricRow[TlsListeners], ...] = (
    gauges(
        "holdfast_certificate_days_left",
        "Days until the first of the certificates that a listener shows expires; negative once it has.",
        ("listener",),
        _days_left,
    ),
    gauges(
        "holdfast_tls_handshakes",
        "TLS handshakes under way that clients or other brokers have begun.",
        ("listener",),
        lambda tls: [Sample((name,), len(handshakes)) for name, handshakes in tls.accepting.items()],
    ),
    counters(
        "holdfast_tls_handshakes_ended_total",
        "TLS handshakes that the broker has ended: they took too long, or gave way to newer ones.",
        ("listener",),
        lambda tls: [Sample((name,), handshakes.ended) for name, handshakes in tls.accepting.items()],
    ),
    counters(
        "holdfast_tls_connections_total",
        "Connections over TLS that clients or other brokers have opened, by who encrypts what is sent on "
        "them: `kernel` (ssl.kernel.tls) or `openssl`.",
        ("listener", "encryption"),
        _connections,
    ),
)
