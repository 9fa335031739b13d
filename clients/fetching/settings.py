"""The settings of fetching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.fetching.isolation import Isolation


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of a fetcher. All times in ms."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int
    check_crcs: bool
    batch_max_bytes: int
    skips_corrupt: bool
    """Whether the consumer goes on behind a damaged batch (`on.corrupt.batch`)."""
    reset: str
    """`auto.offset.reset`."""
    retry_backoff_ms: int
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    rack: str = ""
    """Where the consumer is: leaders in other racks may send it to followers there (KIP-392)."""
    near_ms: int = 300_000
    """How long it reads from such a follower before it asks the leader again."""
    fence: OwnerFence | None = None
    """What proves that the reader acts for the owner of its partitions."""


def fetch_settings(settings: Mapping[str, Any], fence: OwnerFence | None = None) -> FetchSettings:
    """The fetch settings among a consumer's settings, and its fence."""
    return FetchSettings(
        min_bytes=settings["fetch.min.bytes"],
        max_wait_ms=settings["fetch.max.wait.ms"],
        max_bytes=settings["fetch.max.bytes"],
        max_partition_bytes=settings["max.partition.fetch.bytes"],
        check_crcs=settings["check.crcs"],
        batch_max_bytes=settings["batch.max.bytes"],
        skips_corrupt=settings["on.corrupt.batch"] == "skip",
        reset=settings["auto.offset.reset"],
        retry_backoff_ms=settings["retry.backoff.ms"],
        isolation=Isolation[settings["isolation.level"].upper()],
        # The leader alone knows owners.
        rack="" if fence is not None else settings["client.rack"],
        near_ms=settings["metadata.max.age.ms"],
        fence=fence,
    )
