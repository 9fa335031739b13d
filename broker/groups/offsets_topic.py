"""Creates the topic `__consumer_offsets` at the first lookup of a group, and finds groups' coordinators."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.internal_topic import InternalTopic
from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.settings import OffsetsTopicSettings
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig


def offsets_topic(settings: OffsetsTopicSettings) -> CreatableTopic:
    """`__consumer_offsets` as the controller is asked to create it."""
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings.segment_bytes),
    }
    return CreatableTopic(
        name=OFFSETS_TOPIC,
        num_partitions=settings.partitions,
        replication_factor=settings.replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )


class OffsetsTopic(InternalTopic):
    """Maps groups to their coordinators. `create` has the cluster's controller create topics."""

    def __init__(
        self, metadata: MetadataCache, create: Callable[[list[str]], Deferred[dict[str, ErrorCode]]]
    ) -> None:
        super().__init__(
            OFFSETS_TOPIC,
            metadata,
            create,
            replicas="offsets.topic.replication.factor",
            user="Consumer groups",
        )
