"""The features that this broker announces in its answer to ApiVersions (KIP-584): its own beyond Kafka, and
the version of transactions, on which the controller decides by what all brokers' files say."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_log.coordinator.transactions.epochs import BUMPING_VERSION
from holdfast_log.coordinator.znodes.brokers import TRANSACTION_VERSION
from holdfast_log.protocol.api import Api
from holdfast_log.protocol.fields import Versions

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
    "holdfast.owned.transactions": (1, 1),
    TRANSACTION_VERSION: (1, 2),
}
"""The first and last version of each feature."""


def finalized_features(transaction_version: int) -> dict[str, int]:
    """The version of each feature that the whole cluster has decided on; 0 is not announced."""
    return {TRANSACTION_VERSION: transaction_version} if transaction_version else {}


def advertised_versions(api: Api, transaction_version: int) -> Versions:
    """The versions of an API that clients see. Those that belong to transaction.version 2 only with
    that: a client that takes the newest version, whatever the features are, would mistake them."""
    last = api.advertised.last
    if transaction_version < BUMPING_VERSION:
        last = api.last_without_transactions_2(last)
    return Versions(api.advertised.first, last)
