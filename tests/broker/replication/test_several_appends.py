"""A produce request of many partitions: all of its batches are appended once, or what is refused is answered,
whichever way it takes."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.replication import usual_append
from holdfast_log.broker.replication.held_requests import HeldRequests
from holdfast_log.protocol.acls import AclOperation, AclResource
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.replication.drawn_appends import (
    UNUSUAL,
    Requests,
    Twins,
    compiled,
    frame_of,
    logs_of,
)
from tests.broker.world import World
from tests.models.batches import START_MS, batch
from tests.models.rules import Rules

needs_compiled = pytest.mark.skipif(
    compiled is None, reason="broker/replication/_usual_append.c was not compiled, or is switched off"
)
TOPICS = ("t", "u" * 100, "v")
INDEXES = 25
CONFIGS: list[dict[str, Any]] = [
    {},
    {"min.insync.replicas": 2, "segment.bytes": 2000},
    {"message.timestamp.before.max.ms": 2000, "max.message.bytes": 400, "flush.messages": 3},
]


def lead(world: World) -> None:
    for topic in TOPICS:
        for index in range(INDEXES):
            replicas = (1, 2) if index == 20 else (1,)
            world.assign(topic, index, replicas=replicas, isr=replicas)


@needs_compiled
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_both_answer_requests_of_many_partitions_the_same_and_leave_the_same_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    twins, requests = Twins(tmp_path, monkeypatch, config), Requests(random.Random(str(config)))
    twins.both(lead)
    rows = [PartitionProduceData(index=index, records=batch(b"a")) for index in range(INDEXES)]
    for topic in TOPICS:
        twins.send(frame_of(asked(TopicProduceData(name=topic, partition_data=rows))))
    for number in range(120):
        twins.both(lambda world: world.clock.advance(0.1))
        frame = requests.draw_large(twins.worlds[0], TOPICS, INDEXES)
        twins.send(frame, number % 2)
        twins.reopen()
    twins.answers()
    compiled_logs, logs = map(logs_of, twins.worlds)
    assert compiled_logs == logs
    assert min(twins.counted.done, twins.counted.left) > 20


def asked(*topics: TopicProduceData, acks: int = 1) -> ProduceRequest:
    return ProduceRequest(acks=acks, timeout_ms=0, topic_data=list(topics))


def request_of(topics: int, partitions: int) -> ProduceRequest:
    """A request of so many partitions of each of the topics, with one record for each."""
    return asked(
        *[
            TopicProduceData(
                name=name,
                partition_data=[
                    PartitionProduceData(index=index, records=batch(b"a")) for index in range(partitions)
                ],
            )
            for name in TOPICS[:topics]
        ]
    )


def codes_of(response: ProduceResponse) -> list[tuple[str, int, int]]:
    return [
        (topic.name, row.index, row.error_code)
        for topic in response.responses
        for row in topic.partition_responses
    ]


def ends(world: World) -> list[int]:
    """The log ends of the first three partitions of the first two topics."""
    return [
        world.replicas.partition(topic, index).log.log_end_offset
        for topic in TOPICS[:2]
        for index in range(3)
    ]


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_is_refused_leaves_the_others_appended_once(
    tmp_path: Path, acks: int, place: int
) -> None:
    world = World(tmp_path)
    lead(world)
    client = world.client()
    assert all(code == 0 for _, _, code in codes_of(client.call(request_of(2, 3))))

    request = request_of(2, 3)
    request.acks = acks
    rows = [row for topic in request.topic_data for row in topic.partition_data]
    rows[place].records = batch(b"a")[:-1] + b"\xff"
    answers = codes_of(client.call(request))

    assert [(name, index) for name, index, _ in answers] == [
        (name, index) for name in TOPICS[:2] for index in range(3)
    ]
    codes = [code for _, _, code in answers]
    assert codes == [ErrorCode.CORRUPT_MESSAGE if number == place else 0 for number in range(6)]
    assert ends(world) == [1 if number == place else 2 for number in range(6)]


def test_batches_beside_one_that_is_left_to_python_are_appended_once(tmp_path: Path) -> None:
    """The last batch is compressed, so it is read and checked before anything is appended."""
    world = World(tmp_path)
    lead(world)
    client = world.client()
    client.call(request_of(2, 3))
    request = request_of(2, 3)
    request.topic_data[1].partition_data[2].records = batch(b"a", compression=Compression.GZIP)

    assert all(code == 0 for _, _, code in codes_of(client.call(request)))
    assert ends(world) == [2] * 6, "each batch is appended once"


@needs_compiled
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("change", UNUSUAL, ids=lambda change: change.__name__)
def test_what_is_unusual_anywhere_leaves_everything_as_it_was(
    tmp_path: Path, change: Callable[[PartitionProduceData, int], None], place: int
) -> None:
    world = World(tmp_path, topic_config={"message.timestamp.before.max.ms": 2000})
    lead(world)
    client = world.client()
    client.call(request_of(2, 3))
    request = request_of(2, 3)
    rows = [row for topic in request.topic_data for row in topic.partition_data]
    change(rows[place], START_MS)
    frame = bytearray(frame_of(request))

    assert append(world, frame) is None
    assert bytes(frame) == frame_of(request)
    assert ends(world) == [1] * 6


def append(world: World, frame: bytearray, may_write: Callable[[Any, str], bool] | None = None) -> Any:
    usual = usual_append.UsualAppends(world.replicas, HeldRequests(), may_write)
    return usual.append(world.client().connection, memoryview(frame), 11, 15, 7)


@needs_compiled
def test_a_topic_that_the_client_may_not_write_leaves_everything_as_it_was(tmp_path: Path) -> None:
    world = World(tmp_path)
    lead(world)
    world.client().call(request_of(2, 3))
    frame = frame_of(request_of(2, 3))
    for may in (False, None, 1):
        asked_for: list[str] = []

        def may_write(origin: Any, topic: str, may: Any = may, asked_for: list[str] = asked_for) -> Any:
            asked_for.append(topic)
            return True if topic == TOPICS[0] else may

        assert append(world, bytearray(frame), may_write) is None
        assert asked_for == list(TOPICS[:2]), "once for each topic"
    assert append(world, bytearray(frame), lambda origin, topic: 1 // 0 > 0) is None
    assert ends(world) == [1] * 6
    assert append(world, bytearray(frame), lambda origin, topic: True)
    assert ends(world) == [2] * 6


@needs_compiled
@pytest.mark.parametrize(("partitions", "is_usual"), [(1, True), (20, True), (21, True), (22, False)])
def test_a_request_of_up_to_64_partitions_is_usual(tmp_path: Path, partitions: int, is_usual: bool) -> None:
    world = World(tmp_path)
    lead(world)
    for _ in range(2):
        world.client().call(request_of(3, 22))
    assert (append(world, bytearray(frame_of(request_of(3, partitions)))) is not None) == is_usual


def test_a_client_that_may_write_to_some_topics_only_has_those_appended_once(tmp_path: Path) -> None:
    rules = Rules({(AclOperation.WRITE, AclResource.TOPIC)}, {TOPICS[1]})
    world = World(tmp_path, authorizer=rules)
    lead(world)
    for _ in range(3):
        answers = codes_of(world.stranger().call(request_of(2, 3)))
        assert {(name, code) for name, _, code in answers} == {
            (TOPICS[0], 0), (TOPICS[1], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        }  # fmt: skip
    assert ends(world) == [3, 3, 3, 0, 0, 0]
