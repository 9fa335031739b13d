"""The version of transactions that the cluster has decided on (KIP-584): the lowest of those of its brokers.

It changes once the last broker says something else, so all brokers announce the same to clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast_log.coordinator.controller.state import LiveBroker
from holdfast_log.coordinator.znodes.brokers import TRANSACTION_VERSION
from holdfast_log.coordinator.znodes.controller import FeatureRecord, FinalizedFeatures
from holdfast_log.protocol.topic_partition import TopicPartition


def decide(
    before: FeatureRecord,
    brokers: Mapping[int, LiveBroker],
    partitions_on: Callable[[int], Sequence[TopicPartition]],
) -> FeatureRecord:
    """What is decided with these live `brokers`, after `before`.

    A broker that has gone counts with what it said last while it has replicas: it may come back as it was,
    and clients that have learned of a higher version meanwhile would find that it does not announce it. A
    broker of an earlier version of Holdfast says nothing, and does not count.
    """
    versions = {each: version for each, version in before.transaction_versions.items() if each not in brokers}
    for broker_id, broker in brokers.items():
        if TRANSACTION_VERSION in broker.info.features:
            versions[broker_id] = broker.info.features[TRANSACTION_VERSION][1]
    counted = [version for each, version in versions.items() if each in brokers or partitions_on(each)]
    finalized = before.finalized
    if counted and (finalized is None or min(counted) != finalized.transaction_version):
        finalized = FinalizedFeatures(min(counted), 1 if finalized is None else finalized.epoch + 1)
    return FeatureRecord(versions, finalized)
