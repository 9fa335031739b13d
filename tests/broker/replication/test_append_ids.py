"""Conditional appends with an id, which another process may repeat."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.log.append_ids import AppendIdLimits, AppendIds
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import PartitionProduceResponse
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder
from tests.broker.replication.test_conditions import T, follow, one, part, produce, request, values_in
from tests.broker.world import Client, SessionFollower, World, only_produced
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


def remember(world: World, ids_max: int) -> AppendIds:
    """Have the broker remember at most `ids_max` ids of the partition."""
    ids = world.replicas.partition(T, 0).log.producers.append_ids
    ids.limits = AppendIdLimits(ids_max=ids_max)
    return ids


def with_id(world: World, number: int, expected: int, unused_before: int = -1) -> PartitionProduceResponse:
    """The answer to an append with the id `number`."""
    append_id = number.to_bytes(16, "big")
    fields = {"append_id": append_id, "id_unused_before": unused_before}
    (answer,) = produce(world.client(), part(named(append_id=append_id), expected, **fields))
    return answer


def test_the_refusal_of_an_unknown_id_says_from_where_on_all_ids_are_remembered(world: World) -> None:
    remember(world, 1)
    one(world.client(), 0)
    assert with_id(world, 1, 0).append_ids_from == 0
    with_id(world, 1, 1)
    with_id(world, 2, 2)

    refused = with_id(world, 3, 0)
    (without,) = produce(world.client(), part(batch(b"x"), 0))

    assert (refused.error_code, refused.next_offset) == (ErrorCode.OFFSET_MISMATCH, 3)
    assert (refused.append_ids_from, without.append_ids_from) == (2, -1)


@pytest.mark.parametrize("expected", [0, 2])
def test_an_append_whose_id_the_broker_may_have_forgotten_is_refused(world: World, expected: int) -> None:
    """Also where the log ends as expected: the append would be there twice."""
    remember(world, 1)
    for number in range(2):
        with_id(world, number, number, unused_before=number)

    refused = with_id(world, 0, expected, unused_before=0)

    assert refused.error_code == ErrorCode.APPEND_ID_UNKNOWN
    assert (refused.next_offset, refused.append_ids_from, refused.base_offset) == (2, 1, -1)
    assert "unused_before=1" in (refused.error_message or "")
    assert values_in(world) == 2


@pytest.mark.parametrize(("unused_before", "advises"), [(0, True), (1, False)])
def test_the_refusal_of_an_id_that_could_be_anywhere_says_how_to_avoid_it(
    world: World, unused_before: int, advises: bool
) -> None:
    """A client that names no offset is refused as soon as the broker has forgotten any id."""
    remember(world, 1)
    for number in range(3):
        with_id(world, number, number, unused_before=number)

    message = with_id(world, 7, 3, unused_before=unused_before).error_message or ""

    assert f"between {unused_before} and there" in message
    assert ("name the log's end from before the first attempt as unused_before" in message) is advises


def test_an_unknown_id_that_was_made_after_all_forgotten_ones_is_appended(world: World) -> None:
    remember(world, 1)
    for number in range(3):
        assert with_id(world, number, number, unused_before=number).error_code == 0
    assert with_id(world, 3, 1, unused_before=2).error_code == ErrorCode.OFFSET_MISMATCH
    assert with_id(world, 3, 3, unused_before=2).base_offset == 3


def test_a_refusal_for_its_id_is_answered_once_what_it_names_is_committed(world: World) -> None:
    remember(world, 1)
    with_id(world, 0, 0, unused_before=0)
    with_id(world, 1, 1, unused_before=1)
    world.assign(T, leader_epoch=1, replicas=(1, 2))
    asking = world.client()
    append_id = bytes(16)
    asking.ask(request(part(named(append_id=append_id), 0, append_id=append_id, id_unused_before=0)))
    assert asking.answers() == []
    follow(world, 2)
    assert only_produced(asking.answers()[0]).error_code == ErrorCode.APPEND_ID_UNKNOWN


def test_other_records_with_a_known_id_are_refused(world: World) -> None:
    append(world.client(), 0, b"100 to Anna")
    for values in ((b"900 to Anna",), (b"100 to Anna", b"100 to Ben")):
        refused = append(world.client(), 1, *values)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "an id of its own" in (refused.error_message or "")
    assert values_in(world) == 1
    assert append(world.client(), 0, b"100 to Anna").is_repeat


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
    world.assign(T, leader_epoch=1, replicas=(1, 2))
    SessionFollower(world).fetch_for(0.2)
    world.set_lease(is_held=False)
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
