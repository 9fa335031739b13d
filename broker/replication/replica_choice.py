"""From which replica a consumer reads a partition: the leader, or a follower that is nearer to it (KIP-392).

The leader sends a consumer to an in-sync follower in the consumer's rack, if it is in another rack itself. A
follower serves every consumer that knows of followers (Fetch from version 11 on), up to its own high
watermark.

A partition that may have an exclusive reader is served by its leader only, since the leader alone knows who
owns it: followers serve topics with `single.reader=off`, where no reader keeps out others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from holdfast_log.broker.cluster.metadata_cache import MetadataCache
from holdfast_log.broker.log.settings import OFF
from holdfast_log.broker.replication.admission import NO_TOKEN
from holdfast_log.broker.replication.leadership import Leadership, RemoteReplica
from holdfast_log.broker.replication.partition import NO_EPOCH, Partition
from holdfast_log.broker.replication.partition_values import PartitionRead
from holdfast_log.broker.replication.settings import LEADER_ONLY, RACK_AWARE, SETTINGS
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.protocol.messages.fetch import FetchPartition


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class ReplicaSelection:
    """Who chooses the replica that a consumer reads from."""

    selector: Annotated[str, "replica.selector.class"] = LEADER_ONLY

    @property
    def is_on(self) -> bool:
        """Whether consumers may read from followers."""
        return self.selector == RACK_AWARE


class ConsumerPlace(NamedTuple):
    """Where a consumer is that may read from followers: its rack ("": unknown), and the listener by which it
    would reach another broker."""

    rack: str
    listener: str


def may_follow(partition: Partition, wanted: FetchPartition) -> bool:
    """Whether a follower may serve a consumer's fetch of the partition."""
    return partition.log.settings.single_reader == OFF and wanted.owner_token == NO_TOKEN


class ReplicaChoice:
    """Chooses replicas for the consumers of this broker's partitions."""

    def __init__(self, selection: ReplicaSelection, metadata: MetadataCache, local_id: int) -> None:
        self.is_on = selection.is_on
        self._metadata = metadata
        self._local_id = local_id

    def preferred(self, partition: Partition, wanted: FetchPartition, place: ConsumerPlace) -> int | None:
        """The follower from which the consumer of a fetch reads better; None if that is not so, or if this
        broker does not lead the partition in the epoch that the fetch expects."""
        role = partition.role
        if not self.is_on or not place.rack or not isinstance(role, Leadership):
            return None
        is_current = wanted.current_leader_epoch in (NO_EPOCH, partition.leader_epoch)
        if not is_current or not may_follow(partition, wanted):
            return None
        own = self._metadata.brokers.get(self._local_id)
        if own is None or own.rack == place.rack:
            return None
        offset = wanted.fetch_offset
        near = [
            remote
            for remote in role.remotes.values()
            if remote.broker_id in role.isr
            and remote.log_start_offset <= offset <= remote.log_end_offset
            and self._is_near(remote, place)
        ]
        return max(near, key=_newest).broker_id if near else None

    def _is_near(self, remote: RemoteReplica, place: ConsumerPlace) -> bool:
        broker = self._metadata.brokers.get(remote.broker_id)
        return (
            broker is not None and broker.rack == place.rack and broker.endpoint(place.listener) is not None
        )


def offsets_of(partition: Partition) -> PartitionRead:
    """What a leader tells a consumer that it sends to a follower."""
    high_watermark = partition.high_watermark
    return PartitionRead(
        high_watermark,
        partition.log.log_start_offset,
        high_watermark,
        last_stable_offset=partition.last_stable_offset,
    )


def _newest(remote: RemoteReplica) -> tuple[int, int, int]:
    return remote.log_end_offset, remote.caught_up_ms, remote.broker_id
