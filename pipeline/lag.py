"""How many records a streaming query has not read yet, from the progress that Spark reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from holdfast_log.pipeline.stream import from_json


def lag(progress: Any) -> dict[str, int]:
    """The lag of each partition, in offsets, after the batch that `progress` describes.

    `progress` is a query's `lastProgress`, or one of its `recentProgress`. Sources other than Holdfast's and
    Kafka's are left out. The lag is 0 where the last look-up found nothing behind the batch.
    """
    behind: dict[str, int] = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for partition, offset in (latest or {}).items():
            behind[str(partition)] = max(0, offset - (end or {}).get(partition, 0))
    return behind


def _offsets(stored: str | Mapping[str, Any] | None) -> dict[Any, int] | None:
    offsets = json.loads(stored) if isinstance(stored, str) else stored
    if not isinstance(offsets, dict) or not all(isinstance(row, dict) for row in offsets.values()):
        return None
    return dict(from_json(offsets))
