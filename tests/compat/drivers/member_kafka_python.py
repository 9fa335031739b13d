"""A member of a mixed group that uses kafka-python, 2.x or 3.x, whichever the interpreter has installed."""

from __future__ import annotations

import logging
from typing import Any

from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.drivers.kafka_python_topics import PATIENT, wait_for_partitions
from tests.compat.drivers.membership import POLL_MS, Job, Journal, run


def assignor(strategy: str) -> Any:
    if strategy == "cooperative-sticky":
        from kafka.coordinator.assignors.cooperative_sticky import (  # kafka-python 2.x has no such option.
            CooperativeStickyAssignor,
        )

        return CooperativeStickyAssignor
    return {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }[strategy]


def member(job: Job, journal: Journal) -> None:
    # Its fetcher logs a line for every partition of every assignment, among which the joins are hard to find.
    logging.getLogger("kafka.consumer.fetcher").setLevel(logging.WARNING)
    consumer = KafkaConsumer(
        job.topic,
        partition_assignment_strategy=[assignor(job.strategy)],
        **job.arguments("kafka-python"),
        **PATIENT,
    )
    wait_for_partitions(consumer, job.topic, is_wanted=lambda: not journal.is_stopping)
    while not journal.is_stopping:
        found = consumer.poll(POLL_MS)
        generation = consumer._coordinator._generation.generation_id
        read = [(record.partition, record.offset) for records in found.values() for record in records]
        journal.processed(generation, read)
        journal.owns(generation, (partition.partition for partition in consumer.assignment()))
    consumer.close()


if __name__ == "__main__":
    run(member)
