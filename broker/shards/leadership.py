"""Coordinates what is kept in the partitions of an internal topic that this broker leads."""

from __future__ import annotations

from typing import Protocol

from twisted.internet.defer import DeferredLock

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.replication.leadership import Leadership
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.broker.shards.partition_log import PartitionLog, ShardLogSettings
from holdfast_log.broker.workers import Workers
from holdfast_log.coordinator.shards.log import ShardLog


class ShardService(Protocol):
    """Runs the shards of a broker."""

    def lead(self, partition: int, log: ShardLog) -> None:
        """This broker leads a partition in a new leader epoch: load its shard."""
        ...

    def resign(self, partition: int) -> None:
        """This broker no longer leads the partition. Harmless if it did not lead it."""
        ...


class ShardLeadership:
    """Starts and stops the shards of `topic`. Call `role_changed` when a partition's role has changed."""

    def __init__(
        self,
        topic: str,
        service: ShardService,
        replicas: Replicas,
        metadata: MetadataCache,
        workers: Workers,
        settings: ShardLogSettings,
    ) -> None:
        self._topic = topic
        self._service = service
        self._replicas = replicas
        self._metadata = metadata
        self._workers = workers
        self._settings = settings
        self._reading = DeferredLock()

    def role_changed(self, partition: Partition) -> None:
        """Call when this broker begins a leader epoch of the partition, or may have stopped leading it."""
        if partition.topic != self._topic:
            return
        if isinstance(partition.role, Leadership):
            log = PartitionLog(
                partition, self._replicas, self._metadata, self._workers, self._reading, self._settings
            )
            self._service.lead(partition.index, log)
        else:
            self._service.resign(partition.index)
