"""The asyncio clients against a real broker: groups, transactions, owners, and callers that are cancelled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest

from holdfast_log import (
    ClaimState,
    InsideCallbackError,
    Message,
    NewTopic,
    OffsetMismatchError,
    OwnershipEvent,
    OwnershipRefusedError,
    ProducerAccessMode,
    ProducerFencedError,
    TopicExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
)
from holdfast_log.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncExclusiveConsumer,
    AsyncExclusiveProducer,
    AsyncProducer,
    AsyncRebalanceListener,
)
from holdfast_log.broker.tools.broker_process import BackgroundBroker

WAIT_MS = 60_000
WAIT_S = 60
LASTING: dict[str, Any] = {"session_timeout_ms": 60_000}
"""Options of an owner that keeps its resource on a machine that stands still for a while."""


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of its own; on an idle machine nothing of a test takes a minute."""

    async def bounded() -> None:
        async with asyncio.timeout(8 * WAIT_S):
            await coroutine

    asyncio.run(bounded())


def at(broker: BackgroundBroker, **properties: Any) -> dict[str, Any]:
    return {"bootstrap.servers": broker.address, **properties}


def reading(broker: BackgroundBroker, group: str, **properties: Any) -> dict[str, Any]:
    return at(
        broker,
        **{
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **properties,
        },
    )


async def make_topic(broker: BackgroundBroker, name: str, partitions: int = 1) -> None:
    async with AsyncAdmin(at(broker)) as admin:
        await admin.create_topics([NewTopic(name, partitions=partitions)])


async def fill(broker: BackgroundBroker, topic: str, count: int, partition: int | None = 0) -> None:
    async with AsyncProducer(at(broker)) as producer:
        for number in range(count):
            await producer.send(Message(topic, value=b"%d" % number, partition=partition))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.01)


async def committed(broker: BackgroundBroker, group: str, partition: TopicPartition) -> int | None:
    async with AsyncAdmin(at(broker)) as admin:
        found = (await admin.list_group_offsets(group)).get(partition)
    return None if found is None else found.offset


# -- producing and administering -----------------------------------------------------------------------------


def test_what_is_sent_is_read_in_order(broker: BackgroundBroker, topic: str) -> None:
    async def main() -> None:
        await make_topic(broker, topic)
        async with AsyncProducer(at(broker)) as producer:
            responses = [await producer.send(Message(topic, value=b"%d" % number)) for number in range(100)]
            assert [(await response).offset for response in responses] == list(range(100))
            assert (await producer.publish(Message(topic, value=b"100"))).offset == 100
            bulk = await producer.send_many(topic, [b"%d" % number for number in range(101, 200)])
            assert (await bulk).offset == 199 and await producer.flush()
            group = await producer.send(Message(topic, value=b"200"), Message(topic, value=b"201"))
            assert (await group).offset == 201
            with pytest.raises(OffsetMismatchError):
                await (await producer.send_at(7, Message(topic, value=b"no", partition=0)))
            at_end = await producer.send_at(202, Message(topic, value=b"202", partition=0))
            assert (await at_end).offset == 202 and producer.partitions_for(topic) == 1
            assert producer.feedback().records_acknowledged == 203
        found: list[bytes | None] = []
        async with AsyncConsumer(at(broker, **{"auto.offset.reset": "earliest"})) as consumer:
            await consumer.add_topic(topic)
            async for record in consumer:
                found.append(record.value)
                if len(found) == 203:
                    break
        assert found == [b"%d" % number for number in range(203)]

    run(main())


def test_the_admin_client_describes_and_refuses(broker: BackgroundBroker, topic: str) -> None:
    async def main() -> None:
        async with AsyncAdmin(at(broker)) as admin:
            await admin.create_topics([NewTopic(topic, partitions=3)])
            with pytest.raises(TopicExistsError):
                await admin.create_topics([NewTopic(topic, partitions=3)])
            names, described = await asyncio.gather(admin.list_topics(), admin.describe_topics([topic]))
            assert topic in names and len(described[0].partitions) == 3
            for _ in range(50):
                task = asyncio.create_task(admin.describe_topics([topic]))
                await asyncio.sleep(0)
                task.cancel()
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.describe_topics([f"{topic}-none"])
            assert admin.feedback().connection.total.failures == 0

    run(main())


# -- cancellation --------------------------------------------------------------------------------------------


