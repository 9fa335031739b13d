"""Look-ups by time leave the reactor to others."""

from __future__ import annotations

from pathlib import Path

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tests.broker.replication.test_fetches_in_turns import take_turn
from tests.broker.world import World, only_produced, produce_request
from tests.models.batches import START_MS, encoded

LATEST = -1


def world_with(directory: Path, batches: int) -> World:
    world = World(directory)
    world.assign("t")
    client = world.client()
    for number in range(batches):
        record = encoded([(START_MS + number, b"k", b"v")])
        assert only_produced(client.call(produce_request("t", record))).error_code == 0
    return world


def look_up(timestamp: int, *partitions: int) -> ListOffsetsRequest:
    rows = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in partitions or (0,)]
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=rows)])


def only_found(response: object) -> ListOffsetsPartitionResponse:
    assert isinstance(response, ListOffsetsResponse)
    ((row,),) = [topic.partitions for topic in response.topics]
    return row


def test_pipelined_look_ups_are_searched_for_one_at_a_time(tmp_path: Path) -> None:
    world = world_with(tmp_path, 10)
    client, neighbour = world.client(), world.client()
    world.workers.is_held = True

    for _ in range(20):
        client.ask(look_up(START_MS + 5))
    neighbour.ask(look_up(START_MS + 7))

    assert len(world.workers.jobs) == 1
    assert only_found(world.client().call(look_up(LATEST))).offset == 10, "others need no worker"
    for _ in range(3):
        world.workers.work()
    assert [only_found(each).offset for each in neighbour.answers()] == [7], "connections take turns"
    world.workers.release()
    assert [only_found(each).offset for each in client.answers()] == [5] * 20


def test_a_request_of_many_partitions_lets_others_have_their_turn(tmp_path: Path) -> None:
    world = world_with(tmp_path, 1)
    client = world.client()
    world.workers.is_held = True

    client.ask(look_up(START_MS, *range(1, 400)))

    turns = 0
    while not (answers := client.answers()):
        if world.workers.jobs:
            world.workers.work()
        take_turn(world)
        turns += 1
    (answer,) = answers
    assert isinstance(answer, ListOffsetsResponse)
    codes = [row.error_code for row in answer.topics[0].partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 399
    assert turns >= 5


def test_a_broker_that_leads_no_more_when_the_search_ends_says_so(tmp_path: Path) -> None:
    world = world_with(tmp_path, 10)
    client = world.client()
    world.workers.is_held = True
    client.ask(look_up(START_MS + 5))

    world.replicas.partition("t", 0).role = None  # type: ignore[assignment]
    world.workers.release()

    assert [only_found(each).error_code for each in client.answers()] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
