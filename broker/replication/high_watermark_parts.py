"""The high watermarks of very many partitions for the checkpoint, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from holdfast_log.broker.replication.replicas import Replicas
from holdfast_log.protocol.topic_partition import TopicPartition

TOGETHER = 100
"""So many high watermarks are noted in one step: in a fifth of a millisecond."""


def high_watermark_parts(replicas: Replicas) -> Iterator[dict[TopicPartition, int]]:
    """What `Replicas.high_watermarks` returns, some partitions at a time, as they are then. A partition that
    is removed meanwhile is left out, also if it is created again."""
    partitions = iter(list(replicas))
    while some := list(islice(partitions, TOGETHER)):
        yield {
            partition.key: partition.high_watermark
            for partition in some
            if not partition.is_offline and replicas.find(partition.topic, partition.index) is partition
        }
