"""A member of a mixed group that uses kafka-python, 2.x or 3.x, whichever the interpreter has installed."""

from __future__ import annotations

import logging
import time
from typing import Any

from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

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


def wait_for_partitions(consumer: KafkaConsumer, job: Job, journal: Journal) -> None:
    """Fetch the topic's partitions before the first poll joins the group.

    A leader of kafka-python 3.0 that learns of the partitions only after its first assignment joins once more
    to assign them. If a poll returns on its timeout after the answer to that JoinGroup and before the answer
    to the SyncGroup, no later poll takes the assignment or joins again: `need_rejoin` compares the metadata
    only, and ignores the join under way. The member sends no more heartbeats and stays without partitions
    for ever. Members that know the partitions first never need that second join.
    """
    while not consumer.partitions_for_topic(job.topic) and not journal.is_stopping:
        time.sleep(POLL_MS / 1000)


def member(job: Job, journal: Journal) -> None:
    # Its fetcher logs a line for every partition of every assignment, among which the joins are hard to find.
    logging.getLogger("kafka.consumer.fetcher").setLevel(logging.WARNING)
    consumer = KafkaConsumer(
        job.topic,
        partition_assignment_strategy=[assignor(job.strategy)],
        **job.arguments("kafka-python"),
    )
    wait_for_partitions(consumer, job, journal)
    while not journal.is_stopping:
        found = consumer.poll(POLL_MS)
        generation = consumer._coordinator._generation.generation_id
        read = [(record.partition, record.offset) for records in found.values() for record in records]
        journal.processed(generation, read)
        journal.owns(generation, (partition.partition for partition in consumer.assignment()))
    consumer.close()


if __name__ == "__main__":
    run(member)
