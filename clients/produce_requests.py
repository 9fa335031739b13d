"""Batches on their way into requests, encoded and compressed at the first attempt."""

from __future__ import annotations

import struct

from clients.batch import Batch
from clients.idempotence import Sequences
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_BASE_OFFSET = struct.Struct(">q")


def produce_request(
    batches: list[Batch], acks: int, timeout_ms: int, *, tells_offsets: bool = False
) -> ProduceRequest:
    """The request with these batches, which are encoded; of every partition one.

    To a broker that knows of conditions it `tells_offsets`: also in the base offsets, which topics with
    `check.expected.offsets` look at, and which are 0 else.
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
        topic.partition_data.append(data)
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def encode(batch: Batch, sequences: Sequences) -> None:
    """Make bytes of the batch, unless it has them, with its sequence number if it has one."""
    if batch.encoded is not None:
        return
    assert batch.builder is not None
    if batch.base_sequence < 0:
        batch.encoded = batch.builder.build()
    else:
        batch.encoded = batch.builder.build(
            producer_id=sequences.producer_id,
            producer_epoch=sequences.epoch,
            base_sequence=batch.base_sequence,
        )
    batch.builder = None
