"""Fetches of many partitions take several turns of the reactor, and are answered as if they took one."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.handlers import fetch as fetch_handler
from holdfast_log.broker.handlers.fetch import TURN_PARTITIONS
from holdfast_log.broker.replication.fetch_sessions import SessionLimits
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from tests.broker.world import Client, World, fetch_request, only_produced, produce_request
from tests.hostile.test_decoding_work import calls_of
from tests.models.batches import batch

EXISTING = 20
MOST = SessionLimits().consumer_partitions_max
CALLS_MAX = 250_000
"""Of one turn. A call and what follows it takes 0.2 µs at most: these take 50 ms. All turns make 400,000."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for index in range(EXISTING):
        world.assign("t", index)
    world.client().call(produce_request("t", batch(b"x"), 3))
    return world


def of_partitions(world: World, count: int, *, session: bool, max_wait_ms: int = 0) -> FetchRequest:
    request = fetch_request(world.topic_id("t"), max_wait_ms=max_wait_ms)
    request.session_epoch = 0 if session else -1
    request.topics[0].partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20) for index in range(count)
    ]
    return request


def take_turn(world: World) -> None:
    """Make the calls that are due, but not those that they ask for."""
    due = [each for each in world.clock.calls if each.getTime() <= world.clock.seconds()]
    for call in due:
        world.clock.calls.remove(call)
        call.called = 1
        call.func(*call.args, **call.kw)


def turns(world: World, client: Client, request: FetchRequest) -> tuple[list[int], FetchResponse]:
    """How many calls each turn makes, and the answer."""
    made = [calls_of(lambda: client.ask(request))]
    while not (answers := client.answers()):
        assert len(made) < 10
        made.append(calls_of(lambda: take_turn(world)))
    (answer,) = answers
    return made, answer


@pytest.mark.parametrize("session", [True, False])
def test_no_turn_of_a_fetch_of_many_partitions_does_all_the_work(world: World, session: bool) -> None:
    request = of_partitions(world, MOST, session=session)
    turns(world, world.client(), request)  # What is made once is made.
    made, answer = turns(world, world.client(), request)
    rows = [row for topic in answer.responses for row in topic.partitions]
    codes = [row.error_code for row in rows]
    assert [row.partition_index for row in rows] == list(range(MOST))
    assert codes == [0] * EXISTING + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (MOST - EXISTING)
    assert [len(row.records or b"") for row in rows[:5]] == [0, 0, 0, len(batch(b"x")), 0]
    assert len(made) == 3 and max(made) <= CALLS_MAX, made


def test_a_fetch_of_few_partitions_takes_one_turn(world: World) -> None:
    made, _ = turns(world, world.client(), of_partitions(world, TURN_PARTITIONS - 1, session=True))
    assert len(made) == 1


def test_what_a_client_sends_ahead_waits_for_its_long_fetch(world: World) -> None:
    client = world.client()
    client.ask_together(
        [
            of_partitions(world, TURN_PARTITIONS, session=True),
            produce_request("t", batch(b"y")),
            of_partitions(world, TURN_PARTITIONS, session=False),
        ]
    )
    assert client.answers() == []
    assert world.replicas.partition("t", 0).high_watermark == 0, "the write comes after the fetch"
    for _ in range(20):
        world.clock.advance(0)
    first, produced, second = client.answers()
    assert only_produced(produced).base_offset == 0
    ends = [each.responses[0].partitions[0].high_watermark for each in (first, second)]
    assert ends == [0, 1]
    assert first.session_id and not second.session_id


def test_a_refused_long_fetch_is_answered(world: World) -> None:
    _, answer = turns(world, world.client(), of_partitions(world, MOST + 1, session=True))
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_a_long_fetch_whose_client_goes_away_leaves_nothing(world: World) -> None:
    for taken in range(3):
        client = world.client()
        request = of_partitions(world, EXISTING, session=False, max_wait_ms=500)
        request.topics[0].partitions *= TURN_PARTITIONS // EXISTING
        client.ask(request)
        for _ in range(taken):
            take_turn(world)
        client.connection.connection_lost("it went away")
        world.clock.advance(1)
        assert not world.replicas.readers and not world.answers.waiting


def test_all_in_one_turn_is_missed(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_handler, "TURN_PARTITIONS", 10**9)
    with pytest.raises(AssertionError):
        test_no_turn_of_a_fetch_of_many_partitions_does_all_the_work(world, True)
