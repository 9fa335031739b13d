"""Produce requests that name very many partitions: handled in parts, answered as if at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.handlers import produce as produce_handler
from holdfast_log.broker.handlers.produce import CONDITIONAL_PARTITIONS_MAX
from holdfast_log.broker.log.disk import OsDisk, OsFile
from holdfast_log.broker.requests.parts import PART_ROWS
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.replication.test_fetches_in_turns import take_turn
from tests.broker.world import Client, World
from tests.hostile.test_decoding_work import calls_of
from tests.models.batches import batch
from tests.models.rules import Rules

LED = 2 * PART_ROWS + 3
"""Partitions of the topic that the broker leads."""

MANY = 4_000
CALLS_MAX = 12_000
"""In one turn by a clock that stands still: 50 partitions are appended to. By one that goes, 25 may be."""
APPEND_CALLS_MAX = 20_000
"""In that which appends all of a request with conditions."""
LONG = 120
"""Partitions that make a request long enough to be prepared in turns."""
OPENED_MAX = 8
"""Files in one turn."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    for index in range(LED):
        world.assign("t", index)
    return world


def data_for(index: int, expected_offset: int = -1) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=batch(b"a"), expected_offset=expected_offset)


def produce(rows: list[PartitionProduceData], acks: int = -1, topic: str = "t") -> ProduceRequest:
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=rows)]
    )


def answer_of(world: World, client: Client, request: ProduceRequest) -> list[tuple[int, int]]:
    """Index and error of each partition in the answer, in its order."""
    client.ask(request)
    turns(world)
    (answer,) = client.answers()
    assert isinstance(answer, ProduceResponse)
    (topic,) = answer.responses
    return [(row.index, row.error_code) for row in topic.partition_responses]


def turns(world: World) -> None:
    for _ in range(LED):
        world.clock.advance(0)


def ends(world: World) -> set[int]:
    return {world.replicas.partition("t", index).log.log_end_offset for index in range(LED)}


@pytest.mark.parametrize("acks", [1, -1])
def test_every_partition_is_appended_once_and_answered_in_its_order(world: World, acks: int) -> None:
    rows = [data_for(index) for index in range(LED + 2)]
    answered = answer_of(world, world.client(), produce(rows, acks))
    assert answered == [(index, 0) for index in range(LED)] + [
        (index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for index in (LED, LED + 1)
    ]
    assert ends(world) == {1}


def test_what_waits_for_replication_waits_together(world: World) -> None:
    for index in range(LED):
        world.assign("r", index, replicas=(1, 2))
    client = world.client()
    rows = [data_for(index) for index in range(LED)]
    client.ask(
        ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="r", partition_data=rows)])
    )
    turns(world)
    assert client.answers() == []
    assert {world.replicas.partition("r", index).log.log_end_offset for index in range(LED)} == {1}
    world.clock.advance(1)
    turns(world)
    (answer,) = client.answers()
    (topic,) = answer.responses
    assert {row.error_code for row in topic.partition_responses} == {ErrorCode.REQUEST_TIMED_OUT}


def test_without_acknowledgement_there_is_no_answer_and_the_next_request_is_handled(world: World) -> None:
    client = world.client()
    client.ask(produce([data_for(index) for index in range(LED)], acks=0))
    turns(world)
    assert client.answers() == [] and ends(world) == {1}
    assert answer_of(world, client, produce([data_for(0)])) == [(0, 0)]


def test_a_failure_without_acknowledgement_closes_the_connection(world: World) -> None:
    client = world.client()
    client.ask(produce([data_for(index) for index in range(LED, 2 * LED)], acks=0))
    turns(world)
    assert client.connection.is_closed and world.answers.waiting == 0


def test_a_partition_that_is_named_twice_fails_the_whole_request(world: World) -> None:
    rows = [data_for(index) for index in (*range(LED), 0)]
    answered = answer_of(world, world.client(), produce(rows))
    assert {code for _, code in answered} == {ErrorCode.INVALID_REQUEST} and len(answered) == LED + 1
    assert ends(world) == {0}


def test_a_request_with_a_condition_is_carried_out_as_a_whole(world: World) -> None:
    rows = [data_for(index, 0 if index < LED - 1 else 7) for index in range(LED)]
    answered = dict(answer_of(world, world.client(), produce(rows)))
    assert 0 not in answered.values() and ends(world) == {0}
    answered = dict(answer_of(world, world.client(), produce([data_for(index, 0) for index in range(LED)])))
    assert set(answered.values()) == {0} and ends(world) == {1}


