"""The features that this broker announces in its answer to ApiVersions (KIP-584): its own beyond Kafka, and
the version of transactions."""

from __future__ import annotations

from collections.abc import Mapping

TRANSACTION_VERSION = "transaction.version"
"""Kafka's feature. It is announced up to 1: in 2 Produce adds partitions to a transaction (KIP-890), which
this broker's Produce does not do."""

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
    TRANSACTION_VERSION: (1, 1),
}
"""The first and last version of each feature."""


def finalized_features(transaction_version: int) -> dict[str, int]:
    """The version of each feature that the whole cluster has decided on; 0 is not announced."""
    return {TRANSACTION_VERSION: transaction_version} if transaction_version else {}
