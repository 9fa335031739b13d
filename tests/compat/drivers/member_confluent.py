"""A member of a mixed group that uses confluent-kafka."""

from __future__ import annotations

import struct
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.compat.drivers.membership import POLL_MS, Job, Journal, run

_MAGIC = b"CGMDv2:"
_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED)


def generation_of(consumer: Any) -> int:
    """The member's generation, decoded from the group metadata that librdkafka has for transactional
    producers."""
    metadata = bytes(consumer.consumer_group_metadata())
    assert metadata.startswith(_MAGIC), metadata
    (generation,) = struct.unpack_from("=i", metadata, len(_MAGIC))
    return int(generation)


def member(job: Job, journal: Journal) -> None:
    consumer = Consumer(
        {
            **job.settings("confluent"),
            # Otherwise librdkafka commits records that it has delivered but the member has not processed.
            "enable.auto.offset.store": False,
        }
    )
    consumer.subscribe([job.topic])
    while not journal.is_stopping:
        messages = consumer.consume(500, timeout=POLL_MS / 1000)
        for message in messages:
            error = message.error()
            if error is not None and not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
        read = [message for message in messages if message.error() is None]
        generation = generation_of(consumer)
        journal.processed(generation, ((message.partition(), message.offset()) for message in read))
        for message in read:
            consumer.store_offsets(message)
        journal.owns(generation, (partition.partition for partition in consumer.assignment()))
    consumer.close()


if __name__ == "__main__":
    run(member)
