"""Fetches that wait, and whose records are not in memory when their wait ends: a worker reads them first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.handlers.fetch import FetchHandler
from holdfast_log.broker.log.disk import OsFile
from holdfast_log.broker.replication import usual_fetch
from tests.broker.world import World, fetch_request, produce_request
from tests.models.batches import batch


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.assign("t")
    return world


def make_cold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OsFile, "is_cached", lambda self, size, position: False)
    world.workers.is_held = True


@pytest.mark.parametrize("in_session", [False, True])
@pytest.mark.usefixtures("either_way")
def test_a_fetch_whose_wait_ends_is_answered_once_the_disk_has_answered(
    world: World, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    client, producer = world.client(), world.client()
    request = fetch_request(world.topic_id("t"), min_bytes=1000, max_wait_ms=500)
    if in_session:
        request.max_wait_ms, request.session_epoch = 0, 0
        request.session_id = client.call(request).session_id
        request.max_wait_ms, request.session_epoch = 500, 1
    client.ask(request)
    producer.call(produce_request("t", batch(b"x" * 100)))
    make_cold(world, monkeypatch)
    world.clock.advance(1)
    assert not client.answers() and world.workers.jobs
    world.workers.release()
    (answer,) = client.answers()
    assert [each.partition_index for topic in answer.responses for each in topic.partitions if each.records]


@pytest.mark.usefixtures("either_way")
def test_nobody_is_answered_who_went_away_while_the_disk_was_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, producer = world.client(), world.client()
    client.ask(fetch_request(world.topic_id("t"), min_bytes=1000, max_wait_ms=500))
    producer.call(produce_request("t", batch(b"x" * 100)))
    make_cold(world, monkeypatch)
    world.clock.advance(1)
    client.connection.connection_lost("it went away")
    world.workers.release()
    assert not list(client.wire.frames())


def asked_late(answer_of: Callable[[FetchHandler, Any], Any]) -> Any:
    """Looks at the fetch when the disk has answered, not before."""

    def mutant(self: FetchHandler, kept: Any) -> Any:
        return lambda *read: None if kept.connection is None else answer_of(self, kept)(*read)

    return mutant


@pytest.mark.parametrize("in_session", [False, True])
def test_it_is_noticed_if_what_answers_a_fetch_is_asked_for_once_the_fetch_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_session: bool
) -> None:
    if usual_fetch._compiled is None:
        pytest.skip("broker/replication/_usual_fetch.c was not compiled")
    for name in ("_answer_kept", "_answer_kept_session"):
        monkeypatch.setattr(FetchHandler, name, asked_late(getattr(FetchHandler, name)))
    world = World(tmp_path)
    world.assign("t")
    with pytest.raises(ValueError, match="not enough values"):
        test_a_fetch_whose_wait_ends_is_answered_once_the_disk_has_answered(world, monkeypatch, in_session)
