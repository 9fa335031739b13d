"""Fences: requests that prove by a grant's incarnation and the secret of its claim that they are the owner's,
whichever connection they use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast_log.broker.replication.admission import RequestFence
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest, PartitionData
from holdfast_log.protocol.messages.ownership import Access
from holdfast_log.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
)
from tests.broker.ownership.world import SESSION_MS, Owner, OwnershipWorld
from tests.broker.world import Client, fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import batch
from tests.models.transactional import transactional_batch

T = "t"
STRANGER = b"drawn by a stranger"


def fenced(request: ProduceRequest, owner: Owner, **fields: Any) -> ProduceRequest:
    """The request with the fence of the owner's last grant in each partition."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            data.owner_token = fields.get("token", owner.incarnation + fields.get("ahead", 0))
            data.owner_secret = fields.get("secret", owner.secret)
    return request


def produced(client: Client, owner: Owner, acks: int = -1, **fields: Any) -> PartitionProduceResponse:
    """The answer to a write on the client's connection with the owner's fence."""
    return only_produced(client.call(fenced(produce_request(T, batch(b"x"), acks=acks), owner, **fields)))


def write(client: Client, owner: Owner, acks: int = -1, **fields: Any) -> int:
    return produced(client, owner, acks, **fields).error_code


def fenced_fetch(world: OwnershipWorld, owner: Owner, max_wait_ms: int = 0, **fields: Any) -> FetchRequest:
    request = fetch_request(world.topic_id(T), offset=fields.get("offset", 0), max_wait_ms=max_wait_ms)
    (wanted,) = request.topics[0].partitions
    wanted.owner_token = fields.get("token", owner.incarnation + fields.get("ahead", 0))
    wanted.owner_secret = fields.get("secret", owner.secret)
    return request


def fetched(world: OwnershipWorld, client: Client, owner: Owner, **fields: Any) -> PartitionData:
    return only_fetched(client.call(fenced_fetch(world, owner, **fields)))


def log_end(world: OwnershipWorld) -> int:
    return world.replicas.partition(T, 0).log.log_end_offset


# -- writing ---------------------------------------------------------------------------------------------


def test_any_connection_writes_with_the_fence_of_the_owner(world: OwnershipWorld, anna: Owner) -> None:
    pool = [world.client() for _ in range(3)]
    assert [write(client, anna) for client in pool] == [0, 0, 0]
    assert anna.write(T) == 0, "the owner's own connection needs no fence"
    stranger = only_produced(pool[0].call(produce_request(T, batch(b"x"))))
    assert stranger.error_code == ErrorCode.POLICY_VIOLATION, "the connection itself owns nothing"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"secret": STRANGER}, "it lacks the secret of the claim"),
        ({"secret": b""}, "it lacks the secret of the claim"),
        ({"ahead": 7}, "no grant has incarnation {}"),
        ({"token": 0}, "no grant has incarnation 0"),
        ({"token": -2}, "no grant has incarnation -2"),
        ({"ahead": 7, "secret": STRANGER}, "no grant has incarnation {}"),
    ],
)
def test_a_forged_or_future_fence_is_refused(
    world: OwnershipWorld, anna: Owner, fields: dict[str, Any], why: str
) -> None:
    refused = produced(world.client(), anna, **fields)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (refused.error_message or "").endswith(why.format(anna.incarnation + 7))
    assert log_end(world) == 0


def test_a_forged_fence_is_refused_on_the_owners_own_connection_too(
    world: OwnershipWorld, anna: Owner
) -> None:
    assert write(anna.client, anna, secret=STRANGER) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert write(anna.client, anna) == 0


def test_the_fence_of_an_earlier_grant_is_refused_as_a_fenced_connection_is(
    world: OwnershipWorld, anna: Owner
) -> None:
    pool, ben = world.client(), world.owner("ben")
    ben.claim(T)
    for secret in (anna.secret, STRANGER):
        refused = produced(pool, anna, secret=secret)
        assert refused.error_code == ErrorCode.PRODUCER_FENCED
    assert f"The newest grant has incarnation {ben.incarnation}" in (refused.error_message or "")
    assert not pool.connection.is_closed
    assert write(pool, ben) == 0, "the same connection, with the fence in force"


def test_each_batch_of_a_transaction_needs_a_grant_in_force(world: OwnershipWorld, anna: Owner) -> None:
    """Not only the one that begins the transaction in the partition."""
    pool, ben = world.client(), world.owner("ben")

    def write_in_transaction(sequence: int) -> int:
        request = produce_request(T, transactional_batch(b"x", sequence=sequence), acks=-1)
        request.transactional_id = "for anna"
        return only_produced(pool.call(fenced(request, anna))).error_code

    assert [write_in_transaction(0), write_in_transaction(1)] == [0, 0]
    ben.claim(T)
    assert write_in_transaction(2) == ErrorCode.PRODUCER_FENCED
    assert log_end(world) == 2


