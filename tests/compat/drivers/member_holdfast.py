"""A member of a mixed group that uses Holdfast's consumer."""

from __future__ import annotations

from holdfast_log.clients.consumer import Consumer
from tests.compat.drivers.membership import POLL_MS, Job, Journal, run


def member(job: Job, journal: Journal) -> None:
    with Consumer(job.settings("holdfast")) as consumer:
        consumer.add_topic(job.topic)
        while not journal.is_stopping:
            before = consumer.group_identity().generation
            records = consumer.poll(POLL_MS)
            # During the call, the member may have joined or lost its membership.
            generation = max(before, consumer.group_identity().generation)
            journal.processed(generation, ((record.partition, record.offset) for record in records))
            journal.owns(generation, (partition.partition for partition in consumer.assignment()))


if __name__ == "__main__":
    run(member)
