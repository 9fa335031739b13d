"""Looks up offsets at the leaders: the first, the last, and those of times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast_log.clients.connection.cluster_view import NO_NODE, Metadata
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.link import Reply
from holdfast_log.clients.errors import RequestTimeoutError, is_retriable, with_cause
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from holdfast_log.protocol.topic_partition import TopicPartition

LATEST = -1
"""Stands for a time: the offset after the last record that consumers may see."""
EARLIEST = -2
"""Stands for a time: the first offset of the partition."""
MAX_TIMESTAMP = -3
"""Stands for a time: the offset of the record with the latest timestamp (KIP-734)."""

_CONSUMER = -1


class OffsetAndTimestamp(NamedTuple):
    """An offset, and the timestamp of its record in ms if a time was looked up."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


def offsets_request(
    metadata: Metadata, times: Mapping[TopicPartition, int], isolation: int = 0
) -> ListOffsetsRequest:
    """The request for the offsets of `times`, whose partitions one broker must lead."""
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), time in times.items():
        info = metadata.partition(topic, partition)
        row = ListOffsetsPartition(
            partition_index=partition,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            timestamp=time,
        )
        topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(row)
    return ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=isolation, topics=list(topics.values()))


def offsets_in(response: ListOffsetsResponse) -> dict[TopicPartition, OffsetAndTimestamp | BrokerError]:
    """The offset or error of each partition in a response. Offset -1: no record is as late as the time."""
    found: dict[TopicPartition, OffsetAndTimestamp | BrokerError] = {}
    for topic in response.topics:
        for row in topic.partitions:
            answer: OffsetAndTimestamp | BrokerError
            if row.error_code == ErrorCode.NONE:
                answer = OffsetAndTimestamp(row.offset, row.timestamp, row.leader_epoch)
            else:
                answer = error_for(row.error_code)
            found[TopicPartition(topic.name, row.partition_index)] = answer
    return found


def look_up_offsets(
    connection: Connection, times: Mapping[TopicPartition, int], timeout_ms: int, isolation: int = 0
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The offsets of `times` (ms since the epoch, or EARLIEST, LATEST, MAX_TIMESTAMP), from the leaders.

    Waits for leaders and retries for `timeout_ms`. Then raises the last error; an error that is not retriable
    is raised at once.
    """
    deadline_ms = connection.network.now_ms() + timeout_ms
    wanted = dict(times)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    last_error: Exception | None = None
    for topic in dict.fromkeys(topic for topic, _ in wanted):
        connection.metadata.want(topic)
    while wanted:
        left_ms = deadline_ms - connection.network.now_ms()
        if left_ms <= 0:
            raise last_error or RequestTimeoutError(
                with_cause(f"no offsets were found within {timeout_ms} ms", connection.standing(ANY_NODE))
            )
        ready = by_leader(connection.metadata, wanted)
        if not ready:
            last_error = _why_unknown(connection.metadata, wanted) or last_error
            wait_for_metadata(connection, left_ms)
            continue
        for node, asked in ready.items():
            try:
                response = connection.ask(
                    node, offsets_request(connection.metadata, asked, isolation), left_ms
                )
            except Exception as error:
                if not is_retriable(error):
                    raise
                last_error = error
                connection.metadata.renew()
                continue
            for partition, answer in offsets_in(response).items():
                if isinstance(answer, OffsetAndTimestamp):
                    found[partition] = answer
                    wanted.pop(partition, None)
                elif answer.retriable:
                    last_error = answer
                    connection.metadata.renew()
                else:
                    raise answer
        if wanted:
            wait_for_metadata(connection, left_ms)
    return {partition: found[partition] for partition in times}


def by_leader(
    metadata: Metadata, times: Mapping[TopicPartition, int]
) -> dict[int, dict[TopicPartition, int]]:
    """`times` by the leader of each partition; partitions without a known leader are left out."""
    divided: dict[int, dict[TopicPartition, int]] = {}
    for partition, time in times.items():
        leader = metadata.leader(*partition)
        if leader == NO_NODE:
            metadata.renew()
        else:
            divided.setdefault(leader, {})[partition] = time
    return divided


def wait_for_metadata(connection: Connection, timeout_ms: int) -> None:
    """Wait until the metadata is renewed once. Replies to other calls are kept."""
    connection.metadata.renew()
    seen = connection.metadata.update_count
    deadline_ms = connection.network.now_ms() + timeout_ms
    others: list[Reply] = []
    try:
        while connection.metadata.update_count == seen:
            left_ms = deadline_ms - connection.network.now_ms()
            if left_ms <= 0:
                break
            others += connection.poll(left_ms)
    finally:
        connection.keep(others)


def _why_unknown(metadata: Metadata, wanted: Mapping[TopicPartition, int]) -> BrokerError | None:
    """Why the partitions have no known leader, if a broker has said so. Raises one that is not retriable."""
    for topic, partition in wanted:
        error = metadata.topic_error(topic)
        if error is not None and not error.retriable:
            raise error
        if error is not None:
            return error
        info = metadata.topics.get(topic)
        if info is not None and partition >= len(info.partitions):
            return error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic} has {len(info.partitions)} partitions: {partition} does not exist",
            )
        if info is not None:
            return error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
    return None
