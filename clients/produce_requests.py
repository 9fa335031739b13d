"""Batches on their way into requests, encoded and compressed at the first attempt."""

from __future__ import annotations

from clients.batch import Batch
from clients.idempotence import Sequences
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData


def produce_request(batches: list[Batch], acks: int, timeout_ms: int) -> ProduceRequest:
    """The request with these batches, which are encoded; of every partition one."""
    topics: dict[str, TopicProduceData] = {}
    for batch in batches:
        assert batch.encoded is not None
        topic = topics.setdefault(batch.topic, TopicProduceData(name=batch.topic, partition_data=[]))
        topic.partition_data.append(PartitionProduceData(index=batch.partition, records=batch.encoded))
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
