"""Callbacks of the application run in the loop; and what is read while cancellations come between."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest

from holdfast_log import ConcurrentUseError, InsideCallbackError, RecordDeserializationError, TopicPartition
from holdfast_log.aio import AsyncConsumer, AsyncRebalanceListener
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.clients.feedback.events import ConnectionOpened, Event, RecordSkipped
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.aio.silence import WAIT_S, run, until
from tests.clients.test_consumer import FLIGHTS, fill


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    fill(cluster.add_topic("flights")[0], 100)
    return cluster


def consumer_on(cluster: FakeCluster, properties: dict[str, Any] | None = None, **more: Any) -> AsyncConsumer:
    given = {"bootstrap.servers": cluster.bootstrap, "auto.offset.reset": "earliest", **(properties or {})}
    return AsyncConsumer(given, network=cluster, rng=random.Random(1), **more)


class Gate:
    """A deserializer that stops in the consumer's thread until it may go on."""

    def __init__(self) -> None:
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, topic: str, value: bytes) -> bytes:
        self.is_reached.set()
        assert self.may_go_on.wait(WAIT_S)
        return value


@pytest.mark.parametrize("kind", ["poll", "anext"])
def test_what_a_cancelled_poll_takes_is_returned_by_the_next(cluster: FakeCluster, kind: str) -> None:
    """The records are on their way to the caller when it is cancelled."""

    async def main() -> None:
        gate = Gate()
        consumer = consumer_on(cluster, {"max.poll.records": 10}, value_deserializer=gate)
        async with consumer:
            await consumer.add_topic("flights")
            call = consumer.poll(1000) if kind == "poll" else anext(consumer)
            task = asyncio.ensure_future(call)
            await until(gate.is_reached.is_set)
            task.cancel()
            await asyncio.wait([task])
            gate.may_go_on.set()
            assert await consumer.position(FLIGHTS) == 0
            found = [record.offset for record in await consumer.poll(1000)]
            assert await consumer.position(FLIGHTS) == len(found)
            while len(found) < 100:
                found += [record.offset for record in await consumer.poll(1000)]
            assert found == list(range(100)) and (await consumer.feedback()).records == 100

    run(main())


@pytest.mark.parametrize("name", ["poll_batches", "poll_encoded"])
def test_whole_batches_of_a_cancelled_poll_are_returned_by_the_next(cluster: FakeCluster, name: str) -> None:
    async def main() -> None:
        async with consumer_on(cluster) as consumer:
            await consumer.add_topic("flights")
            found: list[int] = []
            for number in range(400):
                task = asyncio.ensure_future(getattr(consumer, name)(10))
                for _ in range(number % 40):
                    await asyncio.sleep(0)
                if number % 3:
                    task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    for batch in task.result():
                        if name == "poll_batches":
                            found += batch.columns.offsets
                        else:
                            header = batch.header
                            found += range(max(batch.start, header.base_offset), header.next_offset)
                assert await consumer.assignment() in ([], [FLIGHTS])
            assert found == list(range(100)) and (await consumer.feedback()).records == 100

    run(main())


