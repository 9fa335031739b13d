"""The end of asyncio clients and of their loops: clear errors, and no thread that keeps a program alive."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast_log import ClosedError, Message, UndeliveredError, WrongLoopError
from holdfast_log.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from tests.clients.aio.silence import LONG_MS, run, silent_broker

HOME = Path(__file__).parents[3]
WAIT_S = 120


def test_a_client_belongs_to_one_loop() -> None:
    async def make(properties: dict[str, Any]) -> tuple[AsyncConsumer, AsyncAdmin, AsyncProducer]:
        consumer, admin, producer = (
            AsyncConsumer(properties),
            AsyncAdmin(properties),
            AsyncProducer(properties),
        )
        assert await consumer.assignment() == []
        return consumer, admin, producer

    async def use(clients: tuple[AsyncConsumer, AsyncAdmin, AsyncProducer]) -> None:
        consumer, admin, producer = clients
        for call in (
            consumer.poll(),
            consumer.assignment(),
            consumer.close(),
            admin.list_topics(),
            admin.close(),
            producer.send(Message("flights", value=b"x")),
            producer.flush(),
            producer.close(),
        ):
            with pytest.raises(WrongLoopError, match="belongs to an event loop that is closed"):
                await call

    with silent_broker() as properties:
        clients = asyncio.run(make(properties))
        asyncio.run(use(clients))
        clients[2]._client.close(0)


def test_a_client_that_is_made_before_its_loop_belongs_to_the_first_that_uses_it() -> None:
    with silent_broker() as properties:
        admin, consumer = AsyncAdmin(properties), AsyncConsumer(properties)

        async def main() -> None:
            async with consumer, admin:
                assert await consumer.assignment() == []

        run(main())


def test_closing_twice_does_nothing_and_a_closed_client_says_so() -> None:
    async def main(properties: dict[str, Any]) -> None:
        async with AsyncConsumer(properties) as consumer, AsyncAdmin(properties) as admin:
            pass
        await consumer.close()
        await admin.close()
        for call in (consumer.poll(), anext(consumer), consumer.topics(), admin.list_topics()):
            with pytest.raises(ClosedError, match="is closed"):
                await call

    with silent_broker() as properties:
        run(main(properties))


def named_threads(part: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if part in thread.name]


def test_the_thread_of_a_client_ends_with_it_and_of_a_forgotten_one_too() -> None:
    async def main(properties: dict[str, Any]) -> None:
        before = named_threads("AsyncConsumer")  # Of tests before this one, whose last call may still wait.
        async with AsyncConsumer(properties) as closed:
            await closed.assignment()
            assert set(named_threads("AsyncConsumer")) - set(before)
        forgotten = AsyncConsumer(properties)
        await forgotten.assignment()
        with pytest.warns(ResourceWarning, match="an AsyncConsumer was not closed"):
            del forgotten
            gc.collect()
        while set(named_threads("AsyncConsumer")) - set(before):
            await asyncio.sleep(0.01)

    with silent_broker() as properties:
        run(main(properties))


def test_a_producer_that_is_not_closed_says_so() -> None:
    async def main(properties: dict[str, Any]) -> None:
        producer = AsyncProducer(properties)
        ordinary = producer._client
        with pytest.warns(ResourceWarning, match="an AsyncProducer was not closed"):
            del producer
            gc.collect()
        ordinary.close(0)

    with silent_broker() as properties:
        run(main(properties))


PROGRAM = """
import asyncio, os, sys
from holdfast_log import Message, NewTopic
from holdfast_log.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
properties = {properties!r}
async def main():
    consumer = AsyncConsumer({{**properties, "group.id": "g"}})
    await consumer.add_topic("flights")
    admin, producer, other = AsyncAdmin(properties), AsyncProducer(properties), AsyncProducer(properties)
    await producer.send(Message("flights", value=b"x"))
    await other.send(Message("flights", value=b"y"))
    tasks = [asyncio.create_task(consumer.poll({long_ms})), asyncio.create_task(admin.list_topics()),
             asyncio.create_task(producer.flush())]
    await asyncio.sleep(0.1)
    print("waits", flush=True)
    {then}
{start}
"""


def program(properties: dict[str, Any], then: str, start: str = "asyncio.run(main())") -> list[str]:
    text = PROGRAM.format(properties=properties, long_ms=LONG_MS, then=then, start=start)
    return [sys.executable, "-c", text]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HOME)}


@pytest.mark.parametrize(
    "start",
    ["asyncio.run(main())", "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())\nloop.close()"],
)
def test_a_program_that_closes_nothing_ends(start: str) -> None:
    """Calls wait for ten minutes in every thread when `main` returns. Of one producer a call waits that would
    tell of its loss, of the other none: both losses are told."""
    with silent_broker() as properties:
        done = subprocess.run(
            program(properties, "return", start),
            env=environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    assert done.returncode == 0 and done.stdout == "waits\n", done.stderr
    assert "Traceback" not in done.stderr.replace("Task was destroyed", ""), done.stderr
    assert done.stderr.count("1 message was not delivered") == 2, done.stderr


def test_control_c_ends_the_block_and_the_program() -> None:
    then = "async with consumer, admin, producer: await asyncio.gather(*tasks)"
    with silent_broker() as properties:
        process = subprocess.Popen(
            program(properties, then),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "waits\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)

    assert process.returncode in (-signal.SIGINT, 130) and "KeyboardInterrupt" in errors, errors


def test_a_process_that_was_forked_is_told_to_make_its_own_clients() -> None:
    text = """
import asyncio, os
from holdfast_log import ForkedError
from holdfast_log.aio import AsyncConsumer
consumer = AsyncConsumer({"bootstrap.servers": "127.0.0.1:1"})
if os.fork() == 0:
    async def main():
        try:
            await consumer.poll(1000)
        except ForkedError as error:
            print(error, flush=True)
    asyncio.run(main())
    os._exit(0)
os.wait()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

    assert "make one in each process" in done.stdout and done.returncode == 0, done.stderr


def test_the_end_of_a_block_that_failed_keeps_its_error() -> None:
    async def main(properties: dict[str, Any]) -> None:
        with pytest.raises(asyncio.CancelledError) as raised:
            async with AsyncProducer(properties) as producer:
                await producer.send(Message("flights", value=b"x"))
                raise asyncio.CancelledError
        assert "1 message was not delivered" in str(raised.value.__notes__)
        producer = AsyncProducer(properties)
        await producer.send(Message("flights", value=b"x"))
        with pytest.raises(UndeliveredError):
            await producer.close(0)

    with silent_broker() as properties:
        run(main(properties))
