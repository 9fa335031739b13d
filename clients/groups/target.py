"""The partitions that a coordinator wants a member to have, which it names by the ids of their topics."""

from __future__ import annotations

from uuid import UUID

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.groups.consumer_requests import PartitionOfId
from holdfast_log.protocol.topic_partition import TopicPartition


class TargetAssignment:
    """A member's target, with the names of its topics. The metadata is asked for those that are missing."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._wanted: frozenset[PartitionOfId] = frozenset()
        self._names: dict[UUID, str] = {}
        """A name is kept, whatever later metadata say: a broker that is behind may not know the topic."""
        self._seen_update = -1

    def replace(self, wanted: frozenset[PartitionOfId]) -> None:
        """The coordinator has assigned these partitions, and no others."""
        ids = {each.topic_id for each in wanted}
        self._wanted = wanted
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in ids}
        self._metadata.forget_ids()
        self._look()

    def has_learnt(self) -> bool:
        """Whether names have become known since this was last asked."""
        if not self.unnamed or self._seen_update == self._metadata.update_count:
            return False
        before = len(self._names)
        self._look()
        return len(self._names) > before

    @property
    def unnamed(self) -> set[UUID]:
        """The topics whose names are not known yet."""
        return {each.topic_id for each in self._wanted} - self._names.keys()

    def named(self) -> dict[TopicPartition, PartitionOfId]:
        """The partitions whose names are known."""
        return {
            TopicPartition(self._names[each.topic_id], each.number): each
            for each in sorted(self._wanted)
            if each.topic_id in self._names
        }

    def _look(self) -> None:
        self._seen_update = self._metadata.update_count
        unnamed = self.unnamed
        self._names |= {info.id: name for name, info in self._metadata.topics.items() if info.id in unnamed}
        for topic_id in self.unnamed:
            self._metadata.want_id(topic_id)
