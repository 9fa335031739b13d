"""When the cluster is asked and how much: one look for all, answers kept for a moment, bounded reading."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log import Message
from holdfast_log.console.asking import browsing
from holdfast_log.console.asking.browsing import Browsed, BrowsePlace, BrowseRequest, Ending, browse
from holdfast_log.console.asking.lookups import Lookups
from holdfast_log.console.asking.snapshot import ClusterSnapshot
from holdfast_log.console.asking.watch import Watch
from holdfast_log.console.asking.work import Busy, QuestionWorkers
from holdfast_log.testing import FakeCluster
from tests.console.world import Hand

# The watch ------------------------------------------------------------------------------------------------


class Source:
    """Where snapshots come from: it counts, and may take a while or fail."""

    def __init__(self) -> None:
        self.count = 0
        self.took_s = 0.0
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self, before: ClusterSnapshot | None) -> ClusterSnapshot:
        self.count += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return ClusterSnapshot(self.count, 0.0, self.took_s)


def test_everybody_who_asks_at_once_gets_the_same_look() -> None:
    async def run() -> None:
        source, hand = Source(), Hand()
        watch = Watch(source, 5.0, hand)
        found = await asyncio.gather(*(watch.current() for _ in range(50)))
        assert {each.version for each in found} == {1}
        hand.at_s += 4.9
        assert (await watch.current()).version == 1
        hand.at_s += 0.2
        found = await asyncio.gather(*(watch.current() for _ in range(50)))
        assert {each.version for each in found} == {2} and source.count == 2

    asyncio.run(run())


def test_a_slow_cluster_is_asked_less_often() -> None:
    async def run() -> None:
        source, hand = Source(), Hand()
        source.took_s = 3.0
        watch = Watch(source, 5.0, hand)
        await watch.current()
        hand.at_s += 29.0
        assert (await watch.current()).version == 1
        hand.at_s += 1.1
        assert (await watch.current()).version == 2

    asyncio.run(run())


def test_one_who_gives_up_does_not_end_the_look_of_the_others() -> None:
    async def run() -> None:
        source = Source()
        source.gate.clear()
        watch = Watch(source, 5.0, Hand())
        first, second = (asyncio.create_task(watch.current()) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        source.gate.set()
        assert (await second).version == 1 and source.count == 1

    asyncio.run(run())


def test_a_look_that_fails_is_tried_again_by_the_next_who_asks() -> None:
    async def run() -> None:
        source = Source()
        watch = Watch(source, 5.0, Hand())
        source.error = RuntimeError("a bug")
        with pytest.raises(RuntimeError):
            await watch.current()
        source.error = None
        assert (await watch.current()).version == 2

    asyncio.run(run())


def test_a_fresh_look_begins_after_it_is_asked_for() -> None:
    """What was changed just now must be in it."""

    async def run() -> None:
        source = Source()
        watch = Watch(source, 5.0, Hand())
        source.gate.clear()
        current = asyncio.create_task(watch.current())
        await asyncio.sleep(0)
        fresh = asyncio.create_task(watch.fresh())
        await asyncio.sleep(0)
        source.gate.set()
        assert ((await current).version, (await fresh).version) == (1, 2)

    asyncio.run(run())


# Answers kept for a moment --------------------------------------------------------------------------------


def test_an_answer_is_kept_shared_and_bounded() -> None:
    async def run() -> None:
        asked: list[str] = []

        async def ask(key: str) -> str:
            asked.append(key)
            await asyncio.sleep(0)
            return key.upper()

        hand = Hand()
        lookups = Lookups(ask, 4.0, 3, hand)
        assert await asyncio.gather(*(lookups.find("a") for _ in range(20))) == ["A"] * 20
        assert asked == ["a"]
        for key in "bcd":
            await lookups.find(key)
        await lookups.find("a")
        assert asked == ["a", "b", "c", "d", "a"], "the oldest answer is dropped"
        hand.at_s += 5
        await lookups.find("a")
        assert len(asked) == 6

    asyncio.run(run())


def test_an_error_is_not_kept() -> None:
    async def run() -> None:
        errors = [ValueError("no"), None]

        async def ask(key: str) -> str:
            error = errors.pop(0)
            if error is not None:
                raise error
            return key

        lookups = Lookups(ask, 4.0)
        with pytest.raises(ValueError):
            await lookups.find("a")
        assert await lookups.find("a") == "a"

    asyncio.run(run())


def test_too_many_questions_are_refused() -> None:
    async def run() -> None:
        import threading

        workers = QuestionWorkers(threads=1, waiting_max=2)
        gate = threading.Event()

        def wait() -> bool:
            return gate.wait(60)

        tasks = []
        for _ in range(3):
            tasks.append(asyncio.create_task(workers(wait)))
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await workers(wait)
        gate.set()
        assert await asyncio.gather(*tasks) == [True] * 3

    asyncio.run(run())


# Messages -------------------------------------------------------------------------------------------------


def filled(partitions: int = 2, count: int = 40) -> FakeCluster:
    cluster = FakeCluster()
    cluster.create_topic("orders", partitions)
    for number in range(count):
        cluster.write(
            Message(
                "orders",
                key=f"k{number % 7}",
                value=str(number),
                partition=number % partitions,
                timestamp=1_000 + number,
            )
        )
    return cluster


def read(cluster: FakeCluster, place: BrowsePlace, **given: Any) -> Browsed:
    steady: Callable[[], float] = given.pop("steady", lambda: 0.0)
    request = BrowseRequest("orders", given.pop("partition", None), place, **given)
    with cluster.consumer({"auto.offset.reset": "earliest", "max.partition.fetch.bytes": 2_000}) as consumer:
        return browse(consumer, request, steady)


def values(found: Browsed) -> list[int]:
    return [int(record.value) for record in found.records]


def test_the_newest_of_all_partitions_are_those_with_the_latest_times() -> None:
    assert values(read(filled(), BrowsePlace.NEWEST, count=5)) == [35, 36, 37, 38, 39]


def test_a_partition_is_read_from_an_offset_and_on() -> None:
    cluster = filled()
    found = read(cluster, BrowsePlace.OFFSET, at=3, count=4, partition=1)

    assert values(found) == [7, 9, 11, 13] and found.ending is Ending.COUNT
    assert (found.from_offsets, found.positions, found.begins, found.ends) == (
        {1: 3},
        {1: 7},
        {1: 0},
        {1: 20},
    )
    assert values(read(cluster, BrowsePlace.OFFSET, at=7, count=2, partition=1)) == [15, 17]


@pytest.mark.parametrize(("at", "first"), [(0, 0), (10**18, None), (19, 19)])
def test_an_offset_outside_is_moved_inside(at: int, first: int | None) -> None:
    found = read(filled(1, 20), BrowsePlace.OFFSET, at=at, partition=0)

    assert (values(found) or [None])[0] == first and found.ending is Ending.END


def test_messages_are_found_by_time() -> None:
    assert values(read(filled(), BrowsePlace.TIME, at=1_036)) == [36, 37, 38, 39]
    assert values(read(filled(), BrowsePlace.TIME, at=5_000)) == []
    assert values(read(filled(), BrowsePlace.OLDEST, count=3)) == [0, 1, 2]


def test_messages_are_found_by_key() -> None:
    found = read(filled(), BrowsePlace.OLDEST, key=b"k3")
    assert values(found) == [3, 10, 17, 24, 31, 38] and found.looked_at == 40
    assert values(read(filled(), BrowsePlace.NEWEST, key=b"k3", count=2)) == [31, 38], (
        "the newest with the key"
    )
    assert values(read(filled(), BrowsePlace.NEWEST, key=b"nobody")) == []


def test_reading_ends_at_each_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled(1, 40)
    ticks = iter(range(10**6))
    assert (
        read(cluster, BrowsePlace.OLDEST, count=200, key=b"none", steady=lambda: next(ticks) * 4.0).ending
        is Ending.TIME
    )
    monkeypatch.setattr(browsing, "BYTES_MAX", 30)
    assert read(cluster, BrowsePlace.OLDEST, count=200).ending is Ending.BYTES
    monkeypatch.setattr(browsing, "BYTES_MAX", 10**6)
    monkeypatch.setattr(browsing, "SCANNED_BYTES_MAX", 30)
    assert read(cluster, BrowsePlace.OLDEST, count=200, key=b"none").ending is Ending.BYTES


def test_of_many_partitions_the_first_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browsing, "PARTITIONS_MAX", 3)
    found = read(filled(5, 50), BrowsePlace.OLDEST, count=200)

    assert found.left_out == 2 and set(found.positions) == {0, 1, 2} and len(found.records) == 30
