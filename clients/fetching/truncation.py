"""Detects that a log was truncated, by asking new leaders for the ends of epochs (KIP-320).

After an unclean election the new leader may have other records at the next offset. A consumer that read on
would miss records unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast_log.clients.connection.cluster_view import Metadata
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_CONSUMER = -1
UNKNOWN = -1


class EpochEnd(NamedTuple):
    """The end of an epoch in the leader's log: the offset after the last record of it or of earlier epochs.

    -1 if the leader has no record of them.
    """

    epoch: int
    offset: int


def epochs_request(metadata: Metadata, positions: Iterable[Position]) -> OffsetForLeaderEpochRequest:
    """Asks for the end of the epoch that each position read last. One broker must lead all partitions."""
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
    """The end of the epoch, or the error, of each partition in a response."""
    for topic in response.topics:
        for row in topic.partitions:
            key = TopicPartition(topic.topic, row.partition)
            if row.error_code == ErrorCode.NONE:
                yield key, EpochEnd(row.leader_epoch, row.end_offset)
            else:
                yield key, error_for(row.error_code)