def test_base_offsets_that_are_conditions_keep_a_request_whole(tmp_path: Path) -> None:
    world = World(tmp_path, topic_config={"check.expected.offsets": True})
    for index in range(LED):
        world.assign("t", index)
    records = [bytearray(batch(b"a")) for _ in range(LED)]
    records[-1][:8] = (7).to_bytes(8, "big")
    rows = [PartitionProduceData(index=index, records=bytes(data)) for index, data in enumerate(records)]
    answered = dict(answer_of(world, world.client(), produce(rows)))
    assert answered[LED - 1] == ErrorCode.OFFSET_MISMATCH
    assert 0 not in answered.values() and ends(world) == {0}


def test_a_request_with_conditions_may_name_so_many_partitions(world: World) -> None:
    rows = [data_for(index, 0) for index in range(CONDITIONAL_PARTITIONS_MAX + 1)]
    answered = answer_of(world, world.client(), produce(rows))
    assert {code for _, code in answered} == {ErrorCode.POLICY_VIOLATION}
    assert ends(world) == {0}


def calls_by_turn(world: World, request: ProduceRequest) -> tuple[list[int], ProduceResponse]:
    """How many calls each turn makes after that which decodes the request, and the answer."""
    client, made = world.client(), []
    client.ask(request)
    while not (answers := client.answers()):
        made.append(calls_of(lambda: take_turn(world)))
    (answer,) = answers
    return made, answer


def test_no_turn_of_a_produce_of_very_many_partitions_does_all_the_work(world: World) -> None:
    topics = [TopicProduceData(name=f"u{number}", partition_data=[data_for(0)]) for number in range(MANY)]
    topics[0] = TopicProduceData(name="t", partition_data=[data_for(index) for index in range(LED)])
    made, answer = calls_by_turn(world, ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics))
    assert len(answer.responses) == MANY and ends(world) == {1}
    assert max(made) <= CALLS_MAX, sorted(made)[-5:]


def test_only_one_turn_of_a_produce_with_conditions_does_much(world: World) -> None:
    """All of it is appended, or nothing: that is one turn. It is judged before, and answered afterwards."""
    rows = [data_for(index, 0 if index < LED else -1) for index in range(CONDITIONAL_PARTITIONS_MAX)]
    made, answer = calls_by_turn(world, produce(rows))
    (topic,) = answer.responses
    assert len(topic.partition_responses) == CONDITIONAL_PARTITIONS_MAX and ends(world) == {1}
    *others, most = sorted(made)
    assert max(others) <= CALLS_MAX and most <= APPEND_CALLS_MAX, sorted(made)[-5:]


class CountedDisk(OsDisk):
    """Counts the files that are opened."""

    def __init__(self) -> None:
        self.opened = 0

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.opened += 1
        return super().open(path, create=create)


def opened_by_turn(directory: Path) -> list[int]:
    """How many files each turn of a Produce with conditions opens, to partitions never written to."""
    disk = CountedDisk()
    world = World(directory, disk=disk)
    for index in range(LONG):
        world.assign("t", index)
    client, opened = world.client(), []
    client.ask(produce([data_for(index, 0) for index in range(LONG)]))
    while not (answers := client.answers()):
        before = disk.opened
        take_turn(world)
        opened.append(disk.opened - before)
    (answer,) = answers
    assert {row.error_code for row in answer.responses[0].partition_responses} == {0}
    assert sum(opened) >= LONG
    return opened


def test_files_are_opened_before_the_turn_that_appends_all_of_a_produce_with_conditions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first append to each partition opens two files: 0.5 ms each, 0.1 s for a request."""
    assert max(opened_by_turn(tmp_path / "now")) <= OPENED_MAX
    monkeypatch.setattr(produce_handler, "prepare_append", lambda *_: None)
    assert max(opened_by_turn(tmp_path / "at once")) >= LONG


def test_a_client_that_may_not_write_has_no_files_opened(tmp_path: Path) -> None:
    disk = CountedDisk()
    world = World(tmp_path, disk=disk, authorizer=Rules(None))
    for index in range(LONG):
        world.assign("t", index)
    client, before = world.stranger(), disk.opened
    answered = answer_of(world, client, produce([data_for(index, 0) for index in range(LONG)]))
    assert {code for _, code in answered} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert disk.opened == before
