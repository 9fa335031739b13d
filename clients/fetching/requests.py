"""Makes the requests with which a consumer fetches."""

from __future__ import annotations

from collections.abc import Iterable

from clients.connection.metadata import Metadata
from clients.fetching.positions import Position
from clients.fetching.settings import FetchSettings
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_SHORT_WAIT_MS = 20
"""How long a broker may wait for data while we have some of its other partitions, and soon need more."""


def fetch_request(
    metadata: Metadata, positions: Iterable[Position], settings: FetchSettings, *, has_stores: bool
) -> FetchRequest:
    """The request for what follows on `positions`; one broker must lead all of them.

    `has_stores` says that more is in store of other partitions of this broker.
    """
    topics: dict[str, FetchTopic] = {}
    for position in positions:
        info = metadata.topics[position.topic]
        topic = topics.setdefault(
            position.topic, FetchTopic(topic=position.topic, topic_id=info.id, partitions=[])
        )
        topic.partitions.append(
            FetchPartition(
                partition=position.partition,
                current_leader_epoch=info.partitions[position.partition].leader_epoch,
                fetch_offset=position.fetch_offset,
                partition_max_bytes=settings.max_partition_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=min(settings.max_wait_ms, _SHORT_WAIT_MS) if has_stores else settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=settings.isolation,
        topics=list(topics.values()),
        forgotten_topics_data=[],
    )
