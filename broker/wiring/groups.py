"""Consumer groups wired into a broker: the service, its partitions, and the handlers that ask it."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from broker.dispatch import AnyHandler
from broker.groups.forwarding import Forwarding, SendToBroker
from broker.groups.offsets_topic import OffsetsTopic
from broker.groups.partition_log import PartitionLog, PartitionLogSettings
from broker.groups.reader_claims import ReaderClaims
from broker.groups.settings import group_config
from broker.handlers.consumer_heartbeat import ConsumerHeartbeatHandler
from broker.handlers.create_group import CreateGroupHandler
from broker.handlers.delete_group import DeleteGroupHandler
from broker.handlers.delete_groups import DeleteGroupsHandler
from broker.handlers.describe_groups import DescribeGroupsHandler
from broker.handlers.find_coordinator import FindCoordinatorHandler
from broker.handlers.heartbeat import HeartbeatHandler
from broker.handlers.join_group import JoinGroupHandler
from broker.handlers.leave_group import LeaveGroupHandler
from broker.handlers.list_consumer_groups import ListConsumerGroupsHandler
from broker.handlers.list_groups import ListGroupsHandler
from broker.handlers.offset_commit import OffsetCommitHandler
from broker.handlers.offset_delete import OffsetDeleteHandler
from broker.handlers.offset_fetch import OffsetFetchHandler
from broker.handlers.register_consumer import RegisterConsumerHandler
from broker.handlers.rewind_consumer import RewindConsumerHandler
from broker.handlers.sync_group import SyncGroupHandler
from broker.metadata import MetadataCache
from broker.replication.leadership import Leadership
from broker.replication.partition import Partition
from broker.replication.replicas import Replicas
from broker.workers import Workers
from coordinator.clock import Clock
from coordinator.groups.partitions import OFFSETS_TOPIC
from coordinator.groups.service import GroupService
from protocol.batches import Compression
from protocol.errors import ErrorCode


class Groups:
    """The consumer groups of one broker.

    `create_topics` has the controller make topics, `send` asks other brokers. So does `send_claims`, and what
    it asks is in nobody's way: who reads which partitions of groups with single readers.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        clock: Clock,
        monotonic_s: Callable[[], float],
        workers: Workers,
        chance: random.Random,
        metadata: MetadataCache,
        replicas: Replicas,
        *,
        create_topics: Callable[[list[str]], Deferred[dict[str, ErrorCode]]],
        send: SendToBroker,
        send_claims: SendToBroker,
        default_listener: str,
    ) -> None:
        self._metadata = metadata
        self._replicas = replicas
        self._workers = workers
        self._default_listener = default_listener
        self._clock = clock
        self._send_claims = send_claims
        self._claim_timeout_ms: int = settings["group.claim.timeout.ms"]
        self._reading = DeferredLock()
        self._log_settings = PartitionLogSettings(
            Compression(settings["offsets.topic.compression.codec"]), settings["offsets.load.buffer.size"]
        )
        self.topic = OffsetsTopic(metadata, create_topics)
        self.forwarding = Forwarding(replicas.local_id, self.topic, metadata, send)
        self.service = GroupService(
            group_config(settings),
            clock,
            monotonic_s,
            partition_of=self.topic.partition_of,
            new_id=lambda: str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            partition_count=self._partition_count,
            commit_timeout_ms=settings["offsets.commit.timeout.ms"],
            new_claimer=self._new_claimer,
        )
        metadata.add_listener(self.service)
        replicas.add_role_listener(self._role_changed)

    def handlers(self) -> list[AnyHandler]:
        service, metadata, listener = self.service, self._metadata, self._default_listener
        return [
            FindCoordinatorHandler(self.topic, metadata, listener),
            JoinGroupHandler(service),
            SyncGroupHandler(service),
            HeartbeatHandler(service),
            LeaveGroupHandler(service),
            OffsetCommitHandler(service, metadata),
            OffsetFetchHandler(service),
            OffsetDeleteHandler(service, metadata),
            DescribeGroupsHandler(service),
            ListGroupsHandler(service),
            DeleteGroupsHandler(service),
            CreateGroupHandler(service, self.forwarding),
            DeleteGroupHandler(service),
            ListConsumerGroupsHandler(service, self.forwarding, listener),
            RegisterConsumerHandler(service),
            ConsumerHeartbeatHandler(service),
            RewindConsumerHandler(service),
        ]

    def _new_claimer(self) -> ReaderClaims:
        return ReaderClaims(self._clock, self._leader_of, self._send_claims, self._claim_timeout_ms)

    def _leader_of(self, topic: str, index: int) -> int | None:
        """The leader of a partition, -1 while it has none; None where there is no such partition."""
        known = self._metadata.partition(topic, index)
        return None if known is None else known.leader

    def _partition_count(self, topic: str) -> int:
        known = self._metadata.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def _role_changed(self, partition: Partition) -> None:
        if partition.topic != OFFSETS_TOPIC:
            return
        if isinstance(partition.role, Leadership):
            log = PartitionLog(
                partition, self._replicas, self._metadata, self._workers, self._reading, self._log_settings
            )
            self.service.lead(partition.index, log)
        else:
            self.service.resign(partition.index)
