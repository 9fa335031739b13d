"""One topic: where each of its partitions begins and ends. It blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_log.clients.admin import EARLIEST, LATEST, Admin, TopicDescription
from holdfast_log.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic, and the first and the end offset of each partition that has a leader, by its number."""

    description: TopicDescription
    begins: Mapping[int, int]
    ends: Mapping[int, int]


def topic_detail(admin: Admin, name: str) -> TopicDetail:
    """Ask for a topic. Raises UnknownTopicOrPartitionError and others."""
    (topic,) = admin.describe_topics([name])
    led = [TopicPartition(name, row.partition) for row in topic.partitions if row.leader >= 0]
    begins = admin.list_offsets(dict.fromkeys(led, EARLIEST)) if led else {}
    ends = admin.list_offsets(dict.fromkeys(led, LATEST)) if led else {}
    return TopicDetail(
        topic,
        {key.partition: found.offset for key, found in begins.items()},
        {key.partition: found.offset for key, found in ends.items()},
    )
