"""The compiled function and Python answer fetches of several partitions the same, whatever is sent and
whenever, and leave the same sessions behind."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast_log.broker.replication import several_fetch
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.broker.replication.drawn_fetches import CLIENTS, DrawnFetches, Refusing, state_of
from tests.broker.replication.twins import TwinBrokers
from tests.broker.world import Client, World, produce_request
from tests.models.batches import batch
from tests.models.rules import Rules

compiled: Any = several_fetch._compiled
if compiled is None:
    pytest.skip("broker/replication/_several_fetch.c was not compiled", allow_module_level=True)

PARTITIONS = (("t", 0), ("t", 1), ("t", 2), ("u", 0))


class Counted:
    """Counts the fetches that the compiled function answered or kept, and those that it left to Python."""

    def __init__(self) -> None:
        self.answered = self.kept = self.left = self.in_sessions = 0
        self.looks = self.looks_left = 0

    def begin(self, *arguments: Any) -> Any:
        begun = compiled.begin(*arguments)
        if begun is None:
            self.left += 1
        elif isinstance(begun, list):
            self.answered += 1
        else:
            self.kept += 1
            self.in_sessions += begun.session is not None
            return CountedReads(self, begun)
        return begun


class CountedReads:
    """Counts the looks at a fetch that waits."""

    def __init__(self, counted: Counted, reads: Any) -> None:
        self._counted = counted
        self._reads = reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reads, name)

    def look(self, key: Any) -> Any:
        return self._noted(self._reads.look(key))

    def end(self) -> Any:
        return self._noted(self._reads.end())

    def _noted(self, answer: Any) -> Any:
        if answer is None:
            self._counted.looks_left += 1
        else:
            self._counted.looks += 1
        return answer


class Twins(TwinBrokers):
    """Two brokers that are read from alike: the first by the compiled function, the other never."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted = Counted()
        super().__init__(directory, monkeypatch, several_fetch, self.counted, state_of, CLIENTS)


class DrawnSeveral(DrawnFetches):
    """Fetches that name any number of the partitions, in any order, sometimes one of them twice."""

    def _topics(self, world: World, version: int, *, is_first: bool) -> list[FetchTopic]:
        rng = self._rng
        if not is_first and rng.random() < 0.3:
            return []
        at_ends = rng.random() < 0.5
        count = rng.choice((2, 3, 4, 4)) if is_first or at_ends else rng.choice((1, 1, 2, 4))
        chosen = rng.sample(PARTITIONS, count)
        if rng.random() < 0.03:
            chosen.append(rng.choice((("t", 0), ("t", 7), ("é", 0))))
        if rng.random() < 0.8:
            chosen.sort()
        topics: list[FetchTopic] = []
        for topic, index in chosen:
            if not topics or topics[-1].topic != topic or rng.random() < 0.1:
                known = topic in ("t", "u")
                topic_id = world.topic_id(topic) if known else UUID(int=77)
                topics.append(FetchTopic(topic=topic, topic_id=topic_id, partitions=[]))
            topics[-1].partitions.append(self._position(world, topic, index, version, at_end=at_ends))
        return topics

    def _position(
        self, world: World, topic: str, index: int, version: int, *, at_end: bool
    ) -> FetchPartition:
        rng = self._rng
        partition = world.replicas.find(topic, index)
        end = 0 if partition is None else partition.log.log_end_offset
        led = 0 if partition is None or version < 9 else partition.leader_epoch
        offset = end if at_end else rng.choice((end, 0, max(0, end - 1), end + (rng.random() < 0.05)))
        return FetchPartition(
            partition=index,
            current_leader_epoch=rng.choice((-1, led if rng.random() < 0.98 else 1 - led)),
            fetch_offset=offset,
            last_fetched_epoch=0 if version >= 12 and rng.random() < 0.02 else -1,
            log_start_offset=rng.choice((-1, 0)),
            partition_max_bytes=rng.choice((1 << 20, 1 << 20, 1 << 20, 150, 0)),
            owner_token=5 if version >= 12 and rng.random() < 0.01 else -1,
        )

    def produce(self) -> None:
        """Append to any of the partitions."""
        topic, index = self._rng.choice(PARTITIONS)
        request = produce_request(
            topic, batch(b"x" * self._rng.choice((1, 100, 3000, 9000, 80000))), index, acks=1
        )
        self._twins.both(lambda world: world.client().ask(request))


def assign_all(world: World) -> None:
    for topic, index in PARTITIONS:
        world.assign(topic, index)


@pytest.mark.parametrize("seed", range(24))
def test_both_answer_the_same_and_leave_the_same_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    twins = Twins(tmp_path, monkeypatch)
    drawing = DrawnSeveral(rng, twins, with_transactions=seed >= 12)
    twins.both(assign_all)
    for _ in range(400):
        kind = rng.random()
        if kind < 0.65:
            drawing.fetch()
        elif kind < 0.9:
            drawing.produce()
        else:
            drawing.something_else()
        twins.answers()
        twins.reopen()
    counted = twins.counted
    # Where transactions are open, most is left to Python.
    assert counted.answered > 30 and counted.left > 8, vars(counted)
    assert min(counted.kept, counted.looks) > 1, vars(counted)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(several_fetch, "_compiled", counted)
    return counted


