"""Fetches of many partitions take several turns of the reactor, and are answered as if they took one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.handlers import fetch as fetch_handler
from holdfast_log.broker.handlers.fetch import TURN_NAME_BYTES, TURN_PARTITIONS
from holdfast_log.broker.replication import fetches, long_fetch
from holdfast_log.broker.replication.fetch_sessions import SessionLimits
from holdfast_log.broker.replication.long_fetch import PART_READS, LongFetch
from holdfast_log.broker.requests.answers import AnswerRows
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.world import Client, World, fetch_request, only_produced, produce_request
from tests.hostile.test_decoding_work import calls_of
from tests.models.batches import batch

EXISTING = 20
LONG_NAME = 30_000
MOST = SessionLimits().consumer_partitions_max
CALLS_MAX = 40_000
"""Of one turn, by a clock that stands still while the request is decoded, which takes 36,000. By a clock that
goes that takes turns, too. All turns make 400,000."""


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


def take_turns(world: World) -> None:
    """Take turns until none is due."""
    while any(each.getTime() <= world.clock.seconds() for each in world.clock.calls):
        take_turn(world)


def turns(world: World, client: Client, request: FetchRequest) -> tuple[list[int], FetchResponse]:
    """How many calls each turn makes, and the answer."""
    made = [calls_of(lambda: client.ask(request))]
    while not (answers := client.answers()):
        assert len(made) < 10 * MOST // PART_READS
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
    assert len(made) > MOST // PART_READS and max(made) <= CALLS_MAX, sorted(made)


def test_a_session_takes_over_a_few_partitions_in_a_turn(world: World) -> None:
    client, sessions = world.client(), world.replicas.sessions
    client.ask(of_partitions(world, MOST, session=True))
    taken_over, before = [], 0
    while not client.answers():
        take_turn(world)
        taken_over.append(sessions.partitions - before)
        before = sessions.partitions
    assert sum(taken_over) == MOST and max(taken_over) <= 200, taken_over


def test_a_session_that_takes_over_all_partitions_at_once_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetches, "NAMED_AT_ONCE", MOST)
    with pytest.raises(AssertionError):
        test_a_session_takes_over_a_few_partitions_in_a_turn(world)


def test_a_session_that_makes_room_while_it_takes_partitions_over_leaves_none(world: World) -> None:
    client, sessions = world.client(), world.replicas.sessions
    client.ask(of_partitions(world, MOST, session=True))
    while not 0 < sessions.partitions < MOST:
        take_turn(world)
    sessions.close_all_of(client.connection.id)
    take_turns(world)
    (answer,) = client.answers()
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.partitions == 0


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
    take_turns(world)
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


def naming_all(world: World, *, max_wait_ms: int, min_bytes: int = 1) -> FetchRequest:
    """A fetch without a session that names all partitions at their ends, and the first few of them so often
    that it is long."""
    request = of_partitions(world, EXISTING, session=False, max_wait_ms=max_wait_ms)
    request.min_bytes = min_bytes
    request.topics[0].partitions[3].fetch_offset = 1
    request.topics[0].partitions += request.topics[0].partitions[:5] * (TURN_PARTITIONS // 5)
    return request


def records_of(answer: FetchResponse, index: int) -> list[int]:
    rows = [row for topic in answer.responses for row in topic.partitions if row.partition_index == index]
    return [len(row.records or b"") for row in rows]


def test_a_long_fetch_waits_for_records(world: World) -> None:
    client = world.client()
    client.ask(naming_all(world, max_wait_ms=500))
    take_turns(world)
    assert not client.answers() and len(world.replicas.readers) == 1
    world.client().call(produce_request("t", batch(b"y"), 7))
    assert not client.answers(), "it is read in turns again"
    take_turns(world)
    (answer,) = client.answers()
    assert records_of(answer, 7) == [len(batch(b"y"))] and not any(records_of(answer, 3))
    assert not world.replicas.readers


def test_a_long_fetch_is_answered_when_its_time_has_passed(world: World) -> None:
    client = world.client()
    client.ask(naming_all(world, max_wait_ms=500))
    take_turns(world)
    world.clock.advance(0.5)
    take_turns(world)
    (answer,) = client.answers()
    assert not any(records_of(answer, 7)) and not world.replicas.readers and not world.answers.waiting


@pytest.mark.parametrize("session", [True, False])
def test_what_comes_while_a_long_fetch_is_read_is_not_missed(world: World, session: bool) -> None:
    for taken in range(2 * TURN_PARTITIONS // PART_READS + 5):
        client = world.client()
        request = naming_all(world, max_wait_ms=60_000)
        if session:
            request = of_partitions(world, TURN_PARTITIONS, session=True, max_wait_ms=60_000)
        for wanted in request.topics[0].partitions[:EXISTING]:
            log = world.replicas.partition("t", wanted.partition).log
            wanted.fetch_offset = log.log_end_offset
        client.ask(request)
        for _ in range(taken):
            take_turn(world)
        world.client().call(produce_request("t", batch(b"z"), 6))
        take_turns(world)
        (answer,) = client.answers()
        session_id, found = answer.session_id, records_of(answer, 6)
        for epoch in (1, 2, 3) if session and not any(found) else ():
            # The session's next fetches come to it: each reads some of the partitions that may have news.
            client.ask(next_fetch(world, session_id, epoch))
            (answer,) = client.answers()
            found += records_of(answer, 6)
        assert any(found), f"after {taken} turns"
        client.connection.connection_lost("done")


def test_what_is_read_twice_is_counted_once(world: World) -> None:
    """Records that come before the turn of their partition are read at once, and again in its turn."""
    client, request = world.client(), naming_all(world, max_wait_ms=60_000)
    named = request.topics[0].partitions
    request.topics[0].partitions = [*(row for row in named if row.partition != 6), named[6]]
    request.max_bytes = 2 * len(batch(b"y"))
    client.ask(request)
    while not world.replicas.readers:
        take_turn(world)
    for _ in range(2):
        world.client().call(produce_request("t", batch(b"y"), 6))
    take_turns(world)
    (answer,) = client.answers()
    assert records_of(answer, 6) == [request.max_bytes]


def next_fetch(world: World, session_id: int, epoch: int) -> FetchRequest:
    request = fetch_request(world.topic_id("t"), max_wait_ms=500)
    request.session_id, request.session_epoch, request.topics = session_id, epoch, []
    return request


def test_no_turn_of_a_refused_fetch_of_an_old_version_does_all_the_work(world: World) -> None:
    client = world.client()
    request = of_partitions(world, 4 * MOST, session=False)
    request.topics[0].topic = "t"
    made = [calls_of(lambda: client.ask(request, version=4))]
    while not (answers := client.answers()):
        made.append(calls_of(lambda: take_turn(world)))
    (answer,) = answers
    codes = {row.error_code for row in answer.responses[0].partitions}
    assert codes == {ErrorCode.INVALID_REQUEST} and len(answer.responses[0].partitions) == 4 * MOST
    assert max(made[1:]) <= CALLS_MAX, sorted(made)


def of_long_names(topics: int) -> FetchRequest:
    named = [
        FetchTopic(
            topic=f"{number}-".ljust(LONG_NAME, "x"),
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
        )
        for number in range(topics)
    ]
    return FetchRequest(
        replica_id=-1, session_epoch=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=named
    )


@pytest.mark.parametrize("version", [4, 7, 12])
def test_no_turn_of_a_fetch_of_long_names_copies_megabytes(
    world: World, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed: list[int] = []
    seal = AnswerRows.seal

    def noted(rows: AnswerRows[Any], version: int, *, flexible: bool) -> int:
        sealed.append(seal(rows, version, flexible=flexible))
        return sealed[-1]

    monkeypatch.setattr(AnswerRows, "seal", noted)
    client, topics = world.client(), TURN_PARTITIONS // 2
    client.ask(of_long_names(topics), version=version)
    take_turns(world)
    (answer,) = client.answers()
    assert len(answer.responses) == topics
    assert max(sealed) <= TURN_NAME_BYTES + LONG_NAME + 1_000 and sum(sealed) >= topics * LONG_NAME


@pytest.mark.parametrize("session", [True, False])
def test_all_in_one_turn_is_missed(world: World, session: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_handler, "TURN_PARTITIONS", 10**9)
    with pytest.raises(AssertionError):
        test_no_turn_of_a_fetch_of_many_partitions_does_all_the_work(world, session)


def test_parts_that_are_long_are_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_fetch, "PART_READS", 10**9)
    with pytest.raises(AssertionError):
        test_no_turn_of_a_fetch_of_many_partitions_does_all_the_work(world, False)


def test_a_long_fetch_that_is_parked_once_it_has_been_read_misses_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LongFetch, "_look", lambda fetch, key: False)
    with pytest.raises(ValueError, match="not enough values"):
        test_what_comes_while_a_long_fetch_is_read_is_not_missed(world, False)
