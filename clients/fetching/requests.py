"""Makes a consumer's fetch requests."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.fetching.settings import FetchSettings
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_SHORT_WAIT_MS = 20
"""max_wait_ms while batches of other partitions of the broker are stored, so that they are soon refilled."""


def fetch_request(
    metadata: Metadata,
    positions: Sequence[Position],
    settings: FetchSettings,
    now_ms: int,
    *,
    has_stores: bool,
) -> FetchRequest:
    """The fetch request for `positions`, all of which one broker must lead or follow.

    With `has_stores`, batches of other partitions of this broker are stored. A leader that is told the rack
    sends no records of what a follower there has: so it is not told while one of the positions has to be read
    from its leader.
    """
    topics: dict[str, FetchTopic] = {}
    for position in positions:
        info = metadata.topics[position.topic]
        topic = topics.setdefault(
            position.topic, FetchTopic(topic=position.topic, topic_id=info.id, partitions=[])
        )
        wanted = FetchPartition(
            partition=position.partition,
            current_leader_epoch=info.partitions[position.partition].leader_epoch,
            fetch_offset=position.fetch_offset,
            partition_max_bytes=settings.max_partition_bytes,
        )
        if settings.fence is not None:
            wanted.owner_token, wanted.owner_secret = (
                settings.fence.token(position.key),
                settings.fence.secret,
            )
        topic.partitions.append(wanted)
    return FetchRequest(
        max_wait_ms=min(settings.max_wait_ms, _SHORT_WAIT_MS) if has_stores else settings.max_wait_ms,
        min_bytes=settings.min_bytes,
        max_bytes=settings.max_bytes,
        isolation_level=settings.isolation,
        topics=list(topics.values()),
        forgotten_topics_data=[],
        rack_id=settings.rack if all(each.may_be_sent(now_ms) for each in positions) else "",
    )
