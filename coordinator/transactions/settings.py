"""The settings of the transaction coordinator, as plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Limits of the transaction coordinator; each field is the setting that its comment names."""

    max_timeout_ms: int = 15 * 60 * 1_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1_000
    """transactional.id.expiration.ms"""
    version: int = 1
    """transaction.version: from 1 on records are flexible."""
    state_bytes_max: int = 64 << 20
    """transaction.state.max.bytes: of all transactional ids of a broker."""
    source_bytes_max: int = 16 << 20
    """transaction.state.max.bytes.per.source: of those of one principal or address."""
    partitions_max: int = 10_000
    """transaction.max.partitions: of one open transaction."""
