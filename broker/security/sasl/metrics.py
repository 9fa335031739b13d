"""The metrics of SASL, under the names of Kafka's.

Kafka counts by network thread too. Here one thread serves all connections: its number is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast_log.broker.metrics.row import MetricRow, Sample, counters
from holdfast_log.broker.security.sasl.gates import LoginCounts, SaslGates

_LABELS = ("listener", "networkProcessor")
_THREAD = "0"
_PREFIX = "kafka_server_socket_server_metrics_"


def _row(name: str, doc: str, count: Callable[[LoginCounts], int]) -> MetricRow[SaslGates]:
    def samples(gates: SaslGates) -> Iterator[Sample]:
        for listener, counts in gates.counts.items():
            yield Sample((listener, _THREAD), count(counts))

    return counters(f"{_PREFIX}{name}", doc, _LABELS, samples)


SASL_METRICS: tuple[MetricRow[SaslGates], ...] = (
    _row(
        "successful_authentication_total",
        "Connections to a SASL listener whose clients have authenticated.",
        lambda counts: counts.succeeded,
    ),
    _row(
        "failed_authentication_total",
        "Connections to a SASL listener closed because their clients have not authenticated as they should, "
        "or not in time.",
        lambda counts: counts.failed,
    ),
    _row(
        "successful_reauthentication_total",
        "Authentications of clients that were known already, on the same connection.",
        lambda counts: counts.renewed,
    ),
    _row(
        "failed_reauthentication_total",
        "Connections closed because their clients have not authenticated again as they should, or not before "
        "their session ended.",
        lambda counts: counts.not_renewed,
    ),
)