def test_the_fence_of_one_claim_does_not_serve_a_later_claim_of_the_same_owner(
    world: OwnershipWorld, anna: Owner
) -> None:
    before = anna.incarnation
    anna.claim(T, generation=2)
    assert write(world.client(), anna, token=before) == ErrorCode.PRODUCER_FENCED
    assert write(world.client(), anna) == 0


def test_a_writer_of_another_group_ends_the_fence(world: OwnershipWorld, anna: Owner) -> None:
    other = world.owner("cleo", "others")
    other.claim(T, generation=0)
    assert write(world.client(), anna) == ErrorCode.PRODUCER_FENCED
    assert write(world.client(), other) == 0


def test_the_fence_of_a_released_grant_is_refused_although_nobody_owns_the_partition(
    world: OwnershipWorld, anna: Owner
) -> None:
    pool = world.client()
    anna.client.call(anna.release_request(T))
    assert write(pool, anna) == ErrorCode.PRODUCER_FENCED
    assert only_produced(pool.call(produce_request(T, batch(b"x")))).error_code == 0


def test_a_fence_is_refused_where_the_partition_was_never_owned(world: OwnershipWorld) -> None:
    assert write(world.client(), world.owner("anna"), token=1) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_fence_is_judged_even_with_single_writer_off(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.writer": "off"})
    world.lead(T)
    anna, ben = world.owner("anna"), world.owner("ben")
    anna.claim(T)
    assert write(world.client(), anna) == 0
    ben.claim(T)
    assert write(world.client(), anna) == ErrorCode.PRODUCER_FENCED
    assert only_produced(world.client().call(produce_request(T, batch(b"x")))).error_code == 0


def test_while_the_owner_may_resume_after_silence_its_fence_waits(world: OwnershipWorld, anna: Owner) -> None:
    pool = world.client()
    anna.client.connection.close("gone")
    assert write(pool, anna) == ErrorCode.OWNERSHIP_DETACHED
    assert write(pool, anna, secret=STRANGER) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    anna.reconnect()
    assert anna.resume(T).error_code == 0
    assert write(pool, anna) == 0
    anna.client.connection.close("gone")
    world.owner("ben").claim(T, generation=-1)
    assert write(pool, anna) == ErrorCode.PRODUCER_FENCED


def test_fenced_writes_do_not_renew_the_owners_session(world: OwnershipWorld, anna: Owner) -> None:
    pool = world.client()
    for _ in range(10):
        assert write(pool, anna) == 0
        world.clock.pump([0.1] * (SESSION_MS // 1000))
    world.clock.pump([0.1] * 2)
    assert write(pool, anna) == ErrorCode.OWNERSHIP_DETACHED


def test_the_owner_is_detached_but_its_fence_holds_until_its_grace_ends(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, **{"own.release.grace.ms": 2000})
    world.lead(T)
    anna, pool = world.owner("anna"), world.client()
    anna.claim(T)
    anna.client.connection.close("gone")
    assert write(pool, anna) == 0
    world.clock.pump([0.1] * 21)
    assert write(pool, anna) == ErrorCode.OWNERSHIP_DETACHED


def test_the_next_leader_admits_the_fence_before_the_owner_has_resumed(
    world: OwnershipWorld, anna: Owner
) -> None:
    pool = world.client()
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    assert write(pool, anna) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.lead(T, leader_epoch=2)
    assert anna.write(T) == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "anna's connection has not resumed"
    assert write(pool, anna) == 0


@pytest.mark.parametrize("fields", [{}, {"ahead": 7}, {"secret": STRANGER}])
def test_a_broker_without_its_lease_judges_no_fence(
    world: OwnershipWorld, anna: Owner, fields: dict[str, Any]
) -> None:
    """It may have been replaced, and does not know the newest grant: nothing is refused for good."""
    pool = world.client()
    world.holds_lease = False
    assert write(pool, anna, **fields) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(world, pool, anna, **fields).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    world.holds_lease = True
    assert write(pool, anna) == 0


@pytest.mark.parametrize("acks", [1, 0])
def test_fenced_writes_need_acks_all(world: OwnershipWorld, anna: Owner, acks: int) -> None:
    pool = world.client()
    if acks:
        assert write(pool, anna, acks) == ErrorCode.INVALID_REQUIRED_ACKS
    else:
        pool.ask(fenced(produce_request(T, batch(b"x"), acks=0), anna))
        assert pool.connection.is_closed
    assert log_end(world) == 0


def test_the_retry_of_a_batch_in_the_log_is_answered_with_its_offset_after_the_grant_has_ended(
    world: OwnershipWorld, anna: Owner
) -> None:
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    first, second = world.client(), world.client()
    assert only_produced(first.call(fenced(produce_request(T, records), anna))).error_code == 0
    world.owner("ben").claim(T)
    again = only_produced(second.call(fenced(produce_request(T, records), anna)))
    assert (again.error_code, again.base_offset) == (0, 0)


def test_a_refused_batch_takes_no_sequence_number(world: OwnershipWorld, anna: Owner) -> None:
    def batch_at(sequence: int) -> bytes:
        return batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)

    pool = world.client()
    assert only_produced(pool.call(fenced(produce_request(T, batch_at(0)), anna))).error_code == 0
    ben = world.owner("ben")
    ben.claim(T)
    refused = only_produced(pool.call(fenced(produce_request(T, batch_at(1)), anna)))
    assert refused.error_code == ErrorCode.PRODUCER_FENCED
    behind = only_produced(pool.call(fenced(produce_request(T, batch_at(2)), ben)))
    assert behind.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert only_produced(pool.call(fenced(produce_request(T, batch_at(1)), ben))).error_code == 0


def test_a_fence_on_a_guard_refuses_the_whole_request(world: OwnershipWorld, anna: Owner) -> None:
    world.lead("other")
    request = fenced(produce_request("other", batch(b"x")), anna)
    (topic,) = request.topic_data
    topic.partition_data[0].owner_token = -1
    guard = PartitionProduceData(
        index=0, records=None, expected_offset=0, owner_token=anna.incarnation, owner_secret=anna.secret
    )
    request.topic_data.append(type(topic)(name=T, partition_data=[guard]))

    def codes() -> list[int]:
        answers = world.client().call(request).responses
        return [answer.partition_responses[0].error_code for answer in answers]

    assert codes() == [0, 0]
    world.owner("ben").claim(T)
    assert codes() == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.PRODUCER_FENCED]


# -- reading ---------------------------------------------------------------------------------------------


@pytest.fixture
def reader(world: OwnershipWorld) -> Owner:
    """The reader of t-0 in its group."""
    reader = world.owner("rita", "readers", Access.READ)
    reader.claim(T)
    return reader


def test_any_connection_reads_with_the_fence_of_the_reader(world: OwnershipWorld, reader: Owner) -> None:
    world.client().call(produce_request(T, batch(b"x")))
    answer = fetched(world, world.client(), reader)
    assert (answer.error_code, bool(answer.records)) == (0, True)


def test_with_single_reader_required_a_fence_is_enough_to_read(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.reader": "required"})
    world.lead(T)
    reader = world.owner("rita", "readers", Access.READ)
    reader.claim(T)
    pool = world.client()
    plain = pool.call(fetch_request(world.topic_id(T)))
    assert only_fetched(plain).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert fetched(world, pool, reader).error_code == 0


@pytest.mark.parametrize("fields", [{"secret": STRANGER}, {"secret": b""}, {"ahead": 7}, {"token": 0}])
def test_a_forged_or_future_fence_reads_nothing(
    world: OwnershipWorld, reader: Owner, fields: dict[str, Any]
) -> None:
    refused = fetched(world, world.client(), reader, **fields)
    assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "fence" in (refused.error_message or "")


def test_a_reader_that_was_replaced_reads_nothing_with_its_fence(
    world: OwnershipWorld, reader: Owner
) -> None:
    other = world.owner("olga", "readers", Access.READ)
    other.claim(T)
    assert fetched(world, world.client(), reader).error_code == ErrorCode.OWNERSHIP_FENCED
    assert fetched(world, world.client(), other).error_code == 0
    other.client.connection.close("gone")
    assert fetched(world, world.client(), other).error_code == ErrorCode.OWNERSHIP_DETACHED


def test_a_fence_allows_only_what_its_grant_allows(world: OwnershipWorld, anna: Owner, reader: Owner) -> None:
    assert write(world.client(), reader) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert fetched(world, world.client(), anna).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert write(world.client(), anna) == 0, "the reader's grant is newer, and ends no writer's"


def test_a_waiting_fetch_is_refused_when_its_grant_has_ended(world: OwnershipWorld, reader: Owner) -> None:
    pool = world.client()
    pool.ask(fenced_fetch(world, reader, max_wait_ms=5000))
    world.owner("olga", "readers", Access.READ).claim(T)
    assert pool.answers() == []
    world.client().call(produce_request(T, batch(b"x")))
    (answer,) = pool.answers()
    assert only_fetched(answer).error_code == ErrorCode.OWNERSHIP_FENCED
    assert not only_fetched(answer).records


def in_session(request: FetchRequest, session_id: int, epoch: int) -> FetchRequest:
    request.session_id, request.session_epoch = session_id, epoch
    return request


def unnamed(world: OwnershipWorld, session_id: int, epoch: int) -> FetchRequest:
    """The next fetch of a session, which names no partition."""
    request = in_session(fetch_request(world.topic_id(T)), session_id, epoch)
    request.topics = []
    return request


def test_a_fetch_session_keeps_the_fence(world: OwnershipWorld, reader: Owner) -> None:
    world.client().call(produce_request(T, batch(b"x")))
    pool = world.client()
    opened = pool.call(in_session(fenced_fetch(world, reader), 0, 0))
    assert (only_fetched(opened).error_code, opened.session_id > 0) == (0, True)
    session = opened.session_id
    assert only_fetched(pool.call(unnamed(world, session, 1))).error_code == 0

    renamed = in_session(fetch_request(world.topic_id(T), offset=1), session, 2)
    assert pool.call(renamed).error_code == 0
    world.owner("olga", "readers", Access.READ).claim(T)
    world.client().call(produce_request(T, batch(b"y")))
    refused = only_fetched(pool.call(unnamed(world, session, 3)))
    assert refused.error_code == ErrorCode.OWNERSHIP_FENCED
    assert only_fetched(pool.call(unnamed(world, session, 4))).error_code == ErrorCode.OWNERSHIP_FENCED


def test_a_session_with_fences_is_found_on_its_own_connection_only(
    world: OwnershipWorld, reader: Owner
) -> None:
    pool, plain, stranger = world.client(), world.client(), world.client()
    with_fence = pool.call(in_session(fenced_fetch(world, reader), 0, 0)).session_id
    without = plain.call(in_session(fetch_request(world.topic_id(T)), 0, 0)).session_id
    assert stranger.call(unnamed(world, without, 1)).error_code == 0, "as sessions may"
    refused = stranger.call(unnamed(world, with_fence, 1))
    assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert pool.call(unnamed(world, with_fence, 1)).error_code == 0


# -- sessions of the owner -------------------------------------------------------------------------------


def renew_on(client: Client, owner: Owner) -> int:
    (standing,) = client.call(owner.renew_request(T)).resources
    return standing.error_code


def test_renewals_on_another_connection_keep_the_session_of_a_silent_connection(
    world: OwnershipWorld, anna: Owner
) -> None:
    other = world.client()
    for _ in range(4):
        world.clock.pump([0.1] * 60)
        assert renew_on(other, anna) == ErrorCode.OWNERSHIP_DETACHED
    assert write(world.client(), anna) == 0
    world.clock.pump([0.1] * (SESSION_MS // 100 + 1))
    assert write(world.client(), anna) == ErrorCode.OWNERSHIP_DETACHED


def test_renewals_on_another_connection_outlive_the_connection_of_the_claim(
    world: OwnershipWorld, anna: Owner
) -> None:
    other = world.client()
    renew_on(other, anna)
    anna.client.connection.close("gone")
    for _ in range(4):
        world.clock.pump([0.1] * 60)
        assert renew_on(other, anna) == ErrorCode.OWNERSHIP_DETACHED
        assert write(world.client(), anna) == 0
    assert world.owner("ben").claim(T, generation=-1).error_code == ErrorCode.RESOURCE_OWNED
    world.clock.pump([0.1] * (SESSION_MS // 100 + 1))
    assert world.owner("ben").claim(T, generation=-1).error_code == 0


def test_a_stranger_keeps_no_session(world: OwnershipWorld, anna: Owner) -> None:
    stranger = world.owner("anna")
    stranger.secret, stranger.incarnation = STRANGER, anna.incarnation
    assert renew_on(stranger.client, stranger) == ErrorCode.OWNERSHIP_FENCED
    anna.client.connection.close("gone")
    assert world.owner("ben").claim(T, generation=-1).error_code == 0


def test_renewals_count_for_their_own_grant_only(world: OwnershipWorld, anna: Owner) -> None:
    renew_on(world.client(), anna)
    ben = world.owner("ben")
    ben.claim(T)
    ben.client.connection.close("gone")
    assert world.owner("cleo").claim(T, generation=-1).error_code == 0


def test_a_fence_shows_no_secret() -> None:
    assert "sesame" not in repr(RequestFence(1, b"open sesame"))
