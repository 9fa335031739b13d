"""What the fetching side of a consumer needs to know of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clients.fetching.isolation import Isolation


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """All times in ms."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int
    check_crcs: bool
    batch_max_bytes: int
    reset: str
    """`auto.offset.reset`."""
    retry_backoff_ms: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED


def fetch_settings(settings: Mapping[str, Any]) -> FetchSettings:
    """Those of a consumer's settings that concern fetching."""
    return FetchSettings(
        min_bytes=settings["fetch.min.bytes"],
        max_wait_ms=settings["fetch.max.wait.ms"],
        max_bytes=settings["fetch.max.bytes"],
        max_partition_bytes=settings["max.partition.fetch.bytes"],
        check_crcs=settings["check.crcs"],
        batch_max_bytes=settings["batch.max.bytes"],
        reset=settings["auto.offset.reset"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        isolation=Isolation[settings["isolation.level"].upper()],
    )
