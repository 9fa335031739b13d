"""The metrics of transactions that this broker coordinates."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_log.broker.metrics.row import MetricRow, gauge
from holdfast_log.broker.transactions.markers import MarkerSender
from holdfast_log.coordinator.transactions.service import TransactionService
from holdfast_log.coordinator.transactions.states import TransactionState


@dataclass(frozen=True, slots=True)
class TransactionSight:
    """What is measured."""

    service: TransactionService
    sender: MarkerSender


def _in_state(state: TransactionState) -> MetricRow[TransactionSight]:
    return gauge(
        f"holdfast_transactions_{state.name.lower()}",
        f"Transactional ids in the state {state.title} that this broker coordinates.",
        lambda sight: sight.service.states()[state],
    )


_LASTING = tuple(
    state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
)

TRANSACTION_METRICS: tuple[MetricRow[TransactionSight], ...] = (
    gauge(
        "kafka_coordinator_transaction_transactionmarkerchannelmanager_unknowndestinationqueuesize",
        "End markers of transactions that wait to be sent to the leaders of partitions.",
        lambda sight: sight.sender.pending,
    ),
    gauge(
        "holdfast_transaction_state_bytes",
        "Bytes in memory of the transactional ids that this broker coordinates, counted as for "
        "transaction.state.max.bytes.",
        lambda sight: sight.service.state_bytes,
    ),
    gauge(
        "holdfast_transaction_state_bytes_available",
        "Bytes left of transaction.state.max.bytes; at 0 new transactional ids and partitions are refused.",
        lambda sight: sight.service.state_bytes_left,
    ),
    gauge(
        "holdfast_transactions_longest_open_seconds",
        "For how long the oldest transaction that this broker coordinates is open, or lacks markers, in "
        "seconds; 0 if there is none.",
        lambda sight: sight.service.longest_open_ms() / 1000,
    ),
    *map(_in_state, _LASTING),
)
