"""A member of a mixed group that uses aiokafka."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from tests.compat.drivers.membership import (
    COMMIT_MS,
    HEARTBEAT_MS,
    POLL_MS,
    REBALANCE_MS,
    SESSION_MS,
    Job,
    Journal,
    run,
)

ASSIGNORS: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


async def consume(job: Job, journal: Journal) -> None:
    consumer = AIOKafkaConsumer(
        job.topic,
        bootstrap_servers=job.bootstrap,
        client_id="aiokafka",
        group_id=job.group,
        partition_assignment_strategy=[ASSIGNORS[job.strategy]],
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        auto_commit_interval_ms=COMMIT_MS,
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
