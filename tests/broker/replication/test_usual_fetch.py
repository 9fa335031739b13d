"""The compiled function and Python answer fetches the same, whatever is sent and whenever, and leave the same
sessions behind."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.replication import usual_fetch
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest
from tests.broker.replication.drawn_fetches import CLIENTS, DrawnFetches, state_of
from tests.broker.replication.twins import TwinBrokers
from tests.broker.world import World, fetch_request, only_fetched, produce_request
from tests.models.batches import batch

compiled: Any = usual_fetch._compiled
if compiled is None:
    pytest.skip("broker/replication/_usual_fetch.c was not compiled", allow_module_level=True)


class Counted:
    """Counts the fetches that the compiled function answered or kept, and those that it left to Python."""

    def __init__(self) -> None:
        self.answered = self.kept = self.left = self.in_sessions = 0

    def begin(self, *arguments: Any) -> Any:
        begun = compiled.begin(*arguments)
        if begun is None:
            self.left += 1
        elif isinstance(begun, list):
            self.answered += 1
        else:
            self.kept += 1
            self.in_sessions += begun.session is not None
        return begun


class Twins(TwinBrokers):
    """Two brokers that are read from alike: the first by the compiled function, the other never."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted = Counted()
        super().__init__(directory, monkeypatch, usual_fetch, self.counted, state_of, CLIENTS)


@pytest.mark.parametrize("seed", (*range(24), 27, 36, 39, 42, 58, 69, 70, 72, 73))
def test_both_answer_the_same_and_leave_the_same_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    twins = Twins(tmp_path, monkeypatch)
    drawing = DrawnFetches(rng, twins, with_transactions=seed >= 4)
    for index in (0, 1):
        twins.both(lambda world, index=index: world.assign("t", index))  # type: ignore[misc]
    for _ in range(400):
        if rng.random() < 0.7:
            drawing.fetch()
        else:
            drawing.something_else()
        twins.answers()
        twins.reopen()
    counted = twins.counted
    assert min(counted.answered, counted.kept, counted.left) > 8, vars(counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(usual_fetch, "_compiled", counted)
    return counted


@pytest.fixture
def world(tmp_path: Path, counted: Counted) -> World:
    world = World(tmp_path)
    world.assign("t")
    return world


@pytest.mark.parametrize("version", [11, 16])
def test_fetches_of_a_session_are_usual_from_the_second_one_on(
    world: World, counted: Counted, version: int
) -> None:
    client, producer = world.client(), world.client()
    opened = client.call(in_session(world, 0, 0, 0), version)
    for epoch in range(1, 6):
        client.ask(in_session(world, epoch - 1, opened.session_id, epoch), version)
        assert not client.answers()
        producer.call(produce_request("t", batch(b"one")))
        (answer,) = client.answers()
        assert (answer.session_id, only_fetched(answer).high_watermark) == (opened.session_id, epoch)
    assert (counted.left, counted.in_sessions) == (1, 5)
    session = world.replicas.sessions.by_id[opened.session_id]
    assert session.epoch == 6 and session.waiting is None
    client.ask(in_session(world, None, opened.session_id, 6), version)
    (again,) = client.answers()
    assert only_fetched(again).records, "the reader has not moved on: it gets the same once more"
    client.ask(in_session(world, 5, opened.session_id, 7), version)
    world.clock.advance(1)
    (empty,) = client.answers()
    assert (empty.session_id, empty.responses) == (opened.session_id, [])
    client.ask(in_session(world, None, opened.session_id, 9), version)
    (refused,) = client.answers()
    assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def in_session(world: World, offset: int | None, session_id: int, epoch: int) -> FetchRequest:
    """A request that names no partition without an `offset`."""
    request = fetch_request(world.topic_id("t"), offset or 0, max_wait_ms=500 if epoch else 0)
    request.topics[0].topic = "t"
    if offset is None:
        request.topics = []
    request.session_id, request.session_epoch = session_id, epoch
    return request


def test_a_session_is_not_continued_as_another_principal(world: World, counted: Counted) -> None:
    client = world.client()
    opened = client.call(in_session(world, 0, 0, 0))
    client.connection.principal = "User:another"
    client.ask(in_session(world, 0, opened.session_id, 1))
    (refused,) = client.answers()
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert counted.kept == 0


def test_a_session_that_is_closed_while_its_fetch_waits_has_it_answered(world: World) -> None:
    client, other = world.client(), world.client()
    opened = client.call(in_session(world, 0, 0, 0))
    client.ask(in_session(world, 0, opened.session_id, 1))
    closing = in_session(world, None, opened.session_id, -1)
    other.call(closing)
    (answer,) = client.answers()
    assert (answer.session_id, answer.responses) == (0, [])


def test_waiting_fetches_hold_nothing_once_they_have_ended(world: World) -> None:
    """Their deadlines are far away, and refer to them until then."""
    request = fetch_request(world.topic_id("t"), 0, max_wait_ms=86_400_000)
    for _ in range(3):
        client = world.client()
        client.ask(request)
        client.connection.connection_lost("it went away")
    del client
    gc.collect()
    kept = [each for each in gc.get_objects() if isinstance(each, compiled.Kept)]
    assert all(each.connection is None and each.reply is None and each.is_over for each in kept)