def test_a_storm_of_cancelled_polls_loses_and_repeats_no_record(broker: BackgroundBroker, topic: str) -> None:
    count, partition, group = 800, TopicPartition(topic, 0), f"{topic}-group"

    async def main() -> None:
        await make_topic(broker, topic)
        chance = random.Random(1)
        offsets: list[int] = []
        cancelled = 0
        producing = asyncio.create_task(fill(broker, topic, count))
        async with AsyncConsumer(reading(broker, group, **{"max.poll.records": 25})) as consumer:
            await consumer.add_topic(topic)
            while len(offsets) < count or cancelled < 250:
                kind = chance.randrange(3)
                task: asyncio.Task[Any]
                if kind == 0:
                    task = asyncio.create_task(consumer.poll(WAIT_MS if len(offsets) < count else 5))
                elif kind == 1:
                    task = asyncio.create_task(consumer.poll_batches(5))
                else:
                    task = asyncio.create_task(anext(consumer))
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(chance.choice((0, 0.0002)))
                if chance.random() < 0.8 or len(offsets) >= count:
                    task.cancel()
                try:
                    found = await task
                except asyncio.CancelledError:
                    cancelled += 1
                else:
                    if kind == 0:
                        offsets += [record.offset for record in found]
                    elif kind == 1:
                        offsets += [offset for batch in found for offset in batch.columns.offsets]
                    else:
                        offsets.append(found.offset)
                if chance.random() < 0.1 and offsets:
                    await consumer.commit()
                    assert await committed_by(consumer, partition) == len(offsets)
        await producing
        assert offsets == list(range(count))
        print(f"{cancelled} polls were cancelled")

    run(main())


async def committed_by(consumer: AsyncConsumer, partition: TopicPartition) -> int | None:
    found = (await consumer.committed([partition]))[partition]
    return None if found is None else found.offset


def test_async_for_commits_only_what_it_has_come_to(broker: BackgroundBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    async def main() -> None:
        await make_topic(broker, topic)
        await fill(broker, topic, 300)
        offsets: list[int] = []
        async with AsyncConsumer(reading(broker, f"{topic}-group")) as consumer:
            await consumer.add_topic(topic)
            async for record in consumer:
                offsets.append(record.offset)
                if len(offsets) % 50 == 0:
                    await consumer.commit()
                    assert await committed_by(consumer, partition) == len(offsets)
                    assert await consumer.position(partition) == len(offsets)
                    assert await consumer.lag(partition) == 300 - len(offsets)
                if len(offsets) == 300:
                    break
        assert offsets == list(range(300))

    run(main())


def test_an_automatic_commit_covers_what_async_for_has_come_to(broker: BackgroundBroker, topic: str) -> None:
    group = f"{topic}-group"

    async def main() -> None:
        await make_topic(broker, topic)
        await fill(broker, topic, 100)
        async with AsyncConsumer(reading(broker, group, **{"enable.auto.commit": True})) as consumer:
            await consumer.add_topic(topic)
            async for record in consumer:
                if record.offset == 41:
                    break
        assert await committed(broker, group, TopicPartition(topic, 0)) == 42

    run(main())


# -- groups --------------------------------------------------------------------------------------------------


class Committing(AsyncRebalanceListener):
    """Commits what is revoked, in a coroutine, as most listeners do."""

    def __init__(self) -> None:
        self.consumer: AsyncConsumer | None = None
        self.assigned: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []
        self.problems: list[BaseException] = []

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.consumer is not None
        await asyncio.sleep(0)
        await self.consumer.commit()
        for call in (self.consumer.poll, self.consumer.close):
            try:
                await call()
            except InsideCallbackError as error:
                self.problems.append(error)
        self.revoked += partitions

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Awaitable[None] | None:
        self.assigned += partitions
        return None


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_two_consumers_of_one_loop_share_a_topic(broker: BackgroundBroker, topic: str, protocol: str) -> None:
    topic = topic.replace("[", "-").replace("]", "")
    properties = reading(broker, f"{topic}-group", **{"group.protocol": protocol, "max.poll.records": 7})
    if protocol == "classic":
        properties |= {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 100}

    async def consume(listener: Committing, seen: Counter[tuple[int, int]], has_come: asyncio.Event) -> None:
        async with AsyncConsumer(properties, rebalance_listener=listener) as consumer:
            listener.consumer = consumer
            await consumer.add_topic(topic)
            async for record in consumer:
                seen[record.partition, record.offset] += 1
                has_come.set()
                await asyncio.sleep(0)

    async def main() -> None:
        await make_topic(broker, topic, 4)
        seen: Counter[tuple[int, int]] = Counter()
        listeners, tasks = [Committing(), Committing()], []
        is_enough = asyncio.Event()
        producing = asyncio.create_task(produce_slowly(broker, topic, is_enough))
        for listener in listeners:
            has_come = asyncio.Event()
            tasks.append(asyncio.create_task(consume(listener, seen, has_come)))
            await has_come.wait()
        await until(lambda: bool(listeners[0].revoked) or tasks[0].done())
        is_enough.set()
        count = await producing
        await until(lambda: len(seen) == count or any(task.done() for task in tasks))
        tasks[0].cancel()  # The other one takes over its partitions, and reads on.
        await asyncio.wait([tasks[0]])
        await until(lambda: len(listeners[1].assigned) >= 4)
        await fill(broker, topic, 1, 0)
        await until(lambda: len(seen) == count + 1)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        assert set(seen.values()) == {1}
        assert listeners[0].revoked and listeners[0].problems
        assert all(task.cancelled() for task in tasks)

    run(main())


async def produce_slowly(broker: BackgroundBroker, topic: str, is_enough: asyncio.Event) -> int:
    """Sends until it is enough; how many messages."""
    count = 0
    async with AsyncProducer(at(broker)) as producer:
        while not is_enough.is_set():
            await producer.send(Message(topic, value=b"%d" % count, partition=count % 4))
            count += 1
            if count % 10 == 0:
                await asyncio.sleep(0.02)
    return count


def test_other_tasks_need_not_wait_for_a_poll(broker: BackgroundBroker, topic: str) -> None:
    async def main() -> None:
        await make_topic(broker, topic)
        async with AsyncConsumer(reading(broker, f"{topic}-group")) as consumer:
            await consumer.add_topic(topic)
            polling = asyncio.create_task(consumer.poll(10 * WAIT_MS))
            await until_assigned(consumer)
            assert await consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 0}
            assert not polling.done()
            await fill(broker, topic, 3)
            found = [record.offset for record in await polling]  # Of the first batch, which may be smaller.
            assert found
            while len(found) < 3:
                found += [record.offset for record in await consumer.poll(WAIT_MS)]
            assert found == [0, 1, 2]
            polling = asyncio.create_task(consumer.poll(10 * WAIT_MS))
            await asyncio.sleep(0)
            consumer.wake()
            assert await polling == []

    run(main())