def test_a_call_of_another_task_sees_only_what_async_for_has_come_to(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with consumer_on(cluster) as consumer:
            await consumer.add_topic("flights")
            found: list[int] = []
            async for record in consumer:
                found.append(record.offset)
                if record.offset % 7 == 3:
                    assert await consumer.position(FLIGHTS) == len(found)
                if record.offset % 13 == 5:
                    await consumer.pause(FLIGHTS)
                    await consumer.resume(FLIGHTS)
                if len(found) == 100:
                    break
            assert found == list(range(100))

    run(main())


def test_two_tasks_cannot_take_records_at_once(cluster: FakeCluster) -> None:
    async def main() -> None:
        gate = Gate()
        async with consumer_on(cluster, value_deserializer=gate) as consumer:
            await consumer.add_topic("flights")
            task = asyncio.create_task(consumer.poll(1000))
            await until(gate.is_reached.is_set)
            with pytest.raises(ConcurrentUseError, match="one task at a time"):
                await consumer.poll()
            gate.may_go_on.set()
            assert len(await task) == 100

    run(main())


def test_events_come_in_the_loop_to_functions_and_to_coroutines(cluster: FakeCluster) -> None:
    async def main() -> None:
        events: list[Event] = []
        threads: set[str] = set()

        async def on_event(event: Event) -> None:
            await asyncio.sleep(0)
            threads.add(threading.current_thread().name)
            events.append(event)
            if isinstance(event, ConnectionOpened):
                raise KeyError("of the application")

        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        consumer = consumer_on(
            cluster,
            {"deserialization.errors": "skip"},
            value_deserializer=lambda _, value: 1 // (int(value) - 5),
            on_event=on_event,
        )
        async with consumer:
            await consumer.add_topic("flights")
            assert len(await consumer.poll(1000)) == 99
            await until(lambda: any(isinstance(event, RecordSkipped) for event in events))
        assert threads == {"MainThread"} and "callback of this AsyncConsumer" in problems[0]["message"]

    run(main())


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_a_dead_letter_is_stored_by_a_function_or_by_a_coroutine(
    cluster: FakeCluster, is_coroutine: bool
) -> None:
    async def main() -> None:
        letters: list[tuple[int, bool]] = []
        refused: list[Exception] = []

        def note(error: RecordDeserializationError) -> None:
            letters.append((error.offset, threading.current_thread() is threading.main_thread()))

        async def store(error: RecordDeserializationError) -> None:
            await asyncio.sleep(0)
            try:
                await consumer.position(FLIGHTS)
            except InsideCallbackError as refusal:
                refused.append(refusal)
            note(error)

        consumer = consumer_on(
            cluster,
            {"deserialization.errors": "dead-letter"},
            value_deserializer=lambda _, value: 1 // (int(value) - 5),
            dead_letter=store if is_coroutine else note,
        )
        async with consumer:
            await consumer.add_topic("flights")
            assert len(await consumer.poll(1000)) == 99
        assert letters == [(5, is_coroutine)] and bool(refused) == is_coroutine

    run(main())


class Slow(AsyncRebalanceListener):
    """Its coroutine ends only if it is cancelled, perhaps before the loop has come to its first line."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None

    def on_partitions_assigned(self, partitions: Any) -> asyncio.Task[None]:
        self.task = asyncio.ensure_future(self._wait_for_ever())
        return self.task

    async def _wait_for_ever(self) -> None:
        await asyncio.Event().wait()


def test_a_callback_that_does_not_end_is_cancelled_after_max_poll_interval_ms(cluster: FakeCluster) -> None:
    async def main() -> None:
        listener = Slow()
        properties = {"group.id": "readers", "max.poll.interval.ms": 100, "session.timeout.ms": 100,
                      "heartbeat.interval.ms": 30}  # fmt: skip
        consumer = consumer_on(cluster, properties, rebalance_listener=listener)
        await consumer.add_topic("flights")
        with pytest.raises(
            RequestTimeoutError, match=r"on_partitions_assigned .* max\.poll\.interval\.ms=100"
        ):
            await consumer.poll(1000)
        await until(lambda: listener.task is not None and listener.task.cancelled())
        await consumer.close(0)

    run(main())


class Failing(AsyncRebalanceListener):
    def on_partitions_assigned(self, partitions: Any) -> None:
        raise KeyError("of the application")


def test_what_a_callback_raises_is_raised_by_poll(cluster: FakeCluster) -> None:
    async def main() -> None:
        consumer = consumer_on(cluster, {"group.id": "readers"}, rebalance_listener=Failing())
        async with consumer:
            await consumer.add_topic("flights")
            with pytest.raises(KeyError, match="of the application"):
                await consumer.poll(1000)

    run(main())


class Seeking(AsyncRebalanceListener):
    """Uses the consumer in every way that a listener may, while another task's call waits."""

    consumer: AsyncConsumer

    async def on_partitions_assigned(self, partitions: Any) -> None:
        other = asyncio.create_task(self.consumer.lag(FLIGHTS))
        for partition in partitions:
            await self.consumer.seek(partition, 40)
        assert await self.consumer.position(TopicPartition("flights", 0)) == 40
        await other
        await self.consumer.commit({FLIGHTS: 40})


def test_a_callback_may_use_the_consumer(cluster: FakeCluster) -> None:
    async def main() -> None:
        listener = Seeking()
        listener.consumer = consumer_on(cluster, {"group.id": "readers"}, rebalance_listener=listener)
        async with listener.consumer as consumer:
            await consumer.add_topic("flights")
            found: list[int] = []
            while len(found) < 60:
                found += [record.offset for record in await consumer.poll(1000)]
            assert found == list(range(40, 100))

    run(main())
