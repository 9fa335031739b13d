"""Topics of which a consumer without a group reads all partitions, including those added later."""

from __future__ import annotations

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.fetching.fetcher import Fetcher
from holdfast_log.clients.fetching.offsets import EARLIEST
from holdfast_log.protocol.topic_partition import TopicPartition


class PartitionDiscovery:
    """Adds the partitions that the metadata lists to the fetcher."""

    def __init__(self, metadata: Metadata, fetcher: Fetcher) -> None:
        self._metadata = metadata
        self._fetcher = fetcher
        self._topics: dict[str, bool] = {}  # whether its partitions have been added once
        self._seen_update = 0

    def add(self, topic: str) -> None:
        """Begin to read all partitions of a topic."""
        self._topics.setdefault(topic, False)
        self._metadata.want(topic)
        self.add_partitions()

    def has(self, topic: str) -> bool:
        """Whether all partitions of a topic are read."""
        return topic in self._topics

    def discard(self, topic: str) -> None:
        """Add no more partitions of a topic."""
        self._topics.pop(topic, None)

    def expect(self, partition: TopicPartition) -> None:
        """Begin to read a partition of one of these topics before the metadata lists it, so that its position
        can be set. Does nothing for other topics, and for a partition that the metadata does not know."""
        if partition.topic not in self._topics:
            return
        info = self._metadata.topics.get(partition.topic)
        if info is None or partition.partition < len(info.partitions):
            self._fetcher.add(partition)

    def add_partitions(self) -> None:
        """Add the partitions that are new in the metadata since the last call."""
        if self._seen_update == self._metadata.update_count and all(self._topics.values()):
            return
        self._seen_update = self._metadata.update_count
        for topic, is_known in self._topics.items():
            info = self._metadata.topics.get(topic)
            if info is None:
                continue
            for row in info.partitions:
                key = TopicPartition(topic, row.partition)
                if key not in self._fetcher.positions:
                    position = self._fetcher.add(key)
                    if is_known:
                        position.go_to_time(EARLIEST)  # Added to the topic later: all of its records are new.
            self._topics[topic] = True
