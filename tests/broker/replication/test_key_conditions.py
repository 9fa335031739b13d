"""Records that depend on the last record with their key: what the leader appends, and what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.log.key_versions import BYTES_PER_KEY
from holdfast_log.broker.replication.record_deletions import delete_records
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.produce import (
    KeyVersion,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from holdfast_log.protocol.records import BatchBuilder
from tests.broker.world import Client, World, follow
from tests.models.disk import SimDisk
from tests.models.logs import sim_disk

T = "t"
NONE = -1
KEY = b"k"


def world_with(path: Path, disk: SimDisk | None = None, **config: Any) -> World:
    world = World(path, disk, topic_config={"key.versions": True, **config})
    world.assign(T)
    world.assign(T, 1)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_with(tmp_path)


def part(*keys: bytes | None, index: int = 0, **fields: Any) -> PartitionProduceData:
    """A batch with these keys. `expected` has versions by the index of the record; `values` are b"value"
    unless they are given."""
    builder = BatchBuilder()
    for key, value in zip(keys, fields.pop("values", [b"value"] * len(keys)), strict=True):
        builder.append(1000, key, value)
    sequence = fields.pop("sequence", -1)
    records = (
        builder.build(producer_id=7, producer_epoch=0, base_sequence=sequence) if sequence >= 0 else None
    )
    versions = [KeyVersion(record=record, version=at) for record, at in fields.pop("expected", {}).items()]
    return PartitionProduceData(
        index=index, records=records or builder.build(), expected_versions=versions, **fields
    )


def request(*parts: PartitionProduceData, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=T, partition_data=list(parts))]
    )


def produce(client: Client, *parts: PartitionProduceData, acks: int = -1) -> list[PartitionProduceResponse]:
    return client.call(request(*parts, acks=acks)).responses[0].partition_responses


def one(client: Client, *keys: bytes | None, **fields: Any) -> PartitionProduceResponse:
    (answer,) = produce(client, part(*keys, **fields))
    return answer


def versions_in(answer: PartitionProduceResponse) -> dict[int, int]:
    return {each.record: each.version for each in answer.key_versions}


def outcome(answer: PartitionProduceResponse) -> tuple[int, int]:
    return answer.error_code, answer.base_offset


def test_of_two_writers_that_expect_the_same_version_one_fails(world: World) -> None:
    anna, ben = world.client(), world.client()

    assert outcome(one(anna, KEY, expected={0: NONE})) == (0, 0)
    refused = one(ben, KEY, expected={0: NONE})
    assert (refused.error_code, versions_in(refused)) == (ErrorCode.KEY_VERSION_MISMATCH, {0: 0})
    assert "is at offset 0" in (refused.error_message or "")
    assert outcome(one(ben, KEY, expected={0: 0})) == (0, 1)
    refused = one(anna, KEY, expected={0: 0})
    assert versions_in(refused) == {0: 1}


def test_records_of_other_keys_and_without_keys_change_no_version(world: World) -> None:
    client = world.client()
    one(client, KEY)
    one(client, b"other", None)

    assert outcome(one(client, KEY, expected={0: 0})) == (0, 3)


def test_a_record_without_a_condition_changes_its_keys_version(world: World) -> None:
    client = world.client()
    one(client, KEY, expected={0: NONE})
    one(client, KEY)

    assert versions_in(one(client, KEY, expected={0: 0})) == {0: 1}


def test_one_mismatch_refuses_the_whole_batch_and_the_whole_request(world: World) -> None:
    client = world.client()
    one(client, b"a")

    other, refused = produce(
        client,
        part(b"x", index=1),
        part(b"a", b"b", b"c", expected={0: 0, 1: 5, 2: NONE}),
    )

    assert other.error_code == ErrorCode.OPERATION_NOT_ATTEMPTED
    assert (refused.error_code, versions_in(refused)) == (ErrorCode.KEY_VERSION_MISMATCH, {1: NONE})
    assert world.replicas.partition(T, 0).log.log_end_offset == 1
    assert world.replicas.partition(T, 1).log.log_end_offset == 0


def test_versions_in_a_batch_are_those_before_the_batch(world: World) -> None:
    client = world.client()

    assert outcome(one(client, KEY, KEY, expected={0: NONE, 1: NONE})) == (0, 0)
    assert outcome(one(client, KEY, expected={0: 1})) == (0, 2)


def test_a_refusal_does_not_refuse_later_batches_of_the_connection(world: World) -> None:
    client = world.client()
    one(client, b"a")
    one(client, b"a", expected={0: 7})

    assert outcome(one(client, b"b", expected={0: NONE})) == (0, 1)


def test_a_retry_of_a_success_succeeds_with_its_offset(world: World) -> None:
    client = world.client()

    first = one(client, KEY, expected={0: NONE}, sequence=0)
    again = one(client, KEY, expected={0: NONE}, sequence=0)

    assert outcome(first) == outcome(again) == (0, 0)


def test_an_expected_offset_and_an_expected_version_must_both_hold(world: World) -> None:
    client = world.client()
    one(client, KEY)

    assert one(client, KEY, expected={0: 0}, expected_offset=0).error_code == ErrorCode.OFFSET_MISMATCH
    wrong = one(client, KEY, expected={0: NONE}, expected_offset=1, attempt=1)
    assert wrong.error_code == ErrorCode.KEY_VERSION_MISMATCH
    assert outcome(one(client, KEY, expected={0: 0}, expected_offset=1, attempt=2)) == (0, 1)


def test_deleted_records_leave_no_version(world: World) -> None:
    client = world.client()
    one(client, KEY)
    one(client, b"other")
    delete_records(world.replicas.partition(T, 0), 1)

    assert outcome(one(client, KEY, expected={0: NONE})) == (0, 2)


@pytest.mark.parametrize(
    ("keys", "fields", "acks", "code"),
    [
        ((None,), {"expected": {0: NONE}}, -1, ErrorCode.INVALID_REQUEST),
        ((KEY,), {"expected": {3: NONE}}, -1, ErrorCode.INVALID_REQUEST),
        ((KEY,), {"expected": {0: NONE}}, 1, ErrorCode.INVALID_REQUIRED_ACKS),
    ],
)
def test_a_condition_that_cannot_be_judged_is_refused(
    world: World, keys: tuple[bytes | None, ...], fields: dict[str, Any], acks: int, code: ErrorCode
) -> None:
    (answer,) = produce(world.client(), part(*keys, **fields), acks=acks)

    assert answer.error_code == code
    assert world.replicas.partition(T, 0).log.log_end_offset == 0


def test_without_key_versions_an_expected_version_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.assign(T)

    assert one(world.client(), KEY, expected={0: NONE}).error_code == ErrorCode.POLICY_VIOLATION


def test_a_refusal_waits_until_the_record_that_it_names_is_committed(world: World) -> None:
    world.assign(T, replicas=(1, 2), isr=(1, 2), leader_epoch=2)
    client, other = world.client(), world.client()
    client.ask(request(part(KEY, expected={0: NONE})))
    other.ask(request(part(KEY, expected={0: NONE})))
    assert (client.answers(), other.answers()) == ([], [])

    follow(world, 1)

    (written,), (refused,) = client.answers(), other.answers()
    assert outcome(written.responses[0].partition_responses[0]) == (0, 0)
    assert versions_in(refused.responses[0].partition_responses[0]) == {0: 0}


def test_a_broker_that_may_have_been_replaced_answers_no_version(world: World) -> None:
    client = world.client()
    one(client, KEY)
    world.holds_lease = False

    assert one(client, KEY, expected={0: 7}).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_lease_that_ends_before_a_refusal_is_answered_withdraws_it(world: World) -> None:
    world.assign(T, replicas=(1, 2), isr=(1, 2), leader_epoch=2)
    client, other = world.client(), world.client()
    client.ask(request(part(KEY, expected={0: NONE})))
    other.ask(request(part(KEY, expected={0: NONE})))
    world.holds_lease = False

    follow(world, 1)

    (refused,) = other.answers()
    assert refused.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
def cold_world() -> World:
    """A partition with the keys a and b, whose index is on the disk and not in the page cache. Reads of it
    wait until the workers are released."""
    disk = sim_disk()
    world = world_with(Path("/data"), disk, **{"key.versions.memory.bytes": BYTES_PER_KEY})
    one(world.client(), b"a", b"b")
    disk.cold_share = 1.0
    world.workers.is_held = True
    return world


def test_requests_wait_in_order_while_a_worker_reads_the_index(cold_world: World) -> None:
    client = cold_world.client()
    client.ask(request(part(b"a", expected={0: 0}, sequence=0)))
    client.ask(request(part(b"c", sequence=1)))
    elsewhere = one(cold_world.client(), b"d", index=1)
    assert client.answers() == []
    assert outcome(elsewhere) == (0, 0)
    cold_world.workers.release()

    first, second = client.answers()
    assert outcome(first.responses[0].partition_responses[0]) == (0, 2)
    assert outcome(second.responses[0].partition_responses[0]) == (0, 3)


def test_a_request_whose_connection_closes_while_it_waits_is_not_carried_out(cold_world: World) -> None:
    client = cold_world.client()
    client.ask(request(part(b"a", expected={0: 0})))

    client.connection.close("test")
    cold_world.workers.release()

    assert cold_world.replicas.partition(T, 0).log.log_end_offset == 2


def test_a_waiting_request_that_fails_does_not_block_those_behind_it(
    cold_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = cold_world.client(), cold_world.client()
    client.ask(request(part(b"a", expected={0: 0})))
    other.ask(request(part(b"c")))
    append = cold_world.replicas.append

    def fail_once(*arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(cold_world.replicas, "append", append)
        raise ValueError("a bug")

    monkeypatch.setattr(cold_world.replicas, "append", fail_once)
    cold_world.workers.release()

    (failed,), (written,) = client.answers(), other.answers()
    assert outcome(failed.responses[0].partition_responses[0]) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert outcome(written.responses[0].partition_responses[0]) == (0, 2)


def test_a_key_that_was_changed_back_or_deleted_and_set_again_has_another_version(world: World) -> None:
    """Offsets are given once: a writer that was away cannot take the third record for the first."""
    late, other = world.client(), world.client()
    assert outcome(one(late, KEY, expected={0: NONE})) == (0, 0)
    one(other, KEY, values=[None], expected={0: 0})
    one(other, KEY, expected={0: 1})

    assert versions_in(one(late, KEY, expected={0: 0})) == {0: 2}
    assert versions_in(one(late, KEY, expected={0: NONE})) == {0: 2}
