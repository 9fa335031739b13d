"""Transactions: all of the cluster, and what is known of one. It blocks."""

from __future__ import annotations

from holdfast_log.clients.admin import Admin, TransactionDescription, TransactionListing

UNFINISHED = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states in which a transaction is open, or partitions lack its marker."""


def all_transactions(admin: Admin, _: str) -> tuple[TransactionListing, ...]:
    """Every transactional id: those first whose transactions have not ended, then by name. Raises BrokerError
    and ClientError."""
    found = admin.list_transactions()
    return tuple(sorted(found, key=lambda row: (row.state not in UNFINISHED, row.transactional_id)))


def transaction_detail(admin: Admin, transactional_id: str) -> TransactionDescription:
    """Ask for one transactional id. Raises BrokerError and ClientError."""
    return admin.describe_transactions([transactional_id])[transactional_id]


def open_for_s(detail: TransactionDescription, now_s: float) -> float | None:
    """For how long a transaction has not ended, in s; None if it has."""
    return None if detail.start_ms is None else max(0.0, now_s - detail.start_ms / 1000)


def is_overdue(detail: TransactionDescription, now_s: float) -> bool:
    """Whether a transaction has not ended within its timeout: its coordinator cannot reach a leader, or is
    about to abort it."""
    age_s = open_for_s(detail, now_s)
    return age_s is not None and age_s * 1000 > detail.timeout_ms
