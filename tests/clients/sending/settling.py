"""Flushing in tests that look at the responses afterwards."""

from __future__ import annotations

from holdfast_log.clients.errors import UndeliveredError
from holdfast_log.clients.sending.producer_face import ProducerFace


def settle(producer: ProducerFace, timeout_ms: int | None = None) -> bool:
    """`producer.flush`, without its error for failures that the test has not looked at yet."""
    try:
        return producer.flush(timeout_ms)
    except UndeliveredError:
        return True
