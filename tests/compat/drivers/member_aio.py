"""A member of a mixed group that uses aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.drivers.membership import POLL_MS, REBALANCE_MS, Job, Journal, run

ASSIGNORS: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


async def consume(job: Job, journal: Journal) -> None:
    consumer = AIOKafkaConsumer(
        job.topic,
        partition_assignment_strategy=[ASSIGNORS[job.strategy]],
        rebalance_timeout_ms=REBALANCE_MS,
        **job.arguments("aiokafka"),
    )
    await consumer.start()
    while not journal.is_stopping:
        found = await consumer.getmany(timeout_ms=POLL_MS)
        generation = consumer._coordinator.generation
        read = [(record.partition, record.offset) for records in found.values() for record in records]
        journal.processed(generation, read)
        journal.owns(generation, (partition.partition for partition in consumer.assignment()))
    await consumer.stop()


def member(job: Job, journal: Journal) -> None:
    asyncio.run(consume(job, journal))


if __name__ == "__main__":
    run(member)
