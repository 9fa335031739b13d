"""Asks a new leader whether its log still holds what was read from the old one (KIP-320).

It does not where an unclean election has cut the log: then what stands at the next offset is something else,
and a consumer that read on would miss records without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clients.connection.metadata import Metadata
from clients.fetching.positions import Position
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.topic_partition import TopicPartition

_CONSUMER = -1
UNKNOWN = -1


class EpochEnd(NamedTuple):
    """Where the leader's log has the last record of an epoch or of those before it: `offset` is the one
    after. -1 where it knows of none."""

    epoch: int
    offset: int


def epochs_request(metadata: Metadata, positions: Iterable[Position]) -> OffsetForLeaderEpochRequest:
    """The request for the ends of the epochs that were read last; one broker must lead all partitions."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for position in positions:
        info = metadata.partition(position.topic, position.partition)
        topic = topics.setdefault(position.topic, OffsetForLeaderTopic(topic=position.topic, partitions=[]))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=position.partition,
                current_leader_epoch=UNKNOWN if info is None else info.leader_epoch,
                leader_epoch=position.fetch_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))


def ends_in(
    response: OffsetForLeaderEpochResponse,
) -> Iterator[tuple[TopicPartition, EpochEnd | BrokerError]]:
    """What a response says of each partition."""
    for topic in response.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.topic, row.partition)
            if row.error_code == ErrorCode.NONE:
                yield key, EpochEnd(row.leader_epoch, row.end_offset)
            else:
                yield key, error_for(row.error_code)
