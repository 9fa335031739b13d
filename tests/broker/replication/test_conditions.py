"""Conditional publish, sentence by sentence (KIP-27)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.log.truncation import truncate_to
from holdfast_log.broker.replication import conditions
from holdfast_log.protocol.control_records import EndMarker
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.world import Client, SessionFollower, World, follow, only_produced
from tests.models.batches import batch
from tests.models.transactional import PRODUCER, transactional_batch

T = "t"


def world_in(directory: Path) -> World:
    """A broker that leads two partitions."""
    world = World(directory)
    world.assign(T)
    world.assign(T, 1)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_in(tmp_path)


def part(records: bytes | None, expected: int = -1, index: int = 0, **fields: Any) -> PartitionProduceData:
    return PartitionProduceData(index=index, records=records, expected_offset=expected, **fields)


def request(*parts: PartitionProduceData, acks: int = -1, topic: str = T) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=list(parts))]
    )


def produce(client: Client, *parts: PartitionProduceData, **options: Any) -> list[PartitionProduceResponse]:
    return client.call(request(*parts, **options)).responses[0].partition_responses


def one(client: Client, expected: int, *values: bytes, **fields: Any) -> PartitionProduceResponse:
    (answer,) = produce(client, part(batch(*(values or (b"x",))), expected, **fields))
    return answer


def values_in(world: World, index: int = 0) -> int:
    return world.replicas.partition(T, index).log.log_end_offset


def test_a_batch_is_appended_where_the_log_ends_as_expected(world: World) -> None:
    """ "if that offset does not match the upcoming offset at the time the message is appended to the log, the
    broker refuses the publish request"."""
    client = world.client()

    answer = one(client, 0, b"a", b"b")
    assert (answer.error_code, answer.base_offset, answer.next_offset) == (0, 0, 2)

    refused = one(client, 1)
    assert refused.error_code == ErrorCode.OFFSET_MISMATCH
    assert refused.base_offset == -1
    assert refused.next_offset == 2
    assert values_in(world) == 2


