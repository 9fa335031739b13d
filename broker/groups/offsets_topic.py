"""Creates the topic `__consumer_offsets` at the first lookup of a group, and finds groups' coordinators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred, succeed

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.settings import OffsetsTopicSettings
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC, partition_of_group
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig

_log = logging.getLogger(__name__)


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


class OffsetsTopic:
    """Maps groups to their coordinators. `create` has the cluster's controller create topics."""

    def __init__(
        self, metadata: MetadataCache, create: Callable[[list[str]], Deferred[dict[str, ErrorCode]]]
    ) -> None:
        self._metadata = metadata
        self._create = create
        self._waiting: list[Deferred[None]] | None = None
        self._last_error: ErrorCode | None = None

    def partition_of(self, group_id: str) -> int | None:
        """The partition that stores a group; None while the topic does not exist."""
        topic = self._metadata.topics.get(OFFSETS_TOPIC)
        return None if topic is None else partition_of_group(group_id, len(topic.partitions))

    def leader_of(self, group_id: str) -> int:
        """The broker that coordinates a group. Raises COORDINATOR_NOT_AVAILABLE if there is none."""
        partition = self.partition_of(group_id)
        if partition is None:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{OFFSETS_TOPIC} does not exist yet"
                if self._last_error is None
                else f"the controller could not create {OFFSETS_TOPIC}: {self._last_error.name}",
            )
        known = self._metadata.partition(OFFSETS_TOPIC, partition)
        if known is None or not self._metadata.is_live(known.leader):
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{OFFSETS_TOPIC}-{partition} has no leader",
            )
        return known.leader

    def ensure(self) -> Deferred[None]:
        """Fires when the topic exists, or this attempt to create it has failed. Never fails."""
        if OFFSETS_TOPIC in self._metadata.topics:
            return succeed(None)
        done: Deferred[None] = Deferred()
        if self._waiting is None:
            self._waiting = [done]
            self._create([OFFSETS_TOPIC]).addCallback(self._created)
        else:
            self._waiting.append(done)
        return done

    def _created(self, errors: Mapping[str, ErrorCode]) -> None:
        error: ErrorCode | None = errors[OFFSETS_TOPIC]
        if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            error = None
        elif error is not self._last_error:
            _log.warning(
                "The controller could not create %s: %s. Consumer groups cannot work until it exists; it "
                "needs as many live brokers as offsets.topic.replication.factor, and that must not be below "
                "min.insync.replicas",
                OFFSETS_TOPIC,
                error,
            )
        self._last_error = error
        waiting, self._waiting = self._waiting or [], None
        for done in waiting:
            done.callback(None)
