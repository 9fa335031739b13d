"""Coordinates the groups of the partitions of `__consumer_offsets` that this broker leads."""

from __future__ import annotations

from twisted.internet.defer import DeferredLock

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.groups.partition_log import PartitionLog
from holdfast_log.broker.groups.settings import PartitionLogSettings
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.groups.partitions import OFFSETS_TOPIC
from holdfast_log.coordinator.groups.service import GroupService


class GroupLeadership:
    """Starts and stops coordinating groups. Call `role_changed` when a partition's role has changed."""

    def __init__(
        self,
        service: GroupService,
        replicas: Replicas,
        metadata: MetadataCache,
        workers: Workers,
        settings: PartitionLogSettings,
    ) -> None:
        self._service = service
        self._replicas = replicas
        self._metadata = metadata
        self._workers = workers
        self._settings = settings
        self._reading = DeferredLock()

    def role_changed(self, partition: Partition) -> None:
        """Call when this broker begins a leader epoch of the partition, or may have stopped leading it."""
        if partition.topic != OFFSETS_TOPIC:
            return
        if isinstance(partition.role, Leadership):
            log = PartitionLog(
                partition, self._replicas, self._metadata, self._workers, self._reading, self._settings
            )
            self._service.lead(partition.index, log)
        else:
            self._service.resign(partition.index)
