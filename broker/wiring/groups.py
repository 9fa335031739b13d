"""Builds the consumer groups that this broker coordinates."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.forwarding import Forwarding, SendToBroker
from holdfast_log.broker.groups.lag import GroupLag, LagSettings
from holdfast_log.broker.groups.offsets_topic import OffsetsTopic
from holdfast_log.broker.groups.reader_claims import ReaderClaims
from holdfast_log.broker.groups.settings import CoordinatorTimeouts, PartitionLogSettings, group_settings
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.setting_groups import read_group
from holdfast_log.broker.shards.leadership import ShardLeadership
from holdfast_log.broker.shards.partition_log import ShardLogSettings
from holdfast_log.broker.wiring.surroundings import Surroundings
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.service import GroupService
from holdfast_log.protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class GroupParts:
    """The consumer groups of one broker."""

    topic: OffsetsTopic
    forwarding: Forwarding
    service: GroupService
    leadership: ShardLeadership
    lag: GroupLag


def build_groups(
    settings: Mapping[str, Any],
    around: Surroundings,
    metadata: MetadataCache,
    replicas: Replicas,
    *,
    create_topics: Callable[[list[str]], Deferred[dict[str, ErrorCode]]],
    send: SendToBroker,
    send_claims: SendToBroker,
) -> GroupParts:
    """`create_topics` has the controller create topics. `send` sends requests to other brokers; `send_claims`
    does so on its own channels, so that a leader that does not answer claims delays no other request."""
    topic = OffsetsTopic(metadata, create_topics)
    timeouts = read_group(CoordinatorTimeouts, settings)

    def new_claimer() -> ReaderClaims:
        return ReaderClaims(around.clock, metadata.leader_of, send_claims, timeouts.claim_timeout_ms)

    service = GroupService(
        group_settings(settings),
        around.clock,
        around.date_ms,
        partition_of=topic.partition_of,
        new_id=lambda: str(uuid.UUID(int=around.random.getrandbits(128), version=4)),
        partition_count=metadata.partition_count,
        commit_timeout_ms=timeouts.commit_timeout_ms,
        cluster=metadata,
        new_claimer=new_claimer,
    )
    log_settings = read_group(PartitionLogSettings, settings)
    return GroupParts(
        topic=topic,
        forwarding=Forwarding(replicas.local_id, topic, metadata, send),
        service=service,
        leadership=ShardLeadership(
            OFFSETS_TOPIC,
            service,
            replicas,
            metadata,
            around.workers,
            ShardLogSettings(log_settings.codec, log_settings.load_bytes),
        ),
        lag=GroupLag(service, replicas, metadata, send, around.clock, read_group(LagSettings, settings)),
    )