async def until_assigned(consumer: AsyncConsumer) -> None:
    while not await consumer.assignment():
        await asyncio.sleep(0.01)


# -- transactions --------------------------------------------------------------------------------------------


def test_consume_transform_produce_counts_every_record_once(broker: BackgroundBroker, topic: str) -> None:
    """The task is cancelled again and again, at any place, and another one goes on with the same ids."""
    source, sink, count, group = f"{topic}-in", f"{topic}-out", 300, f"{topic}-group"

    async def transform() -> None:
        properties = at(broker, **{"transactional.id": f"{topic}-transform"})
        async with (
            AsyncProducer(properties) as producer,
            AsyncConsumer(
                reading(broker, group, **{"max.poll.records": 20, "session.timeout.ms": 60_000})
            ) as consumer,
        ):
            await producer.init_transactions()
            await consumer.add_topic(source)
            while True:
                records = await consumer.poll(WAIT_MS)
                if not records:
                    continue
                async with producer.transaction() as t:
                    for record in records:
                        await t.send(Message(sink, value=b"out of " + (record.value or b""), partition=0))
                    ends = {TopicPartition(r.topic, r.partition): r.offset + 1 for r in records}
                    await t.send_offsets(ends, await consumer.group_metadata())

    async def main() -> None:
        await make_topic(broker, source)
        await make_topic(broker, sink)
        await fill(broker, source, count)
        chance, found = random.Random(3), []
        properties = at(broker, **{"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        async with AsyncConsumer(properties) as reader:
            await reader.add_topic(sink, 0)
            rounds = 0
            while len(found) < count:
                rounds += 1
                task = asyncio.create_task(transform())
                until_s = asyncio.get_running_loop().time() + chance.uniform(0.1, 0.6)
                while len(found) < count and (rounds > 5 or asyncio.get_running_loop().time() < until_s):
                    found += [record.value for record in await reader.poll(20)]
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled(), task.exception()
            found += [record.value for record in await reader.poll(200)]
        assert found == [b"out of %d" % number for number in range(count)]

    run(main())


def test_a_transaction_ends_as_its_block_does(broker: BackgroundBroker, topic: str) -> None:
    async def main() -> None:
        await make_topic(broker, topic)
        async with AsyncProducer(at(broker, **{"transactional.id": topic})) as producer:
            async with producer.transaction() as t:
                await t.send(Message(topic, value=b"committed"))
            with pytest.raises(KeyError):
                async with producer.transaction() as t:
                    await t.send(Message(topic, value=b"aborted"))
                    raise KeyError
            t = await producer.transaction()
            await t.send(Message(topic, value=b"committed too"))
            await t.commit()

            has_sent = asyncio.Event()

            async def hang() -> None:
                async with producer.transaction() as t:
                    await t.send(Message(topic, value=b"cancelled"))
                    has_sent.set()
                    await asyncio.Event().wait()

            hanging = asyncio.create_task(hang())
            await has_sent.wait()
            hanging.cancel()
            await asyncio.wait([hanging])
            assert hanging.cancelled()
            async with producer.transaction() as t:
                await t.send_many(topic, [b"the last"])
        properties = at(broker, **{"auto.offset.reset": "earliest", "isolation.level": "read_committed"})
        async with AsyncConsumer(properties) as consumer:
            await consumer.add_topic(topic)
            found: list[bytes | None] = []
            while len(found) < 3:
                found += [record.value for record in await consumer.poll(WAIT_MS)]
        assert found == [b"committed", b"committed too", b"the last"]

    run(main())


# -- owners --------------------------------------------------------------------------------------------------


def test_an_exclusive_producer_waits_takes_and_is_fenced(broker: BackgroundBroker, topic: str) -> None:
    told: list[ClaimState] = []

    async def on_ownership(event: OwnershipEvent) -> None:
        await asyncio.sleep(0)
        told.append(event.state)

    async def main() -> None:
        await make_topic(broker, topic)
        first = AsyncExclusiveProducer(at(broker), topic, on_ownership=on_ownership, **LASTING)
        async with first:
            assert first.has_access and first.epoch() is not None and first.fence()
            with pytest.raises(OwnershipRefusedError):
                await AsyncExclusiveProducer(at(broker), topic, **LASTING)
            await first.publish(Message(topic, value=b"mine"))
            waiting = AsyncExclusiveProducer(
                at(broker), topic, ProducerAccessMode.WAIT_FOR_EXCLUSIVE, **LASTING
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting._begin(), 0.3)
            fencing = AsyncExclusiveProducer(
                at(broker), topic, ProducerAccessMode.EXCLUSIVE_WITH_FENCING, **LASTING
            )
            async with fencing as second:
                events = second.ownership_events()
                while (await anext(events)).state is not ClaimState.HELD:
                    pass
                lost = first.ownership_events()
                while (await anext(lost)).state is not ClaimState.LOST:
                    pass
                with pytest.raises(ProducerFencedError):
                    await first.publish(Message(topic, value=b"not mine"))
                await second.publish(Message(topic, value=b"hers"))
        await until(lambda: ClaimState.LOST in told)
        assert ClaimState.HELD in told

    run(main())


def test_an_exclusive_consumer_seeks_when_it_is_granted(broker: BackgroundBroker, topic: str) -> None:
    partition = TopicPartition(topic, 0)

    async def main() -> None:
        await make_topic(broker, topic)
        await fill(broker, topic, 10)

        async def on_ownership(event: OwnershipEvent) -> None:
            if event.state is ClaimState.HELD:
                await asyncio.sleep(0)
                await consumer.seek(partition, 4)

        properties = at(broker, **{"auto.offset.reset": "earliest"})
        consumer = AsyncExclusiveConsumer(
            properties, topic, [partition], on_ownership=on_ownership, **LASTING
        )
        async with consumer:
            offsets = [(await anext(consumer)).offset for _ in range(6)]
            assert offsets == [4, 5, 6, 7, 8, 9] and consumer.is_owner
            assert consumer.generation(partition) == (await anext(consumer.ownership_events())).generation
            async with AsyncExclusiveConsumer(properties, topic, [partition], **LASTING) as other:
                with pytest.raises(OwnershipRefusedError):
                    await other.poll(WAIT_MS)

    run(main())