@pytest.fixture
def world(tmp_path: Path, counted: Counted) -> World:
    world = World(tmp_path)
    assign_all(world)
    return world


def asked(
    world: World, offsets: dict[tuple[str, int], int], session_id: int = 0, epoch: int = -1, **limits: int
) -> FetchRequest:
    """A fetch from these offsets."""
    topics = []
    for topic, index in offsets:
        wanted = FetchPartition(
            partition=index, fetch_offset=offsets[topic, index], partition_max_bytes=1 << 20
        )
        topics.append(FetchTopic(topic=topic, topic_id=world.topic_id(topic), partitions=[wanted]))
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
    request.session_id, request.session_epoch = session_id, epoch
    for name, value in limits.items():
        setattr(request, name, value)
    return request


def with_records(answer: FetchResponse) -> list[int]:
    """The partitions of an answer that have records."""
    return [each.partition_index for topic in answer.responses for each in topic.partitions if each.records]


ALL = dict.fromkeys(PARTITIONS, 0)


def produce(client: Client, topic: str, index: int, size: int = 3000) -> None:
    client.call(produce_request(topic, batch(b"x" * size), index))


@pytest.mark.parametrize("version", [4, 11, 16])
def test_a_fetch_of_several_partitions_waits_for_any_of_them(
    world: World, counted: Counted, version: int
) -> None:
    client, producer = world.client(), world.client()
    for number in range(3):
        client.ask(asked(world, {**ALL, ("t", 1): number}), version)
        assert not client.answers()
        produce(producer, "t", 1)
        (answer,) = client.answers()
        assert with_records(answer) == [1]
        assert sum(len(topic.partitions) for topic in answer.responses) == len(PARTITIONS)
    client.ask(asked(world, {**ALL, ("t", 1): 3}), version)
    world.clock.advance(1)
    (empty,) = client.answers()
    assert with_records(empty) == []
    assert (counted.kept, counted.left, counted.looks, counted.looks_left) == (4, 0, 4, 0)
    assert not len(world.replicas.readers) and not world.replicas.readers.parked


@pytest.mark.parametrize("version", [11, 16])
def test_partitions_of_a_session_take_turns_where_the_answer_has_room_for_some(
    world: World, counted: Counted, version: int
) -> None:
    client, producer = world.client(), world.client()
    opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0), version)
    for index in range(3):
        produce(producer, "t", index)
    seen = []
    for epoch in range(1, 7):
        answer = client.call(asked(world, {}, opened.session_id, epoch, max_bytes=4000), version)
        assert answer.session_id == opened.session_id
        seen.append(with_records(answer))
    assert seen == [[0], [1], [2], [0], [1], [2]]
    assert (counted.answered, counted.left) == (6, 1)
    session = world.replicas.sessions.by_id[opened.session_id]
    assert session.epoch == 7 and session.waiting is None


def test_a_session_waits_and_its_reader_gets_only_what_is_new(world: World, counted: Counted) -> None:
    client, producer = world.client(), world.client()
    opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0))
    client.ask(asked(world, {}, opened.session_id, 1))
    produce(producer, "u", 0)
    (answer,) = client.answers()
    assert [len(topic.partitions) for topic in answer.responses] == [1] and with_records(answer) == [0]
    client.ask(asked(world, {("u", 0): 1}, opened.session_id, 2))
    world.clock.advance(1)
    (empty,) = client.answers()
    assert (empty.session_id, empty.responses) == (opened.session_id, [])
    assert (counted.kept, counted.in_sessions, counted.looks, counted.looks_left) == (2, 2, 2, 0)
    client.ask(asked(world, {}, opened.session_id, 9))
    (refused,) = client.answers()
    assert refused.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_session_that_is_closed_while_its_fetch_waits_has_it_answered(world: World) -> None:
    client, other = world.client(), world.client()
    opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0))
    client.ask(asked(world, {}, opened.session_id, 1))
    other.call(asked(world, {}, opened.session_id, -1, max_wait_ms=0))
    (answer,) = client.answers()
    assert (answer.session_id, answer.responses) == (0, [])


@pytest.mark.parametrize("session", [False, True])
def test_a_partition_that_is_led_elsewhere_ends_the_wait_with_its_error(
    world: World, counted: Counted, session: bool
) -> None:
    client = world.client()
    if session:
        opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0))
        client.ask(asked(world, {}, opened.session_id, 1))
    else:
        client.ask(asked(world, ALL))
    world.assign("t", 2, leader=2, leader_epoch=1, partition_epoch=1, replicas=(1, 2), isr=(1, 2))
    (answer,) = client.answers()
    errors = [each.error_code for topic in answer.responses for each in topic.partitions]
    assert [each for each in errors if each] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert counted.kept == 1 and counted.looks_left > 0


