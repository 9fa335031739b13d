"""A producer in a coroutine, as docs/clients.md says: the loop is never held up by a full buffer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast_log.clients.errors import ClosedError, RequestTimeoutError, UndeliveredError
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import RecordResponse, SendResponse

DEAD = "127.0.0.1:1"
BUFFER_BYTES = 100_000
MESSAGE = Message("flights", value=bytes(1_000))
ROOM = 40
"""So many messages fit into the buffer, with what they cost beside their values."""
COUNT = 120


def dead_producer(**properties: Any) -> Producer:
    """A producer whose messages stay in its buffer: nobody listens where it sends them."""
    return Producer(
        {
            "bootstrap.servers": DEAD,
            "buffer.memory": BUFFER_BYTES,
            "bootstrap.timeout.ms": 600_000,
            "max.block.ms": 600_000,
            **properties,
        }
    )


def close(producer: Producer) -> None:
    with pytest.raises(UndeliveredError):
        producer.close(0)


def test_with_fewer_messages_than_the_buffer_holds_send_never_waits() -> None:
    producer = dead_producer()
    sent = 0

    async def publish(room: asyncio.Semaphore) -> None:
        nonlocal sent
        async with room:
            response = producer.send(MESSAGE)
            sent += 1
            await response

    async def main() -> None:
        room = asyncio.Semaphore(ROOM)
        tasks = [asyncio.create_task(publish(room)) for _ in range(COUNT)]
        while sent < ROOM:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sent == ROOM  # The others wait for the semaphore, and the loop runs on.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())

    assert producer.feedback().buffer_wait_ms == 0
    close(producer)


def test_the_same_messages_without_a_limit_wait_for_the_buffer() -> None:
    producer = dead_producer(**{"max.block.ms": 20})
    for _ in range(COUNT):
        producer.send(MESSAGE)

    assert producer.feedback().buffer_wait_ms > 0
    close(producer)


def test_send_in_another_thread_leaves_the_loop_free() -> None:
    producer = dead_producer()

    async def main() -> None:
        waits = None
        for _ in range(COUNT):
            waits = asyncio.create_task(asyncio.to_thread(producer.send, MESSAGE))
            done, _pending = await asyncio.wait([waits], timeout=1)
            if not done:
                break
        assert waits is not None and not waits.done()
        close(producer)  # Were the loop held up, nothing would call this for ten minutes.
        response = await waits
        assert isinstance(response.error, ClosedError)

    asyncio.run(main())


def test_a_wait_that_was_cancelled_has_seen_nothing() -> None:
    producer = dead_producer()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.send(MESSAGE), 0.01)

    asyncio.run(main())

    with pytest.raises(UndeliveredError, match="1 message was not delivered"):
        producer.close(0)


def test_who_gives_up_waiting_for_an_outcome_leaves_nothing_behind() -> None:
    """A program that waits for a moment again and again must not fill the memory."""
    producer = dead_producer()
    single = producer.send(MESSAGE)
    several = producer.send_many("flights", [b"one", b"two"], partition=0)
    (span,) = several.responses
    assert isinstance(single, RecordResponse)
    batches = [single._batch, span._batch]

    async def give_up(response: SendResponse) -> None:
        async def wait() -> None:
            await response

        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(wait(), 0.01)

    for response in (single, several):
        for _ in range(3):
            with pytest.raises(RequestTimeoutError):
                response.result(0)
            asyncio.run(give_up(response))
    kept = [len(batch._callbacks) for batch in batches]
    close(producer)
    assert kept == [0, 0]
