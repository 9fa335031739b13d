"""Producer ids that strangers make up, and epochs that they forge."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast_log.broker.log.producer_state import ProducerStates
from holdfast_log.broker.network.interfaces import source_address
from holdfast_log.protocol.errors import ErrorCode
from tests.broker.replication.test_conditions import T, one, part, produce, values_in
from tests.broker.world import Client, World
from tests.models.batches import timed_batch

HONEST, STRANGER = "192.0.2.1", "203.0.113.9"


def world_in(path: Path) -> World:
    world = World(path)
    world.assign(T)
    world.assign(T, 1)
    return world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return world_in(tmp_path)


def write(client: Client, producer_id: int, sequence: int = 0, epoch: int = 0) -> tuple[int, int]:
    """(error code, base offset) of one batch."""
    records = bytes(timed_batch(0, producer_id=producer_id, epoch=epoch, sequence=sequence))
    (answer,) = produce(client, part(records))
    return answer.error_code, answer.base_offset


def test_an_id_that_was_never_handed_out_is_refused(world: World) -> None:
    world.handed_out_below = 2000
    client = world.client()
    assert write(client, 2000) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
    assert write(client, 1999) == (0, 0)
    assert values_in(world) == 1


def test_an_id_that_the_log_has_is_taken_whoever_handed_it_out(world: World) -> None:
    client = world.client()
    assert write(client, 9000) == (0, 0)
    world.handed_out_below = 0
    assert write(client, 9000, 1) == (0, 1)


def test_a_batch_does_not_pass_an_earlier_one_that_was_refused_for_now(world: World) -> None:
    """librdkafka takes the earlier one for stored once the later one is acknowledged."""
    world.unsure_about_ids = 1
    client = world.client()
    assert write(client, 7, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    assert write(client, 7, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert write(client, 8, 0) == (0, 0)

    assert write(client, 7, 0) == (0, 1)
    assert write(client, 7, 1) == (0, 2)


def test_a_batch_does_not_pass_an_earlier_one_that_another_leader_refused(world: World) -> None:
    """This leader knows nothing of the earlier one; the client sends both again, in order."""
    client = world.client()
    assert write(client, 7, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert write(client, 7, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert [write(client, 7, sequence) for sequence in range(3)] == [(0, 0), (0, 1), (0, 2)]


def test_a_producer_whose_earlier_batches_are_unknown_is_taken_when_it_tries_again(world: World) -> None:
    """Its records, or the topic, may have been deleted, or it was silent for a day (KIP-360)."""
    client = world.client()
    assert write(client, 7, 11) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert write(client, 7, 12) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert [write(client, 7, sequence) for sequence in (11, 12)] == [(0, 0), (0, 1)]


def test_a_producer_that_tries_again_after_minutes_is_taken(world: World) -> None:
    client = world.client()
    write(client, 7, 11)
    world.clock.advance(600)
    assert write(client, 7, 11) == (0, 0)


def test_each_leader_has_a_producer_send_again_what_was_not_acknowledged(world: World) -> None:
    """Batch 0 may have been refused by the leader between the two terms."""
    client = world.client()
    assert write(client, 7, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    world.assign(T, leader_epoch=2, partition_epoch=2)
    assert write(client, 7, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert [write(client, 7, sequence) for sequence in range(2)] == [(0, 0), (0, 1)]


def test_a_batch_whose_sequence_begins_anew_passes_no_earlier_one(world: World) -> None:
    client, last = world.client(), 2**31 - 1
    assert write(client, 7, last) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert write(client, 7, 0) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert [write(client, 7, sequence) for sequence in (last, 0)] == [(0, 0), (0, 1)]


def test_the_earliest_of_several_refused_batches_comes_first(world: World) -> None:
    world.unsure_about_ids = 3
    client = world.client()
    for sequence in (5, 4, 6):
        assert write(client, 7, sequence) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    refused = [write(client, 7, sequence)[0] for sequence in (5, 6)]

    assert refused == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert [write(client, 7, sequence) for sequence in (4, 5, 6)] == [(0, 0), (0, 1), (0, 2)]


def test_a_batch_that_was_refused_long_ago_holds_up_no_later_one(world: World) -> None:
    world.unsure_about_ids = 1
    client = world.client()
    write(client, 7, 0)
    world.clock.advance(121)
    assert write(client, 7, 1) == (0, 0)


def test_a_new_epoch_does_not_wait_for_batches_of_the_old_one(world: World) -> None:
    world.unsure_about_ids = 1
    client = world.client()
    write(client, 7, 0)
    assert write(client, 7, 0, epoch=1) == (0, 0)


def test_a_batch_that_will_never_be_stored_holds_up_no_later_one(world: World) -> None:
    client = world.client()
    world.handed_out_below = 7
    write(client, 7, 0)
    world.handed_out_below = None
    write(client, 7, 1)
    assert write(client, 7, 1) == (0, 0)


def test_made_up_ids_of_a_stranger_evict_no_honest_producer(world: World) -> None:
    world.replicas.partition(T, 0).log.producers = ProducerStates(max_producers=20)
    honest = world.client(host=HONEST)
    assert write(honest, 1) == (0, 0)
    stranger = world.client(host=STRANGER)
    for producer_id in range(100, 150):
        assert write(stranger, producer_id)[0] == 0

    retried = write(honest, 1)

    assert retried == (0, 0)
    assert values_in(world) == 51


def test_a_stranger_cannot_raise_the_epoch_of_anothers_producer(world: World) -> None:
    honest, stranger = world.client(host=HONEST), world.client(host=STRANGER)
    assert write(honest, 1) == (0, 0)

    assert write(stranger, 1, epoch=5)[0] == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    assert write(honest, 1, 1) == (0, 1)
    again = world.client(host=HONEST)  # A client that lost a sequence raises its epoch by itself.
    assert write(again, 1, epoch=1) == (0, 2)


def test_an_id_without_a_known_source_may_be_raised_by_anybody(world: World) -> None:
    log = world.replicas.partition(T, 0).log
    assert write(world.client(host=HONEST), 1) == (0, 0)
    log.producers.restore(log.producers.encode(), log.log_end_offset)
    assert write(world.client(host=STRANGER), 1, epoch=1) == (0, 1)


def test_a_made_up_id_refuses_the_conditional_appends_of_its_request(world: World) -> None:
    world.handed_out_below = 10
    records = bytes(timed_batch(0, producer_id=50, epoch=0, sequence=0))
    refused, bystander = produce(world.client(), part(records, 0), part(records, 0, index=1))
    assert refused.error_code == bystander.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert values_in(world) == 0


def test_plain_batches_need_no_id(world: World) -> None:
    world.handed_out_below = 0
    assert one(world.client(), 0).error_code == 0


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("not:an:address", "not:an:address"),
    ],
)
def test_one_ipv6_network_is_one_source(host: str, source: str) -> None:
    assert source_address(host) == source
