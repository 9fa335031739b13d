"""The settings that the sending loop of a producer uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SenderSettings:
    """All times in ms."""

    acks: int
    is_idempotent: bool
    linger_ms: int
    max_request_size: int
    max_in_flight: int
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    delivery_timeout_ms: int
    max_block_ms: int
    request_timeout_ms: int
    bootstrap_timeout_ms: int
