"""The features beyond Kafka that this broker announces in its answer to ApiVersions (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping

FEATURES: Mapping[str, tuple[int, int]] = {
    "holdfast.groups": (1, 1),
    "holdfast.own": (1, 1),
    "holdfast.producer.access": (1, 1),
    "holdfast.expected.offset": (1, 1),
    "holdfast.key.versions": (1, 1),
    "holdfast.append.ids": (1, 2),
    "holdfast.single.reader": (1, 1),
    "holdfast.tokens": (1, 1),
    "holdfast.fences": (1, 1),
}
"""The first and last version of each feature."""