def test_a_broker_that_may_have_been_replaced_does_not_say_where_the_log_ends(world: World) -> None:
    """Another broker may have appended since. The client looks for the leader."""
    client = world.client()
    one(client, 0)
    world.holds_lease = False

    refused = one(client, 7)

    assert (refused.error_code, refused.next_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    world.holds_lease = True
    assert one(world.client(), 7).error_code == ErrorCode.OFFSET_MISMATCH


def test_a_lease_that_ends_before_a_mismatch_is_answered_withdraws_it(world: World) -> None:
    world.assign(T, replicas=(1, 2), isr=(1, 2), leader_epoch=2)
    client, other = world.client(), world.client()
    client.ask(request(part(batch(b"x"), 0)))
    other.ask(request(part(batch(b"y"), 0)))
    assert other.answers() == []
    world.holds_lease = False

    follow(world, 1)

    refused = only_produced(other.answers()[0])
    assert (refused.error_code, refused.next_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_without_an_expected_offset_nothing_is_checked(world: World) -> None:
    """ "Or the sigil value -1, if unspecified"."""
    client = world.client()
    one(client, -1)
    answer = one(client, -1)
    assert (answer.error_code, answer.base_offset, answer.next_offset) == (0, 1, -1)


def test_one_of_two_producers_with_the_same_expected_offset_fails(world: World) -> None:
    """ "if two producers accidentally write to the end of the partition at once, we can be certain that at
    least one of them will fail"."""
    anna, ben = world.client(), world.client()
    outcomes = [one(anna, 0).error_code, one(ben, 0).error_code]
    assert sorted(outcomes) == [0, ErrorCode.OFFSET_MISMATCH]


def test_a_message_sent_repeatedly_with_one_expected_offset_is_appended_once(world: World) -> None:
    """ "A producer can re-send a message indefinitely and be sure that at most one of those attempts will
    succeed"."""
    client = world.client()
    outcomes = [one(client, 0, attempt=attempt).error_code for attempt in range(5)]
    assert outcomes == [0, *[ErrorCode.OFFSET_MISMATCH] * 4]
    assert values_in(world) == 1


def test_a_bulk_load_resumes_after_a_restart_without_duplicates(world: World) -> None:
    """ "Even if the list is much larger than the buffer size or the producer has to be restarted, each
    message will be appended to the log just once"."""
    first = world.client()
    for offset in range(5):
        one(first, offset, b"%d" % offset)
    again = world.client()
    offset = 2  # The restarted loader does not know how many messages were appended.
    while offset < 8:
        answer = one(again, offset, b"%d" % offset, attempt=offset)
        offset = answer.next_offset
    assert values_in(world) == 8


def test_any_mismatch_refuses_the_entire_request(world: World) -> None:
    """ "refuse the entire produce request if any of the offsets don't match"."""
    client = world.client()
    right, wrong, unconditional = produce(client, part(batch(b"a"), 0, 0), part(batch(b"b"), 7, 1)) + produce(
        client, part(batch(b"c"), -1, 0)
    )
    assert right.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert (wrong.error_code, wrong.next_offset) == (ErrorCode.OFFSET_MISMATCH, 0)
    assert (unconditional.error_code, unconditional.base_offset) == (0, 0)
    assert values_in(world, 1) == 0


def test_the_condition_of_an_entry_without_records_guards_the_other_entries(world: World) -> None:
    client = world.client()
    guarded, guard = produce(client, part(batch(b"a"), -1, 0), part(None, 0, 1))
    assert (guarded.error_code, guarded.base_offset) == (0, 0)
    assert (guard.error_code, guard.base_offset, guard.next_offset) == (0, -1, 0)

    guarded, guard = produce(client, part(batch(b"a"), -1, 0), part(None, 3, 1))
    assert guarded.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert (guard.error_code, guard.next_offset) == (ErrorCode.OFFSET_MISMATCH, 0)
    assert (values_in(world), values_in(world, 1)) == (1, 0)


def test_a_condition_that_cannot_be_judged_refuses_the_request(world: World) -> None:
    """A condition on a partition of another leader cannot be checked, so nothing is appended."""
    world.assign(T, 2, leader=2, replicas=(1, 2))
    guarded, guard = produce(world.client(), part(batch(b"a"), -1, 0), part(None, 0, 2))
    assert guarded.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert guard.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert values_in(world) == 0


@pytest.mark.parametrize("acks", [1])
def test_conditional_appends_need_acks_all(world: World, acks: int) -> None:
    """Case 12."""
    (answer,) = produce(world.client(), part(batch(b"a"), 0), acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert values_in(world) == 0


def test_conditions_count_open_transactions_and_markers(world: World) -> None:
    """Case 18: "Control markers consume offsets"."""
    client = world.client()

    def produce_in_transaction(records: bytes, expected: int) -> PartitionProduceResponse:
        topic = TopicProduceData(name=T, partition_data=[part(records, expected)])
        request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1000, topic_data=[topic])
        return only_produced(client.call(request))

    assert produce_in_transaction(bytes(transactional_batch(b"a")), 0).error_code == ErrorCode.NONE
    refused = produce_in_transaction(bytes(transactional_batch(b"b", sequence=1)), 0)
    assert (refused.error_code, refused.next_offset) == (ErrorCode.OFFSET_MISMATCH, 1)
    (behind,) = produce(world.client(), part(batch(b"c"), 1))
    assert behind.error_code == ErrorCode.NONE
    world.markers.write(PRODUCER, 0, EndMarker(is_commit=False), [TopicPartition(T, 0)], 1000)
    (refused,) = produce(world.client(), part(batch(b"d"), 2))
    assert (refused.error_code, refused.next_offset) == (ErrorCode.OFFSET_MISMATCH, 3)


def test_a_retry_of_a_success_succeeds_with_its_offset(world: World) -> None:
    """Case 15: "dedupe before the condition; answer success with the original offset"."""
    client = world.client()
    records = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    produce(client, part(records, 0))

    (again,) = produce(world.client(), part(records, 0))

    assert (again.error_code, again.base_offset, again.next_offset) == (0, 0, 2)
    assert values_in(world) == 2


def test_a_retry_of_a_success_succeeds_although_its_guard_has_moved_on(world: World) -> None:
    client = world.client()
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    produce(client, part(records, 0, 0), part(None, 0, 1))
    produce(client, part(batch(b"b"), -1, 1))

    again, refused = produce(client, part(records, 0, 0), part(None, 0, 1))

    assert (again.error_code, again.base_offset) == (0, 0)
    assert refused.error_code == ErrorCode.OFFSET_MISMATCH


@pytest.mark.parametrize("epoch", [-1, 0])
def test_a_retry_has_an_unknown_outcome_if_its_guard_counted_records_that_were_lost(
    world: World, epoch: int
) -> None:
    """The first attempt was appended, and its answer was "unknown": no follower had the record that its guard
    counted. The next leader does not have that record, or has another one in its place."""
    client = world.client()
    produce(client, part(batch(b"term"), -1, 1))
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    guard = part(None, 1, 1, expected_leader_epoch=epoch)
    assert [row.error_code for row in produce(client, part(records, 0, 0), guard)] == [0, 0]
    truncate_to(world.replicas.partition(T, 1).log, 0)
    world.assign(T, 1, leader_epoch=1)
    if epoch >= 0:
        produce(client, part(batch(b"another term"), -1, 1))

    again, refused = produce(world.client(), part(records, 0, 0), guard)

    assert again.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "the outcome is unknown" in again.error_message
    assert refused.error_code == ErrorCode.OFFSET_MISMATCH
    assert values_in(world) == 1


def test_an_expected_leader_epoch_distinguishes_logs_of_equal_length(world: World) -> None:
    """Case 11: "An expectation is (offset, optional leader epoch)"."""
    client = world.client()
    assert one(client, 0).last_leader_epoch == 0
    world.assign(T, leader_epoch=4)
    assert one(client, 1).last_leader_epoch == 4

    refused = one(client, 2, expected_leader_epoch=0, attempt=1)
    assert (refused.error_code, refused.last_leader_epoch) == (ErrorCode.OFFSET_MISMATCH, 4)
    assert one(client, 2, expected_leader_epoch=4, attempt=2).error_code == 0


def test_a_refusal_waits_until_the_offset_it_names_is_committed(world: World) -> None:
    """Case 13: "hold the mismatch until the offset it names is committed"."""
    world.assign(T, leader_epoch=1, replicas=(1, 2))
    writer, late = world.client(), world.client()
    writer.ask(request(part(batch(b"a"), 0)))
    late.ask(request(part(batch(b"b"), 0)))
    assert writer.answers() == late.answers() == []

    follow(world, 1)

    assert only_produced(writer.answers()[0]).error_code == 0
    refused = only_produced(late.answers()[0])
    assert (refused.error_code, refused.next_offset) == (ErrorCode.OFFSET_MISMATCH, 1)


def test_a_new_leader_refuses_only_once_every_in_sync_replica_has_followed_it(world: World) -> None:
    """A replica that has not followed it yet may have an earlier try of the same append. If it leads next, it
    commits what the client was told to be in no log."""
    world.assign(T, replicas=(1, 2), isr=(1, 2), partition_epoch=1)
    client = world.client()
    client.ask(request(part(batch(b"x"), 0)))
    follow(world, 1)
    assert values_in(world) == 1 and len(client.answers()) == 1
    world.assign(T, replicas=(1, 2), isr=(1, 2), leader_epoch=1, partition_epoch=2)
    assert world.replicas.partition(T, 0).high_watermark == 1
    client.ask(request(part(batch(b"y"), 0)))
    assert client.answers() == []
    follow(world, 1)
    (answer,) = client.answers()
    assert only_produced(answer).error_code == ErrorCode.OFFSET_MISMATCH


def test_a_change_of_leader_withdraws_a_held_refusal(world: World) -> None:
    world.assign(T, leader_epoch=1, replicas=(1, 2))
    writer, late = world.client(), world.client()
    writer.ask(request(part(batch(b"a"), 0)))
    late.ask(request(part(batch(b"b"), 0)))

    world.assign(T, leader=2, leader_epoch=2, replicas=(1, 2))

    assert only_produced(late.answers()[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_first_mismatch_refuses_later_conditional_batches_in_flight(world: World) -> None:
    """Case 14: "The first mismatch poisons later conditional batches of that session"."""
    other, client = world.client(), world.client()
    one(other, 0)
    refused = one(client, 0, attempt=3)
    assert refused.error_code == ErrorCode.OFFSET_MISMATCH
    # Sent before the refusal arrived; its expected offset matches the log end by chance.
    poisoned = one(client, 1, attempt=3)
    assert poisoned.error_code == ErrorCode.OFFSET_MISMATCH
    assert one(client, 1, attempt=4).error_code == 0
    # Another session is not affected.
    assert one(other, 2, attempt=3).error_code == 0


def test_the_number_of_remembered_refusals_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Including refusals for partitions that do not exist: a client can name any number of those."""
    monkeypatch.setattr(conditions, "REFUSALS_MAX", 10)
    client = world.client()
    for start in (0, 8, 16):
        parts = [part(batch(b"x"), 5, index) for index in range(start, start + 8)]
        client.call(request(*parts, topic="none"))
    kept = world.replicas.conditions._refusals[client.connection]
    assert list(kept) == [("none", index) for index in range(14, 24)]


def test_a_condition_names_the_topic_that_it_means(world: World) -> None:
    """A topic that was deleted and created again may end at the same offset, in the same leader epoch."""
    client = world.client()
    topic_id = world.replicas.partition(T, 0).topic_id
    assert one(client, 0, expected_topic_id=topic_id).error_code == 0

    other, guarded = produce(
        client, part(None, 1, expected_topic_id=uuid.UUID(int=7)), part(batch(b"x"), index=1)
    )

    assert other.error_code == ErrorCode.INCONSISTENT_TOPIC_ID and str(topic_id) in other.error_message
    assert guarded.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert (values_in(world, 0), values_in(world, 1)) == (1, 0)


def test_a_batch_sent_behind_one_that_a_broker_without_its_lease_refused_is_refused_afterwards(
    world: World,
) -> None:
    client = world.client()
    world.holds_lease = False
    assert one(client, 0, b"first", attempt=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.holds_lease = True

    behind = one(client, 0, b"second", attempt=0)

    assert behind.error_code == ErrorCode.OFFSET_MISMATCH
    assert values_in(world) == 0
    assert one(client, 0, b"first", attempt=1).error_code == 0


def test_unnumbered_attempts_received_before_a_refusal_are_refused(world: World) -> None:
    other, client = world.client(), world.client()
    one(other, 0)
    frames = [request(part(batch(b"a"), 0)), request(part(batch(b"b"), 1))]
    client.ask_together(frames)
    assert [only_produced(answer).error_code for answer in client.answers()] == [
        ErrorCode.OFFSET_MISMATCH,
        ErrorCode.OFFSET_MISMATCH,
    ]
    assert one(client, 1).error_code == 0


def test_with_check_expected_offsets_the_base_offset_is_the_expected_offset(tmp_path: Path) -> None:
    """ "Add a new check.expected.offsets property to the log config"; "which can be enabled globally or
    per-topic"."""
    world = World(tmp_path, topic_config={"check.expected.offsets": True})
    world.assign(T)
    client = world.client()
    assert one_with_base(client, 0).error_code == 0
    stock = one_with_base(client, 0)
    assert (stock.error_code, stock.next_offset) == (ErrorCode.OFFSET_MISMATCH, 1)
    assert one_with_base(client, 1).error_code == 0
    assert one_with_base(client, -1).error_code == 0
    assert values_in(world) == 3


def one_with_base(client: Client, base_offset: int) -> PartitionProduceResponse:
    records = base_offset.to_bytes(8, signed=True) + batch(b"x")[8:]
    (answer,) = produce(client, part(records))
    return answer


def test_without_check_expected_offsets_base_offsets_are_ignored(world: World) -> None:
    """ "Without any config changes, new clients will work with the existing version of the server, and
    existing clients will work with the new server"."""
    client = world.client()
    assert [one_with_base(client, base).error_code for base in (0, 0, 17)] == [0, 0, 0]


def test_an_impossible_expectation_is_an_invalid_request(world: World) -> None:
    assert one(world.client(), -2).error_code == ErrorCode.INVALID_REQUEST


# Whether this broker is the leader that can judge


def follow_without_lease(world: World) -> SessionFollower:
    """Have both partitions followed by broker 2, and end the lease."""
    for index in (0, 1):
        world.assign(T, index, replicas=(1, 2), leader_epoch=1)
    follower = SessionFollower(world, 0, 1)
    follower.fetch_for(0.2)
    world.set_lease(is_held=False)
    return follower


def test_a_guard_is_not_judged_by_a_broker_that_may_have_been_replaced(world: World) -> None:
    follower, client = follow_without_lease(world), world.client()
    client.ask(request(part(batch(b"a"), -1, 0), part(None, 0, 1)))
    follower.fetch()
    guarded, guard = client.answers()[0].responses[0].partition_responses
    assert guarded.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert guard.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert values_in(world) == 0


def test_a_condition_on_the_partition_of_its_own_batches_needs_no_lease(world: World) -> None:
    """Followers that have another leader would not let them be committed."""
    follower, client = follow_without_lease(world), world.client()
    client.ask(request(part(batch(b"x"), 0)))
    follower.fetch()
    assert only_produced(client.answers()[0]).error_code == 0


def lose_lease(world: World) -> None:
    world.holds_lease = False


def begin_another_epoch(world: World) -> None:
    world.assign(T, 1, leader_epoch=1)


@pytest.mark.parametrize("lose", [lose_lease, begin_another_epoch])
def test_a_guarded_append_is_not_acknowledged_once_its_guard_cannot_be_confirmed(
    world: World, lose: Callable[[World], None]
) -> None:
    world.assign(T, replicas=(1, 2), leader_epoch=1)
    client = world.client()
    client.ask(request(part(batch(b"a"), -1, 0), part(None, 0, 1)))
    lose(world)
    assert client.answers() == []
    follow(world, 1)
    (answer,) = client.answers()
    guarded, guard = answer.responses[0].partition_responses
    assert guarded.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "the outcome is unknown" in guarded.error_message
    assert guard.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_guarded_append_is_acknowledged_once_it_and_its_guard_are_committed(world: World) -> None:
    world.assign(T, replicas=(1, 2), leader_epoch=1)
    client = world.client()
    client.ask(request(part(batch(b"a"), -1, 0), part(None, 0, 1)))
    follow(world, 1)
    (answer,) = client.answers()
    assert [row.error_code for row in answer.responses[0].partition_responses] == [0, 0]


def test_a_guarded_append_times_out_with_its_guard(world: World) -> None:
    """The guard cites a record that no follower has: it may be lost, and the guard would not have held."""
    world.assign(T, replicas=(1, 2), leader_epoch=1)
    client = world.client()
    client.ask(request(part(batch(b"a"), -1, 0)))
    client.ask(request(part(batch(b"b"), -1, 1), part(None, 1, 0)))
    world.clock.advance(2)
    _, answer = client.answers()
    assert [row.error_code for row in answer.responses[0].partition_responses] == [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