def test_a_partition_that_another_one_owns_is_left_to_python(world: World, counted: Counted) -> None:
    world.replicas.topics["t"][1].read_admission = Refusing()
    answers = [world.client().call(asked(world, ALL, max_wait_ms=0)) for _ in range(2)]
    errors = [[each.error_code for topic in one.responses for each in topic.partitions] for one in answers]
    assert [0, ErrorCode.OWNERSHIP_FENCED, 0, 0] in errors and counted.left == 2


def judged(tmp_path: Path, denied: str) -> tuple[World, Rules]:
    """A broker whose clients have rights, and what they may not read from the next change of the rules on."""
    rules = Rules(set(), {denied})
    world = World(tmp_path, authorizer=rules)
    assign_all(world)
    return world, rules


def codes_of(answer: FetchResponse) -> set[int]:
    return {each.error_code for topic in answer.responses for each in topic.partitions}


def test_a_topic_that_the_client_may_not_read_is_left_to_python(tmp_path: Path, counted: Counted) -> None:
    world, rules = judged(tmp_path, "u")
    produce(world.client(), "u", 0)
    client = world.stranger()
    assert codes_of(client.call(asked(world, ALL, max_wait_ms=0))) == {0}
    assert (counted.answered, counted.left) == (1, 0)
    rules.denied = {(AclOperation.READ, AclResource.TOPIC)}
    answer = client.call(asked(world, ALL, max_wait_ms=0))
    assert codes_of(answer) == {0, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert (counted.answered, counted.left) == (1, 1)


def test_a_right_that_has_ended_is_asked_for_in_a_session(tmp_path: Path, counted: Counted) -> None:
    """Its request names no partition."""
    world, rules = judged(tmp_path, "u")
    client = world.stranger()
    opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0))
    produce(world.client(), "u", 0)
    assert codes_of(client.call(asked(world, {}, opened.session_id, 1, max_wait_ms=0))) == {0}
    assert (counted.answered, counted.left) == (1, 1)
    rules.denied = {(AclOperation.READ, AclResource.TOPIC)}
    produce(world.client(), "u", 0)
    answer = client.call(asked(world, {}, opened.session_id, 2, max_wait_ms=0))
    assert codes_of(answer) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert counted.answered == 1


def test_a_partition_that_is_named_twice_is_left_to_python(world: World, counted: Counted) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", topic_id=world.topic_id("t"), partitions=[wanted, wanted])]
    client = world.client()
    client.ask(FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics))
    assert (counted.kept, counted.left) == (0, 1)
    world.clock.advance(1)
    assert len(client.answers()) == 1


def test_a_fetch_that_names_too_many_partitions_is_left_to_python(world: World, counted: Counted) -> None:
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20) for _ in range(501)]
    topics = [FetchTopic(topic="t", topic_id=world.topic_id("t"), partitions=wanted)]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)
    client = world.client()
    client.ask(request)
    world.clock.advance(0)
    (answer,) = client.answers()
    assert len(answer.responses[0].partitions) == 501 and counted.left == 1


def test_waiting_fetches_hold_nothing_once_they_have_ended(world: World) -> None:
    client, producer = world.client(), world.client()
    opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0))
    client.ask(asked(world, {}, opened.session_id, 1, max_wait_ms=86_400_000))
    client.connection.connection_lost("it went away")
    other = world.client()
    other.ask(asked(world, ALL, max_wait_ms=86_400_000))
    produce(producer, "t", 0)
    assert other.answers()
    del client, other
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, compiled.Reads)]


def test_repeated_fetches_take_no_more_references(world: World) -> None:
    client, producer = world.client(), world.client()
    opened = client.call(asked(world, ALL, 0, 0, max_wait_ms=0))
    topic_id = world.topic_id("t")
    watched: Sequence[Any] = (
        *world.replicas.topics["t"].values(),
        world.replicas.sessions.by_id[opened.session_id],
        world.replicas.sessions.by_id,
        client.connection,
        topic_id,
        False,
        None,
    )

    def run(epoch: int) -> None:
        offset = world.replicas.topics["t"][0].log.log_end_offset
        client.ask(asked(world, {("t", 0): offset}, opened.session_id, epoch))
        produce(producer, "t", 0)
        client.ask(asked(world, {}, opened.session_id, epoch + 1))
        client.ask(asked(world, {("t", 1): 77, ("t", 2): 0}, max_wait_ms=0))
        client.ask(asked(world, {**ALL, ("t", 0): offset + 1}, max_wait_ms=100))
        world.clock.advance(1)
        assert len(client.answers()) == 4

    for round_ in range(20):
        run(1 + 2 * round_)
    gc.collect()
    before = [sys.getrefcount(each) for each in watched]
    for round_ in range(20, 220):
        run(1 + 2 * round_)
    gc.collect()
    after = [sys.getrefcount(each) for each in watched]
    assert all(new - old < 100 for old, new in zip(before, after, strict=True)), (before, after)
