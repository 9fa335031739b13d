"""Conditional appends with an id, which another process may repeat."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import PartitionProduceResponse
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from tests.broker.replication.test_conditions import T, follow, one, part, produce, request, values_in
from tests.broker.world import Client, World, only_produced
from tests.models.batches import START_MS, batch

ID = bytes(range(16))


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.assign(T)
    world.assign(T, 1)
    return world


def named(*values: bytes, append_id: bytes = ID, **producer: int) -> bytes:
    builder = BatchBuilder()
    for index, value in enumerate(values or (b"x",)):
        builder.append(START_MS, None, value, () if index else ((APPEND_ID_HEADER, append_id),))
    return bytes(builder.build(has_append_id=True, **producer))


def append(client: Client, expected: int, *values: bytes, **fields: Any) -> PartitionProduceResponse:
    (answer,) = produce(client, part(named(*values), expected, append_id=ID, **fields))
    return answer


def test_another_process_gets_the_offset_of_the_append_that_it_repeats(world: World) -> None:
    first = append(world.client(), 0, b"a", b"b")
    assert (first.error_code, first.base_offset, first.is_repeat) == (0, 0, False)
    one(world.client(), 2, b"c")

    again = append(world.client(), 0, b"a", b"b")

    assert (again.error_code, again.base_offset, again.next_offset, again.is_repeat) == (0, 0, 2, True)
    assert values_in(world) == 3


def test_a_retry_by_the_same_producer_is_no_repetition(world: World) -> None:
    records = named(producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        (answer,) = produce(world.client(), part(records, 0, append_id=ID))
        assert (answer.error_code, answer.base_offset, answer.is_repeat) == (0, 0, False)
    assert values_in(world) == 1


def test_an_unknown_id_is_judged_by_the_expected_offset(world: World) -> None:
    one(world.client(), 0)
    refused = append(world.client(), 0)
    assert (refused.error_code, refused.next_offset) == (ErrorCode.OFFSET_MISMATCH, 1)
    assert values_in(world) == 1


def test_the_refusal_of_an_unknown_id_says_from_where_on_all_ids_are_remembered(world: World) -> None:
    one(world.client(), 0)
    assert append(world.client(), 0).append_ids_from == 1
    append(world.client(), 1)
    one(world.client(), 2)

    other = bytes(reversed(ID))
    (refused,) = produce(world.client(), part(named(append_id=other), 0, append_id=other))
    (without,) = produce(world.client(), part(batch(b"x"), 0))

    assert (refused.error_code, refused.next_offset) == (ErrorCode.OFFSET_MISMATCH, 3)
    assert (refused.append_ids_from, without.append_ids_from) == (1, -1)


def test_a_repetition_succeeds_although_a_guard_fails(world: World) -> None:
    append(world.client(), 0)
    again, guard = produce(world.client(), part(named(), 0, append_id=ID), part(None, 5, 1))
    assert (again.error_code, again.base_offset, again.is_repeat) == (0, 0, True)
    assert guard.error_code == ErrorCode.OFFSET_MISMATCH


def test_a_repetition_is_answered_once_the_append_is_committed(world: World) -> None:
    world.assign(T, leader_epoch=1, replicas=(1, 2))
    first, again = world.client(), world.client()
    for client in (first, again):
        client.ask(request(part(named(), 0, append_id=ID)))
    assert first.answers() == again.answers() == []

    follow(world, 1)

    assert not only_produced(first.answers()[0]).is_repeat
    answer = only_produced(again.answers()[0])
    assert (answer.error_code, answer.base_offset, answer.is_repeat) == (0, 0, True)


def test_a_change_of_leader_withdraws_a_held_repetition(world: World) -> None:
    world.assign(T, leader_epoch=1, replicas=(1, 2))
    append_request = request(part(named(), 0, append_id=ID))
    world.client().ask(append_request)
    again = world.client()
    again.ask(append_request)
    world.assign(T, leader=2, leader_epoch=2, replicas=(1, 2))
    assert only_produced(again.answers()[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_that_may_have_been_replaced_does_not_say_that_an_id_is_unknown(world: World) -> None:
    append(world.client(), 0)
    one(world.client(), 1)
    world.holds_lease = False
    (refused,) = produce(world.client(), part(named(append_id=bytes(16)), 0, append_id=bytes(16)))
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert append(world.client(), 0).is_repeat


@pytest.mark.parametrize("acks", [0, 1])
def test_a_repetition_needs_acks_all(world: World, acks: int) -> None:
    append(world.client(), 0)
    if acks == 0:
        world.client().ask(request(part(named(), 0, append_id=ID), acks=0))
        assert values_in(world) == 1
        return
    (refused,) = produce(world.client(), part(named(), 0, append_id=ID), acks=acks)
    assert refused.error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_a_repetition_for_another_topic_of_the_name_is_refused(world: World) -> None:
    append(world.client(), 0)
    world.replicas.partition(T, 0).topic_id = uuid.UUID(int=1)
    refused = append(world.client(), 0, expected_topic_id=uuid.UUID(int=2))
    assert refused.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize(
    ("records", "append_id", "error"),
    [
        (batch(b"x"), ID, ErrorCode.INVALID_RECORD),
        (named(append_id=bytes(16)), ID, ErrorCode.INVALID_RECORD),
        (named(), b"", ErrorCode.INVALID_RECORD),
        (named(b"short"), b"short", ErrorCode.INVALID_REQUEST),
        (None, ID, ErrorCode.INVALID_REQUEST),
    ],
)
def test_request_and_batch_must_have_the_same_id_of_16_bytes(
    world: World, records: bytes | None, append_id: bytes, error: ErrorCode
) -> None:
    (refused,) = produce(world.client(), part(records, 0, append_id=append_id))
    assert refused.error_code == error
    assert values_in(world) == 0


def test_a_batch_with_an_id_needs_a_condition(world: World) -> None:
    (refused,) = produce(world.client(), part(named(), -1))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "needs a condition" in refused.error_message
