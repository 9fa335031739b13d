"""Transfers between accounts, exactly once, by tasks of one event loop: as transfers.py, with asyncio.

    python async_transfers.py localhost:9092 NAME TASKS

A request is a record of the topic `transfers` with a text such as "alice bob 10". For each of them a task
writes two records to `accounts`, and commits its consumer's position: all three in one transaction. The tasks
are members of one group, which divides the partitions among them. The program may be killed at any time and
started again; Ctrl-C ends it. NAME is the beginning of the tasks' transactional ids: a second process with
the same name fences the first.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast_log import ConsumerRecord, Message, TopicPartition
from holdfast_log.aio import AsyncConsumer, AsyncProducer


async def move(producer: AsyncProducer, consumer: AsyncConsumer, requests: list[ConsumerRecord]) -> None:
    """Carry out some transfers, all or none. A task that is cancelled in here aborts."""
    ends: dict[TopicPartition, int] = {}
    async with producer.transaction() as t:
        for request in requests:
            payer, payee, amount = request.value.decode().split()
            await t.send(Message("accounts", key=payer, value=f"-{amount}"))
            await t.send(Message("accounts", key=payee, value=f"+{amount}"))
            ends[TopicPartition(request.topic, request.partition)] = request.offset + 1
        await t.send_offsets(ends, await consumer.group_metadata())


async def serve(bootstrap: str, transactional_id: str) -> None:
    reading = {
        "bootstrap.servers": bootstrap,
        "group.id": "async-tellers",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 6_000,  # After a kill, others take over so soon.
    }
    writing = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    async with AsyncProducer(writing) as producer, AsyncConsumer(reading) as consumer:
        # Before positions are read: what a process with this name has left open is aborted first.
        await producer.init_transactions()
        await consumer.add_topic("transfers")
        print("ready", flush=True)
        while True:
            requests = await consumer.poll(1000)
            if requests:
                await move(producer, consumer, requests)


async def main(bootstrap: str, name: str, tasks: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(tasks):
            group.create_task(serve(bootstrap, f"{name}-{number}"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
