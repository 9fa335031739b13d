"""Produce requests: which batches fit together, and their encoding."""

from __future__ import annotations

import struct

from holdfast_log.clients.fence import OwnerFence
from holdfast_log.clients.sending.batch import Batch
from holdfast_log.clients.sending.sequences import Sequences
from holdfast_log.protocol.messages.produce import (
    KeyVersion,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast_log.protocol.topic_partition import TopicPartition

_BASE_OFFSET = struct.Struct(">q")


class RequestsToBe:
    """The batches of the next requests, one to each broker."""

    def __init__(self, max_request_size: int) -> None:
        self.batches: dict[int, list[Batch]] = {}
        self._max_request_size = max_request_size
        self._sizes: dict[int, int] = {}
        self._guarded: dict[int, set[TopicPartition]] = {}

    def has_room(self, node: int, batch: Batch) -> bool:
        """Whether a batch fits into the request to a broker: by its size, and because a request names each
        partition at most once, guards included."""
        if node not in self.batches:
            return True
        if self._sizes[node] + batch.size > self._max_request_size:
            return False
        guarded = self._guarded.get(node, set())
        if guarded and (batch.topic, batch.partition) in guarded:
            return False
        if not batch.guards:
            return True
        taken = guarded | {TopicPartition(other.topic, other.partition) for other in self.batches[node]}
        return not any(guard.partition in taken for guard in batch.guards)

    def add(self, node: int, batch: Batch) -> None:
        """Add a batch for which there is room."""
        self.batches.setdefault(node, []).append(batch)
        self._sizes[node] = self._sizes.get(node, 0) + batch.size
        if batch.guards:
            self._guarded.setdefault(node, set()).update(guard.partition for guard in batch.guards)


def produce_request(
    batches: list[Batch],
    acks: int,
    timeout_ms: int,
    *,
    tells_offsets: bool = False,
    fence: OwnerFence | None = None,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """The request with these batches, which must be encoded and of different partitions, and their guards.

    With `tells_offsets`, for a broker that supports conditions, expected offsets are also the batches' base
    offsets, which the broker checks for topics with `check.expected.offsets`. Otherwise these are 0.

    `fence` must cover the batches' partitions. Guards that it covers are fenced as well.
    """
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        assert batch.encoded is not None
        topic = topics.setdefault(batch.topic, TopicProduceData(name=batch.topic, partition_data=[]))
        data = PartitionProduceData(index=batch.partition, records=batch.encoded)
        if tells_offsets:
            _BASE_OFFSET.pack_into(batch.encoded, 0, batch.expected_offset)
            if batch.expected_offset >= 0:
                data.expected_offset = batch.expected_offset
                data.expected_leader_epoch = batch.expected_epoch
                data.attempt = batch.attempt
                data.expected_topic_id = batch.topic_id
                if batch.append_id:
                    data.append_id = batch.append_id
                    data.id_unused_before = batch.id_unused_before
        if batch.expected_version is not None:
            data.expected_versions = [KeyVersion(record=0, version=batch.expected_version)]
            data.expected_topic_id = batch.topic_id
        if fence is not None:
            data.owner_token = fence.token(TopicPartition(batch.topic, batch.partition))
            data.owner_secret = fence.secret
        topic.partition_data.append(data)
        for guard in batch.guards:
            name, index = guard.partition
            topic = topics.setdefault(name, TopicProduceData(name=name, partition_data=[]))
            data = PartitionProduceData(
                index=index,
                records=None,
                expected_offset=guard.expected_offset,
                attempt=guard.attempt,
                expected_topic_id=guard.topic_id,
            )
            if fence is not None and guard.partition in fence.tokens:
                data.owner_token, data.owner_secret = fence.token(guard.partition), fence.secret
            topic.partition_data.append(data)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def encode(batch: Batch, sequences: Sequences, *, is_transactional: bool = False) -> None:
    """Encode the batch, with its sequence number if it has one, unless it is encoded already."""
    if batch.encoded is not None:
        return
    assert batch.builder is not None
    if batch.base_sequence < 0:
        batch.encoded = batch.builder.build(has_append_id=bool(batch.append_id))
    else:
        batch.encoded = batch.builder.build(
            producer_id=sequences.producer_id,
            producer_epoch=sequences.epoch,
            base_sequence=batch.base_sequence,
            has_append_id=bool(batch.append_id),
            is_transactional=is_transactional,
        )
    batch.builder = None
