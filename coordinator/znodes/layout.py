"""The persistent znodes of a cluster's layout, which every broker creates at start where they are missing.

The layout is that of Kafka's ZooKeeper mode, so Kafka's tools that read ZooKeeper understand a Holdfast
cluster. The other files of this folder hold each znode's path, encoder and decoder.
"""

from __future__ import annotations

from holdfast_log.coordinator.znodes.admin import DELETE_TOPICS
from holdfast_log.coordinator.znodes.brokers import BROKER_IDS
from holdfast_log.coordinator.znodes.cluster import BROKER_SEQUENCE, PRODUCER_ID_BLOCK
from holdfast_log.coordinator.znodes.configs import CONFIG, CONFIG_CHANGES, CONFIG_TYPES
from holdfast_log.coordinator.znodes.leases import LEASES
from holdfast_log.coordinator.znodes.log_dir_events import LOG_DIR_EVENTS
from holdfast_log.coordinator.znodes.topics import TOPICS

CONSUMERS = "/consumers"
ISR_CHANGES = "/isr_change_notification"
OWNED_TOPICS = "/holdfast/ownership/topics"
OWNED_NAMES = "/holdfast/ownership/names"
"""OWNED_TOPICS and OWNED_NAMES are Holdfast's own; see `coordinator.ownership.records`."""

PERSISTENT_PATHS = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    LEASES,
    OWNED_TOPICS,
    OWNED_NAMES,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""The parents of all other znodes."""
