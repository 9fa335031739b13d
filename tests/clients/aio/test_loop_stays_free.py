"""No method holds up the loop, whatever brokers do: with one that never answers, the loop goes on turning.

Each call waits for ten minutes. A call that waited in the loop's thread would end the test by its bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast_log import BufferFullError, ClosedError, Message, NewTopic, TopicPartition, UndeliveredError
from holdfast_log.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncExclusiveConsumer,
    AsyncExclusiveProducer,
    AsyncProducer,
)
from tests.clients.aio.silence import LONG_MS, Ticking, run, silent_broker, until

PLACE = TopicPartition("flights", 0)
OF_CONSUMERS: dict[str, Callable[[AsyncConsumer], Awaitable[Any]]] = {
    "poll": lambda consumer: consumer.poll(LONG_MS),
    "poll_batches": lambda consumer: consumer.poll_batches(LONG_MS),
    "poll_encoded": lambda consumer: consumer.poll_encoded(LONG_MS),
    "anext": lambda consumer: anext(consumer),
    "commit": lambda consumer: consumer.commit({PLACE: 5}),
    "committed": lambda consumer: consumer.committed([PLACE]),
    "position": lambda consumer: consumer.position(PLACE),
    "end_offsets": lambda consumer: consumer.end_offsets([PLACE]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([PLACE]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({PLACE: 5}),
    "partitions_for": lambda consumer: consumer.partitions_for("flights"),
    "topics": lambda consumer: consumer.topics(),
}
OF_ADMINS: dict[str, Callable[[AsyncAdmin], Awaitable[Any]]] = {
    "create_topics": lambda admin: admin.create_topics([NewTopic("flights", partitions=1)]),
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "list_offsets": lambda admin: admin.list_offsets({PLACE: -1}),
    "describe_groups": lambda admin: admin.describe_groups(["readers"]),
    "list_groups": lambda admin: admin.list_groups(),
}


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def test_a_consumer_waits_beside_the_loop_and_can_be_used_after_each_cancellation() -> None:
    async def main(properties: dict[str, Any]) -> None:
        ticking = Ticking()
        group = {"group.id": "readers", "default.api.timeout.ms": LONG_MS, "enable.auto.commit": False}
        consumer = AsyncConsumer({**properties, **group})
        await consumer.add_topic("flights", 0)
        for name, call in OF_CONSUMERS.items():
            task = asyncio.ensure_future(call(consumer))
            await ticking.beside(task)
            await cancelled(task)
            assert await consumer.assignment() == [PLACE], name
        await consumer.close(0)
        with pytest.raises(ClosedError):
            await consumer.poll()

    with silent_broker() as properties:
        run(main(properties))


def test_an_admin_client_waits_beside_the_loop_and_can_be_used_after_each_cancellation() -> None:
    async def main(properties: dict[str, Any]) -> None:
        ticking = Ticking()
        async with AsyncAdmin({**properties, "default.api.timeout.ms": LONG_MS}) as admin:
            for call in OF_ADMINS.values():
                task = asyncio.ensure_future(call(admin))
                behind = asyncio.ensure_future(admin.list_topics())
                await ticking.beside(task)
                await cancelled(task)
                await cancelled(behind)
            task = asyncio.ensure_future(admin.list_topics())
            await asyncio.sleep(0)
        with pytest.raises(ClosedError, match="closed during the call"):
            await task

    with silent_broker() as properties:
        run(main(properties))


def test_a_producer_waits_beside_the_loop() -> None:
    async def main(properties: dict[str, Any]) -> None:
        ticking = Ticking()
        more = {"buffer.memory": 100_000, "max.block.ms": LONG_MS, "transactional.id": "t"}
        producer = AsyncProducer({**properties, **more})
        calls = [producer.init_transactions(), begun(producer), producer.flush()]
        task = asyncio.ensure_future(producer.init_transactions())
        await ticking.beside(task)
        await cancelled(task)
        for call in calls[1:2]:
            task = asyncio.ensure_future(call)
            await ticking.beside(task)
            await cancelled(task)
        for call in (calls[0], calls[2]):
            call.close()
        await producer.close(0)

    async def begun(producer: AsyncProducer) -> None:
        async with producer.transaction():
            pass

    with silent_broker() as properties:
        run(main(properties))


MESSAGE = Message("flights", value=bytes(1_000))


def test_send_waits_for_room_in_turn_and_what_is_cancelled_was_not_sent() -> None:
    async def main(properties: dict[str, Any]) -> None:
        ticking, more = Ticking(), {"buffer.memory": 100_000, "max.block.ms": LONG_MS}
        producer = AsyncProducer({**properties, **more, "delivery.timeout.ms": 2 * LONG_MS})
        sent = 0

        async def send() -> None:
            nonlocal sent
            while True:
                await producer.send(MESSAGE)
                sent += 1

        filling = asyncio.create_task(send())
        await ticking.beside(filling)
        before = sent
        waiting = [asyncio.create_task(producer.send(MESSAGE)) for _ in range(20)]
        await ticking.beside(waiting[-1])
        assert sent == before and not any(task.done() for task in waiting)
        bulk = asyncio.create_task(producer.send_many("flights", [bytes(1_000)] * 300))
        flushing = asyncio.create_task(producer.flush())
        await ticking.beside(bulk)
        await ticking.beside(flushing)
        for task in (filling, waiting[3], bulk, flushing):
            await cancelled(task)
        assert producer.feedback().records_waiting >= before
        closing = asyncio.create_task(producer.close())
        await ticking.beside(closing)
        closing.cancel()  # Stops at once, and fails what waits.
        await asyncio.wait([closing])
        for number, task in enumerate(waiting):
            if number != 3:
                with pytest.raises(ClosedError):
                    response = await task
                    await response
        await until(lambda: producer.feedback().records_waiting == 0)
        with pytest.raises(ClosedError):
            await producer.send(MESSAGE)

    with silent_broker() as properties:
        run(main(properties))


def test_after_max_block_ms_a_message_fails_as_that_of_an_ordinary_producer() -> None:
    async def main(properties: dict[str, Any]) -> None:
        # Of a topic that nobody describes, messages that are queued fail after max.block.ms too.
        producer = AsyncProducer({**properties, "buffer.memory": 100_000, "max.block.ms": LONG_MS})
        producer._room._max_block_ms = 20
        responses = [await producer.send(MESSAGE) for _ in range(120)]
        failed = [response.error for response in responses if response.done]
        assert failed and all(isinstance(error, BufferFullError) for error in failed)
        assert producer.feedback().buffer_wait_ms >= 20
        with pytest.raises(UndeliveredError):
            await producer.close(0)

    with silent_broker() as properties:
        run(main(properties))


def test_owners_wait_beside_the_loop() -> None:
    async def main(properties: dict[str, Any]) -> None:
        ticking = Ticking()
        producer = AsyncExclusiveProducer({**properties, "max.block.ms": LONG_MS}, "flights")
        task = asyncio.ensure_future(producer._begin())
        await ticking.beside(task)
        await cancelled(task)
        with pytest.raises(ClosedError, match="has not begun"):
            await producer.send(MESSAGE)
        consumer = AsyncExclusiveConsumer(properties, "owners", [PLACE], wait_ms=LONG_MS)
        polling = asyncio.ensure_future(consumer.poll(LONG_MS))
        await ticking.beside(polling)
        await cancelled(polling)
        assert not consumer.is_owner and consumer.token(PLACE) is None
        await consumer.close(0)

    with silent_broker() as properties:
        run(main(properties))


def test_the_loop_has_turns_while_messages_are_sent_without_waiting() -> None:
    async def main(properties: dict[str, Any]) -> None:
        producer = AsyncProducer(properties)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(5_000):
            await producer.send(Message("flights", value=b"x"))
        assert turns >= 9
        await cancelled(counting)
        with pytest.raises(UndeliveredError):
            await producer.close(0)

    with silent_broker() as properties:
        run(main(properties))
