"""Which transactions a client asks to be listed (ListTransactions, KIP-664 and KIP-994)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from holdfast_log.coordinator.transactions.records import Transaction
from holdfast_log.coordinator.transactions.states import TransactionState


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """`states` None and no `producer_ids` mean all. Those that have been open for up to `open_for_ms` are
    left out, unless it is below 0."""

    states: Collection[TransactionState] | None
    producer_ids: Collection[int]
    open_for_ms: int

    def has(self, transaction: Transaction, now_ms: int) -> bool:
        """Whether the transaction is listed at this time, in ms since the epoch."""
        return (
            (self.states is None or transaction.state in self.states)
            and (not self.producer_ids or transaction.producer_id in self.producer_ids)
            and (self.open_for_ms < 0 or now_ms - transaction.started_ms > self.open_for_ms)
        )
