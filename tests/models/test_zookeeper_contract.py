"""The model of ZooKeeper and the real server give the same answers to the same requests."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.coordinator.zookeeper.interface import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestTooLarge,
    SetData,
    Stat,
    WatchEvent,
    WatchKind,
    ZooKeeperError,
    ZooKeeperSession,
)
from tests.models.grounds import Ground, LaggingGround, ModelGround, ServerGround


async def error_of(operation: Any) -> type[BaseException]:
    with pytest.raises(ZooKeeperError) as caught:
        await operation
    return caught.type


def test_stats_show_the_creation_and_each_change_of_a_znode(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        path, made = await session.create("/a", b"1")
        assert (path, made.version, made.ephemeral_owner, made.czxid) == ("/a", 0, 0, made.mzxid)
        assert await session.get("/a") == (b"1", made)
        changed = await session.set("/a", b"2", version=0)
        assert (changed.version, changed.czxid) == (1, made.czxid)
        assert changed.mzxid > made.mzxid
        assert await session.exists("/a") == changed
        await session.delete("/a", version=1)
        assert await session.exists("/a") is None

    ground.play(scenario)


def test_invalid_operations_raise_their_errors(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        assert await error_of(session.get("/none")) is NoNode
        assert await error_of(session.children("/none")) is NoNode
        assert await error_of(session.create("/none/below")) is NoNode
        assert await error_of(session.set("/none", b"")) is NoNode
        assert await error_of(session.delete("/none")) is NoNode
        await session.create("/a")
        assert await error_of(session.create("/a")) is NodeExists
        assert await error_of(session.set("/a", b"", version=7)) is BadVersion
        assert await error_of(session.delete("/a", version=7)) is BadVersion
        await session.create("/a/b")
        assert await error_of(session.delete("/a")) is NotEmpty

    ground.play(scenario)


def test_a_multi_makes_all_its_writes_or_none(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        await session.create("/guard")
        results = await session.multi(
            [Check("/guard", 0), Create("/a", b"x", ephemeral=True), SetData("/guard", b"y", 0)]
        )
        assert results[:2] == [None, "/a"]
        assert isinstance(results[2], Stat)
        stat = await session.exists("/a")
        assert stat is not None
        assert stat.ephemeral_owner == session.session_id
        assert stat.czxid == results[2].mzxid
        with pytest.raises(MultiFailed) as failed:
            await session.multi([Create("/b"), Check("/guard", 0), Delete("/a")])
        assert (failed.value.index, type(failed.value.cause)) == (1, BadVersion)
        assert await session.exists("/b") is None
        await session.multi([Create("/b"), Create("/b/below")])
        assert await session.children("/b") == ["below"]

    ground.play(scenario)


def test_a_request_that_zookeeper_would_not_take_fails_and_disturbs_no_other(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        await session.create("/a", b"x" * 900_000)
        before = session.exists("/a")
        for write in (
            session.create("/b", b"x" * 1_100_000),
            session.set("/a", b"y" * 1_100_000),
            session.multi([Create("/b", b"x" * 1_100_000)]),
            session.multi([Create(f"/c{number}", b"x" * 300_000) for number in range(4)]),
        ):
            assert await error_of(write) is RequestTooLarge
        stat = await before
        assert stat is not None
        assert (await session.get("/a"))[1] == stat
        assert await session.children("/") in (["a"], ["a", "zookeeper"])

    ground.play(scenario)


def test_get_all_reads_several_znodes_in_one_request(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        await session.create("/a", b"x" * 100_000)
        await session.create("/b")
        first, second = await session.get("/a"), await session.get("/b")
        assert await session.get_all(["/b", "/none", "/a"]) == [second, None, first]
        assert await session.get_all([]) == []

    ground.play(scenario)


def test_watches_fire_once_before_later_answers_and_in_order(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session, other = ground.client().session, ground.client().session
        order: list[object] = []
        await session.create("/a")
        await session.get("/a", order.append)
        await session.children("/", order.append)
        await session.exists("/later", order.append)
        await other.multi([SetData("/a", b"1"), Create("/later")])
        await other.set("/a", b"2")
        while (await session.get("/a"))[0] != b"2":
            pass
        order.append("read")
        assert order == [
            WatchEvent(WatchKind.CHANGED, "/a"),
            WatchEvent(WatchKind.CREATED, "/later"),
            WatchEvent(WatchKind.CHILDREN, "/"),
            "read",
        ]

    ground.play(scenario)


def test_a_watch_on_children_fires_when_the_parent_is_deleted(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        events: list[WatchEvent] = []
        await session.create("/a")
        await session.children("/a", events.append)
        await session.exists("/a", events.append)
        await session.delete("/a")
        await session.exists("/a")
        assert [event.kind for event in events] == [WatchKind.DELETED, WatchKind.DELETED]

    ground.play(scenario)


def test_ephemeral_znodes_go_when_their_session_is_closed(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        owner, other = ground.client(), ground.client().session
        await owner.session.create("/mine", ephemeral=True)
        gone: list[WatchEvent] = []
        assert await other.exists("/mine", gone.append) is not None
        await owner.close()
        while await other.exists("/mine") is not None:
            pass
        assert gone == [WatchEvent(WatchKind.DELETED, "/mine")]

    ground.play(scenario)


@pytest.mark.parametrize("ground", ["model", "lagging", "server"], indirect=True)
def test_requests_before_the_first_connection_wait_for_it(ground: Ground) -> None:
    async def scenario(ground: Ground) -> None:
        session = ground.client().session
        assert session.session_id == 0
        assert (await session.create("/a"))[0] == "/a"
        assert session.session_id != 0

    ground.play(scenario)


PATHS = ("/a", "/b", "/a/x", "/a/y", "/b/x", "/a/x/1")


def operation(rng: random.Random, session: ZooKeeperSession) -> Any:
    """One random request."""
    path = rng.choice(PATHS)
    version = rng.choice([ANY_VERSION, ANY_VERSION, 0, 1, 2])
    requests: list[Callable[[], Any]] = [
        lambda: session.create(path, b"c"),
        lambda: session.create(path, b"c"),
        lambda: session.create(path + "/n", sequence=True),
        lambda: session.set(path, b"s", version),
        lambda: session.delete(path, version),
        lambda: session.get(path),
        lambda: session.get_all(rng.sample(PATHS, rng.randint(0, 4))),
        lambda: session.exists(path),
        lambda: session.children(path),
        lambda: session.multi([Create(path), Check(rng.choice(PATHS), version), SetData(path, b"m", 0)]),
        lambda: session.multi([Delete(path, version), Create(path, b"again")]),
    ]
    return rng.choice(requests)()


def told(outcome: Any, zxids: dict[int, int]) -> Any:
    """An answer in comparable form: transaction ids become numbers in the order of their appearance."""
    match outcome:
        case Stat():
            numbers = tuple(zxids.setdefault(zxid, len(zxids)) for zxid in (outcome.czxid, outcome.mzxid))
            return (*numbers, outcome.version, outcome.ephemeral_owner != 0)
        case MultiFailed():
            return outcome.index, type(outcome.cause).__name__
        case ZooKeeperError():
            return type(outcome).__name__
        case tuple() | list():
            return [told(item, zxids) for item in outcome]
        case _:
            return outcome


async def conversation(ground: Ground, seed: int) -> list[Any]:
    rng, session, zxids = random.Random(seed), ground.client().session, dict[int, int]()
    answers = []
    for _ in range(300):
        try:
            answers.append(told(await operation(rng, session), zxids))
        except ZooKeeperError as error:
            answers.append(told(error, zxids))
    return answers


@pytest.mark.parametrize("seed", range(3))
def test_the_model_and_the_server_answer_random_requests_alike(zookeeper: str, seed: int) -> None:
    server = ServerGround(zookeeper)
    try:
        expected = server.play(lambda ground: conversation(ground, seed))
    finally:
        server.close()
    for model in (ModelGround(), LaggingGround()):
        assert model.play(lambda ground: conversation(ground, seed)) == expected
