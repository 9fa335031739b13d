"""The rows of requests that commit offsets, outside of transactions and in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias
from uuid import UUID

from holdfast_log.coordinator.groups.shard import OffsetToCommit
from holdfast_log.coordinator.ownership.records import PartitionKey
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.offset_commit import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition

IsTaken: TypeAlias = Callable[[TopicPartition], bool]
"""Whether the offset of a partition is to be stored."""


class CommittedPartition(Protocol):
    """An offset of the request."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None
    owner_token: int


class CommittedTopic(Protocol):
    """The offsets of one topic."""

    name: str

    @property
    def partitions(self) -> Sequence[CommittedPartition]: ...


def offsets_of(topics: Iterable[CommittedTopic], is_taken: IsTaken) -> list[OffsetToCommit]:
    """The offsets to store."""
    return [
        OffsetToCommit(
            partition, row.committed_offset, row.committed_leader_epoch, row.committed_metadata or ""
        )
        for partition, row in _rows(topics)
        if is_taken(partition)
    ]


def owner_tokens(
    topics: Iterable[CommittedTopic], topic_id: Callable[[str], UUID], is_taken: IsTaken
) -> dict[PartitionKey, int]:
    """The tokens of the partitions that the committing consumer owns."""
    return {
        PartitionKey(topic_id(partition.topic), partition.partition, partition.topic): row.owner_token
        for partition, row in _rows(topics)
        if row.owner_token >= 0 and is_taken(partition)
    }


def response_rows(
    topics: Iterable[CommittedTopic],
    outcomes: Iterable[tuple[TopicPartition, ErrorCode]],
    others: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> list[OffsetCommitResponseTopic]:
    """The rows of a response: the error of each partition, `others` where `outcomes` does not name it."""
    errors = dict(outcomes)
    return [
        OffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                OffsetCommitResponsePartition(
                    partition_index=row.partition_index,
                    error_code=errors.get(TopicPartition(topic.name, row.partition_index), others),
                )
                for row in topic.partitions
            ],
        )
        for topic in topics
    ]


def _rows(topics: Iterable[CommittedTopic]) -> Iterator[tuple[TopicPartition, CommittedPartition]]:
    for topic in topics:
        for row in topic.partitions:
            yield TopicPartition(topic.name, row.partition_index), row
