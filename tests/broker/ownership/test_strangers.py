"""The first foreign append, or fetch, after an owner has gone ends its grant for good (PIP-68)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast_log.broker.handlers.produce import _MAKE_WAY_MS_MAX
from holdfast_log.broker.ownership.interludes import BeginInterlude, Stranger
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.ownership.records import NO_OFFSET, PartitionKey, decode_ownership
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.ownership import Access, LossReason, ResourceStanding
from holdfast_log.protocol.messages.producer_access import (
    ProducerAccessMode,
    ProducerAccessRequest,
    ProducerAccessResponse,
)
from tests.broker.ownership.machine import P0, Client, Machine
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.world import Client as StockClient
from tests.broker.world import fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import batch
from tests.models.ownership_requests import secret_of

T = "t"
WRITER = Stranger(P0, "stock", "User:ANONYMOUS")


def write(client: StockClient, *, acks: int = -1) -> tuple[int, int]:
    """The error code and the offset of an append by a client that owns nothing."""
    written = only_produced(client.call(produce_request(T, batch(b"x"), acks=acks)))
    return written.error_code, written.base_offset


def lost(standing: ResourceStanding) -> tuple[int, int, int, int]:
    return standing.error_code, standing.reason, standing.generation, standing.fence_offset


# The table


def interlude(machine: Machine, stranger: Stranger = WRITER) -> None:
    machine.answer(machine.submit(BeginInterlude(stranger)))


@pytest.fixture
def gone() -> tuple[Machine, Client]:
    """A machine, and an owner that wrote two records and whose connection has closed."""
    machine = Machine()
    anna = machine.client("anna")
    anna.claim(P0)
    machine.grow(P0, 2)
    anna.close()
    anna.reconnect()
    return machine, anna


def test_an_owner_that_was_gone_resumes_where_no_stranger_came_first(gone: tuple[Machine, Client]) -> None:
    machine, anna = gone
    machine.advance(3_600_000)
    assert (anna.resume(P0).error_code, anna.resume(P0).generation) == (0, 1)


def test_generation_token_and_fence_move_and_the_old_owner_is_told(gone: tuple[Machine, Client]) -> None:
    machine, anna = gone
    interlude(machine)
    machine.flush()

    for standing in (anna.resume(P0), anna.renew(P0)):
        assert lost(standing) == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_APPEND, 2, 2)
        assert "has written to it before the owner came back (from offset 2 on)" in str(
            standing.error_message
        )
    assert anna.claim(P0, -1).generation == 3
    assert machine.resource(P0).incarnation == 3


def test_the_end_holds_after_a_failover(gone: tuple[Machine, Client]) -> None:
    machine, anna = gone
    interlude(machine)
    machine.fail_over()
    machine.connect(anna)
    assert lost(anna.resume(P0)) == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_APPEND, 2, 2)


def test_the_leader_dies_before_the_end_is_durable(gone: tuple[Machine, Client]) -> None:
    machine, anna = gone
    machine.holds_writes = True
    ticket = machine.submit(BeginInterlude(WRITER))
    assert not machine.is_answered(ticket)
    machine.writes.clear()
    machine.holds_writes = False
    machine.fail_over()
    machine.connect(anna)
    assert anna.resume(P0).error_code == 0


def test_an_end_that_is_not_written_has_not_happened(gone: tuple[Machine, Client]) -> None:
    machine, anna = gone
    machine.holds_writes = True
    ticket = machine.submit(BeginInterlude(WRITER))
    machine.settle_writes(BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(BrokerError):
        machine.answer(ticket)
    machine.holds_writes = False
    assert machine.resource(P0).absent_writer is not None
    assert anna.resume(P0).generation == 1


def test_an_owner_that_is_first_keeps_its_grant(gone: tuple[Machine, Client]) -> None:
    """Its resumption is being written when the stranger comes."""
    machine, anna = gone
    machine.holds_writes = True
    resumed = anna.ask_resume(P0)
    late = machine.submit(BeginInterlude(WRITER))
    machine.holds_writes = False
    machine.settle_writes()
    assert machine.answer(resumed)[0].generation == machine.answer(late)[0].generation + 2 == 1
    assert machine.owner_of(P0) == "anna"


def test_only_the_first_stranger_costs_a_write(gone: tuple[Machine, Client]) -> None:
    machine, _ = gone
    interlude(machine)
    version = machine.znodes[P0][1]
    interlude(machine)
    assert machine.znodes[P0][1] == version


def test_an_exclusive_producer_is_fenced_for_good() -> None:
    machine = Machine()
    anna = machine.client("anna")
    anna.access_to(P0, ProducerAccessMode.EXCLUSIVE)
    machine.grow(P0, 5)
    anna.close()
    interlude(machine)
    anna.reconnect()
    refused = anna.access_to(P0, ProducerAccessMode.EXCLUSIVE, epoch=1)
    assert lost(refused) == (ErrorCode.PRODUCER_FENCED, LossReason.FOREIGN_APPEND, 2, 5)
    assert "(from offset 5 on)" in str(refused.error_message)
    assert machine.client("ben").access_to(P0, ProducerAccessMode.EXCLUSIVE).generation == 3


def test_the_offset_is_told_once_it_is_settled(gone: tuple[Machine, Client]) -> None:
    """Until every replica that may lead next agrees, a longer log may show up."""
    machine, anna = gone
    machine.grow(P0, 1, committed=False)
    interlude(machine)
    assert anna.resume(P0).fence_offset == NO_OFFSET
    assert machine.record(P0).histories["app"][-1].fence_offset == NO_OFFSET
    machine.commit(P0)
    machine.flush()
    assert anna.resume(P0).fence_offset == 3
    assert machine.record(P0).histories["app"][-1].fence_offset == 3


def test_a_stranger_displaces_the_writer_of_whatever_group() -> None:
    machine = Machine()
    anna, ben = machine.client("anna", "one"), machine.client("ben", "two")
    anna.claim(P0)
    anna.release(P0)
    ben.claim(P0)
    ben.close()
    interlude(machine)
    assert machine.entry(P0, "one").last is not None
    assert [grant.reason for grant in machine.entry(P0, "one").history] == [LossReason.RELEASED]
    assert [grant.reason for grant in machine.entry(P0, "two").history] == [LossReason.FOREIGN_APPEND] * 2


def test_no_administrator_or_claimant_can_take_the_interlude_for_an_owner(
    gone: tuple[Machine, Client],
) -> None:
    machine, _ = gone
    interlude(machine)
    assert machine.force_release(P0).error_code == ErrorCode.RESOURCE_NOT_FOUND
    nobody = machine.client("", secret=b"")
    nobody.incarnations[P0] = 2
    assert nobody.resume(P0).error_code == ErrorCode.OWNERSHIP_FENCED


def test_an_interlude_is_one_line_of_the_audit_log(gone: tuple[Machine, Client]) -> None:
    machine, _ = gone
    del machine.audit[:]
    interlude(machine)
    (line,) = machine.audit
    assert line == (
        "ended for good (FOREIGN_APPEND): events-0 in group 'app', by client 'stock' User:ANONYMOUS; owner "
        "'anna' at 127.0.0.1 was away. Generation 2, incarnation 2 from offset 2"
    )


def test_brokers_that_do_not_know_the_reason_read_a_grant_that_has_ended_for_good(
    gone: tuple[Machine, Client],
) -> None:
    machine, _ = gone
    interlude(machine)
    data = machine.znodes[P0][0]
    assert b'"reason":1,' in data
    older = decode_ownership("", data.replace(b'"foreign":9', b'"other":9'))
    assert [grant.reason for grant in older.histories["app"]] == [LossReason.STOLEN] * 2


def test_strangers_are_kept_out_during_the_grace_period() -> None:
    machine = Machine(OwnershipSettings(release_grace_ms=2000))
    anna = machine.client("anna")
    anna.claim(P0)
    anna.close()
    machine.advance(1999)
    assert machine.resource(P0).writer is not None and machine.resource(P0).absent_writer is None
    machine.advance(1)
    assert machine.resource(P0).writer is None and machine.resource(P0).absent_writer is not None


# Appends


def resume(owner: Owner) -> tuple[int, int, int, int]:
    owner.reconnect()
    return lost(owner.resume(T))


def test_a_stranger_is_admitted_and_the_owner_that_was_gone_is_fenced(
    world: OwnershipWorld, anna: Owner
) -> None:
    anna.write(T)
    anna.client.connection.close("cut")
    assert write(world.client()) == (0, 1)
    assert write(world.client()) == (0, 2)
    assert resume(anna) == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_APPEND, 2, 1)
    assert anna.write(T) == 0, "anna writes as any other client now"


def test_an_owner_that_was_silent_is_fenced_too(world: OwnershipWorld) -> None:
    anna = world.owner("anna")
    request = ProducerAccessRequest(
        topic=T,
        partition=0,
        producer_id="anna",
        mode=ProducerAccessMode.EXCLUSIVE,
        session_timeout_ms=1500,
        timeout_ms=5000,
        secret=secret_of("anna"),
    )
    granted: ProducerAccessResponse = anna.client.call(request)
    for _ in range(16):
        world.clock.advance(0.1)
    assert anna.client.connection.is_closed
    assert write(world.client()) == (0, 0)
    anna.reconnect()
    request.epoch = granted.epoch
    refused: ProducerAccessResponse = anna.client.call(request)
    assert (refused.error_code, refused.reason) == (ErrorCode.PRODUCER_FENCED, LossReason.FOREIGN_APPEND)
    assert (refused.epoch, refused.fence_offset) == (2, 0)


def test_a_strangers_append_lands_only_once_the_end_of_the_grant_is_durable(
    world: OwnershipWorld, anna: Owner
) -> None:
    anna.client.connection.close("cut")
    world.clock.advance(1)
    stock, other = world.client(), world.client()
    world.zookeeper.is_held = True
    stock.ask(produce_request(T, batch(b"x")))
    other.ask(produce_request(T, batch(b"y")))
    assert (stock.answers(), other.answers()) == ([], [])
    assert world.replicas.partition(T, 0).log.log_end_offset == 0

    world.zookeeper.release()

    assert [only_produced(client.answers()[0]).base_offset for client in (stock, other)] == [0, 1]
    assert world.replicas.partition(T, 0).admission is None


def test_appends_with_acks_0_and_1_wait_as_well(world: OwnershipWorld, anna: Owner) -> None:
    anna.client.connection.close("cut")
    world.clock.advance(1)
    stock, other = world.client(), world.client()
    world.zookeeper.is_held = True
    stock.ask(produce_request(T, batch(b"x"), acks=0))
    other.ask(produce_request(T, batch(b"y"), acks=1))
    assert world.replicas.partition(T, 0).log.log_end_offset == 0
    world.zookeeper.release()
    assert only_produced(other.answers()[0]).base_offset == 1
    assert not stock.connection.is_closed


def test_a_stranger_is_sent_away_while_zookeeper_does_not_answer(world: OwnershipWorld, anna: Owner) -> None:
    """And its append has not landed: on this error it looks for the leader, and tries again."""
    anna.client.connection.close("cut")
    world.clock.advance(1)
    stock = world.client()
    world.zookeeper.is_held = True
    stock.ask(produce_request(T, batch(b"x")))
    assert stock.answers() == []
    world.clock.advance(_MAKE_WAY_MS_MAX / 1000)
    refused = only_produced(stock.answers()[0])
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert "could come back" in str(refused.error_message)
    assert world.replicas.partition(T, 0).log.log_end_offset == 0
    world.zookeeper.release()
    assert write(stock) == (0, 0)


def test_a_broker_that_has_lost_its_lease_sends_the_stranger_away(world: OwnershipWorld, anna: Owner) -> None:
    anna.client.connection.close("cut")
    world.holds_lease = False
    assert write(world.client())[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.holds_lease = True
    assert resume(anna)[0] == 0


def test_a_stranger_whose_leader_has_been_replaced_ends_nothing(world: OwnershipWorld, anna: Owner) -> None:
    anna.client.connection.close("cut")
    world.clock.advance(1)
    path = PartitionKey(world.topic_id(T), 0).path
    before = world.zookeeper.znodes[path]
    stock = world.client()
    world.zookeeper.is_held = True
    stock.ask(produce_request(T, batch(b"x")))
    world.zookeeper.requests.clear()
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    assert only_produced(stock.answers()[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.zookeeper.znodes[path] == before


def test_a_new_leader_that_finds_a_grant_in_force_keeps_strangers_out(
    world: OwnershipWorld, anna: Owner
) -> None:
    """The leader before it had not written yet that the owner is gone."""
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    world.lead(T, leader_epoch=2)
    assert write(world.client())[0] == ErrorCode.POLICY_VIOLATION
    assert resume(anna)[0] == 0


def test_a_new_leader_that_finds_an_owner_gone_ends_its_grant_for_a_stranger(
    world: OwnershipWorld, anna: Owner
) -> None:
    anna.client.connection.close("cut")
    world.clock.advance(1)
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    world.lead(T, leader_epoch=2)
    assert write(world.client())[0] == 0
    assert resume(anna)[:2] == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_APPEND)


def test_a_client_that_the_owner_has_bound_is_no_stranger(world: OwnershipWorld) -> None:
    anna = world.owner("anna")
    anna.claim(T, writer_client_id="legacy")
    legacy = world.client("legacy")
    anna.client.connection.close("cut")
    assert write(legacy) == (0, 0)
    assert resume(anna)[0] == 0


def test_the_retry_of_a_batch_that_is_in_the_log_ends_nothing(world: OwnershipWorld) -> None:
    stock, anna = world.client(), world.owner("anna")
    data = batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0)
    assert only_produced(stock.call(produce_request(T, data))).base_offset == 0
    anna.claim(T)
    anna.client.connection.close("cut")
    assert only_produced(world.client().call(produce_request(T, data))).base_offset == 0
    assert resume(anna)[0] == 0


def test_an_append_whose_condition_does_not_hold_ends_nothing(world: OwnershipWorld, anna: Owner) -> None:
    anna.write(T)
    anna.client.connection.close("cut")
    request = produce_request(T, batch(b"x"))
    request.topic_data[0].partition_data[0].expected_offset = 0
    assert only_produced(world.client().call(request)).error_code == ErrorCode.OFFSET_MISMATCH
    assert resume(anna)[0] == 0

    anna.client.connection.close("cut")
    request.topic_data[0].partition_data[0].expected_offset = 1
    assert only_produced(world.client().call(request)).base_offset == 1
    assert resume(anna)[:2] == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_APPEND)


def test_an_append_of_damaged_batches_ends_nothing(world: OwnershipWorld, anna: Owner) -> None:
    anna.client.connection.close("cut")
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    written = only_produced(world.client().call(produce_request(T, bytes(damaged))))
    assert written.error_code == ErrorCode.CORRUPT_MESSAGE
    assert resume(anna)[0] == 0


def test_with_single_writer_required_strangers_end_nothing(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.writer": "required"})
    world.lead(T)
    anna = world.owner("anna")
    anna.claim(T)
    anna.client.connection.close("cut")
    assert write(world.client())[0] == ErrorCode.POLICY_VIOLATION
    assert resume(anna)[0] == 0


def test_a_fence_of_a_grant_that_has_ended_for_good_is_fenced_for_good(
    world: OwnershipWorld, anna: Owner
) -> None:
    anna.client.connection.close("cut")
    assert anna_by_fence(world, anna) == ErrorCode.OWNERSHIP_DETACHED
    write(world.client())
    assert anna_by_fence(world, anna) == ErrorCode.PRODUCER_FENCED


def anna_by_fence(world: OwnershipWorld, anna: Owner) -> int:
    request = produce_request(T, batch(b"x"))
    data = request.topic_data[0].partition_data[0]
    data.owner_token, data.owner_secret = anna.incarnation, secret_of("anna")
    return only_produced(world.client().call(request)).error_code


def test_a_partition_that_was_never_owned_or_was_released_costs_nothing(world: OwnershipWorld) -> None:
    assert world.replicas.partition(T, 0).admission is None
    anna = world.owner("anna")
    anna.claim(T)
    anna.client.call(anna.release_request(T))
    assert world.replicas.partition(T, 0).admission is None


# Fetches


def fetch(client: StockClient, world: OwnershipWorld) -> int:
    request: FetchRequest = fetch_request(world.topic_id(T))
    return only_fetched(client.call(request)).error_code


def test_a_foreign_fetch_ends_the_grant_of_a_reader_that_is_gone(
    world: OwnershipWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast_log.broker.ownership.audit")
    anna, ben = world.owner("anna", access=Access.READ), world.owner("ben", access=Access.READ)
    anna.claim(T)
    assert ben.claim(T, -1).error_code == ErrorCode.RESOURCE_OWNED
    assert fetch(ben.client, world) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    anna.client.connection.close("cut")
    assert fetch(ben.client, world) == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is sent again"
    assert fetch(ben.client, world) == 0
    assert resume(anna)[:3] == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_FETCH, 2)
    assert any("(FOREIGN_FETCH): t-0 in group 'app', by client 'test'" in line for line in caplog.messages)


def test_a_foreign_fetch_is_served_only_once_the_end_is_durable(world: OwnershipWorld) -> None:
    anna, ben = world.owner("anna", access=Access.READ), world.owner("ben", access=Access.READ)
    anna.claim(T)
    ben.claim(T, -1)
    anna.client.connection.close("cut")
    world.clock.advance(1)
    world.zookeeper.is_held = True
    assert [fetch(ben.client, world) for _ in range(3)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3
    assert world.zookeeper.held == 1
    world.zookeeper.release()
    assert fetch(ben.client, world) == 0


def test_a_consumer_outside_of_the_group_ends_nothing(world: OwnershipWorld) -> None:
    anna = world.owner("anna", access=Access.READ)
    elsewhere = world.owner("ben", "other", access=Access.READ)
    anna.claim(T)
    elsewhere.claim(T)
    anna.client.connection.close("cut")
    assert (fetch(world.client(), world), fetch(elsewhere.client, world)) == (0, 0)
    assert resume(anna)[0] == 0


def test_an_owner_of_both_loses_both_to_a_foreign_fetch_and_nothing_to_a_refused_one(
    world: OwnershipWorld,
) -> None:
    anna = world.owner("anna", access=Access.READ | Access.WRITE)
    ben = world.owner("ben", access=Access.READ)
    anna.claim(T)
    ben.claim(T, -1)
    anna.client.connection.close("cut")
    fetch(ben.client, world)
    assert resume(anna)[:2] == (ErrorCode.OWNERSHIP_FENCED, LossReason.FOREIGN_FETCH)
    assert world.replicas.partition(T, 0).admission is None
