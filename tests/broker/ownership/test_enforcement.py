"""Ownership enforced at the append, at the fetch, and in ZooKeeper."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast_log.broker.metrics.row import read_single
from holdfast_log.broker.ownership.metrics import OWNERSHIP_METRICS
from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.coordinator.ownership.records import HISTORY_MAX, PartitionKey
from holdfast_log.coordinator.repeated_log import INTERVAL_S
from holdfast_log.coordinator.znodes.topics import (
    PartitionState,
    encode_partition_state,
    partition_state_path,
)
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.ownership import Access, LossReason, ResourceClaim
from holdfast_log.protocol.messages.ownership_sight import (
    DescribeOwnersRequest,
    ForceReleaseRequest,
    OwnershipState,
    ResourceToRelease,
)
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode, ProducerAccessRequest
from tests.broker.ownership.world import SESSION_MS, Owner, OwnershipWorld
from tests.broker.world import Client, fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import batch

T = "t"
OFFSETS = "__consumer_offsets"
WAITING_FORMS = ("one partition", "two partitions", "session")
PING_MS = OwnershipSettings().ping_timeout_ms


def write(client: Client, topic: str = T) -> int:
    return only_produced(client.call(produce_request(topic, batch(b"x")))).error_code


def is_open(owner: Owner) -> bool:
    return not owner.client.connection.is_closed


def is_guarded(world: OwnershipWorld) -> bool:
    return world.replicas.partition(T, 0).admission is not None


def fetch(world: OwnershipWorld, client: Client, replica_id: int = -1) -> int:
    return only_fetched(client.call(fetch_request(world.topic_id(T), replica_id=replica_id))).error_code


def test_the_first_refused_write_to_a_topic_is_logged_and_others_are_counted(
    world: OwnershipWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast_log.broker.ownership.guards")
    anna = world.owner("anna")
    anna.claim(T)
    for _ in range(150):
        assert write(world.client()) == ErrorCode.POLICY_VIOLATION
    anna.client.connection.close("gone")
    world.owner("bob").claim(T)  # The partition gets a new guard.
    assert write(world.client()) == ErrorCode.POLICY_VIOLATION

    (first,) = caplog.messages
    assert "only its owner may write to t-0" in first and "Claim it first" in first

    world.clock.advance(INTERVAL_S)
    (count,) = caplog.messages[1:]
    assert "refused writes to topic t: 150 more, the last: Refused a write of client 'test'" in count
    assert "bob at 127.0.0.1 owns it" in count


def test_only_the_owner_of_an_owned_partition_writes(world: OwnershipWorld) -> None:
    stock, anna = world.client(), world.owner("anna")
    assert write(stock) == 0
    anna.claim(T)
    assert (anna.write(T), write(stock)) == (0, ErrorCode.POLICY_VIOLATION)
    refused = only_produced(stock.call(produce_request(T, batch(b"x"))))
    assert refused.error_message is not None
    assert "anna at 127.0.0.1 owns it" in refused.error_message
    assert "Claim it first" in refused.error_message

    anna.client.connection.close("gone")

    assert write(stock) == 0


def test_a_partition_has_guards_only_while_it_has_an_owner_or_may_get_its_last_one_back(
    world: OwnershipWorld,
) -> None:
    assert not is_guarded(world)
    anna = world.owner("anna")
    anna.claim(T)
    assert is_guarded(world)
    assert world.replicas.partition(T, 0).read_admission is None
    anna.client.connection.close("gone")
    assert is_guarded(world), "anna may resume until somebody else writes"
    assert write(world.client()) == 0
    assert not is_guarded(world)


def test_with_single_writer_required_only_an_owner_writes(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.writer": "required"})
    world.lead(T)
    stock, anna = world.client(), world.owner("anna")
    assert write(stock) == ErrorCode.POLICY_VIOLATION
    anna.claim(T)
    assert anna.write(T) == 0
    anna.client.call(anna.release_request(T))
    assert anna.write(T) == ErrorCode.PRODUCER_FENCED
    assert write(stock) == ErrorCode.POLICY_VIOLATION


def test_with_single_writer_off_former_owners_are_severed_and_appends_not_checked(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.writer": "off"})
    world.lead(T)
    anna, ben = world.owner("anna"), world.owner("ben")
    anna.claim(T)
    ben.claim(T)
    assert not is_open(anna)
    assert write(world.client()) == 0
    assert ben.write(T, acks=1) == 0


@pytest.mark.parametrize("acks", [1])
def test_case_12_an_owner_writes_with_acks_all(anna: Owner, acks: int) -> None:
    """ "Conditional or owned writes need acks=all, else INVALID_REQUIRED_ACKS"."""
    assert anna.write(T, acks=acks) == ErrorCode.INVALID_REQUIRED_ACKS


def test_case_2_a_write_queued_behind_a_steal_is_checked_at_the_append(
    world: OwnershipWorld, anna: Owner
) -> None:
    """ "Check the generation where the offset is assigned, not at the socket": the broker has received both
    requests when the owner changes between them."""
    ben = world.owner("ben")
    world.zookeeper.is_held = True
    ben.ask(ben.claim_request(T))
    assert anna.write(T) == 0, "the steal is not durable yet"

    world.zookeeper.release()
    anna.ask(produce_request(T, batch(b"late")))

    (answer,) = ben.client.answers()
    assert (answer.resources[0].error_code, answer.resources[0].fence_offset) == (0, 1)
    assert not is_open(anna)
    assert world.replicas.partition(T, 0).log.log_end_offset == 1


def test_a_retry_of_a_batch_in_the_log_is_not_refused(world: OwnershipWorld) -> None:
    stock, anna = world.client(), world.owner("anna")
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    stock.call(produce_request(T, records))
    anna.claim(T)
    again = only_produced(stock.call(produce_request(T, records)))
    assert (again.error_code, again.base_offset) == (0, 0)


def test_a_client_named_in_the_claim_may_write_like_the_owner(world: OwnershipWorld) -> None:
    anna, stock = world.owner("anna"), world.client()
    anna.claim(T, writer_client_id="test", writer_principal="User:ANONYMOUS")
    assert write(stock) == 0
    ben = world.owner("ben")
    ben.claim(T, writer_client_id="another")
    assert write(stock) == ErrorCode.PRODUCER_FENCED


def test_case_18_fetches_of_replicas_are_exempt(tmp_path: Path) -> None:
    """ "Replication is exempt by broker identity"."""
    world = OwnershipWorld(tmp_path, topic_config={"single.reader": "required"})
    world.lead(T, replicas=(1, 2))
    assert fetch(world, world.client(), replica_id=2) == 0
    assert fetch(world, world.client()) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_group_has_one_reader(world: OwnershipWorld) -> None:
    anna = world.owner("anna", "readers", Access.READ)
    ben = world.owner("ben", "readers", Access.READ)
    anna.claim(T)
    assert ben.claim(T, generation=-1).error_code == ErrorCode.RESOURCE_OWNED
    assert fetch(world, anna.client) == 0
    assert fetch(world, ben.client) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    other = world.owner("cleo", "others", Access.READ)
    assert other.claim(T).generation == 1
    assert fetch(world, other.client) == 0
    assert fetch(world, world.client()) == 0, "a client without a group of the own API may read"


def waiting_fetch(world: OwnershipWorld, form: str) -> FetchRequest:
    """A fetch of t-0 that waits: of one partition, of two, or in a new session."""
    request = fetch_request(world.topic_id(T), max_wait_ms=5000)
    if form == "two partitions":
        request.topics += fetch_request(world.topic_id("u")).topics
    if form == "session":
        request.session_id, request.session_epoch = 0, 0
    return request


@pytest.mark.parametrize("form", WAITING_FORMS)
def test_a_waiting_fetch_is_refused_after_its_group_gets_another_reader(
    world: OwnershipWorld, form: str
) -> None:
    world.lead("u")
    anna = world.owner("anna", "readers", Access.READ)
    ben = world.owner("ben", "readers", Access.READ)
    anna.claim(T)
    ben.claim(T, generation=-1)
    anna.client.call(anna.release_request(T))
    if form == "session":
        first = waiting_fetch(world, form)
        first.max_wait_ms = 0
        opened = ben.client.call(first)
        request = waiting_fetch(world, form)
        request.session_id, request.session_epoch, request.topics = opened.session_id, 1, []
        ben.ask(request)
    else:
        ben.ask(waiting_fetch(world, form))
    anna.claim(T, generation=-1)
    assert ben.client.answers() == []

    assert write(world.client()) == 0

    (answer,) = ben.client.answers()
    topics = {topic.topic_id: topic.partitions for topic in answer.responses}
    (row,) = topics[world.topic_id(T)]
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not row.records


def test_with_single_reader_required_only_an_owner_reads(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.reader": "required"})
    world.lead(T)
    anna = world.owner("anna", "readers", Access.READ)
    assert fetch(world, anna.client) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    anna.claim(T)
    assert fetch(world, anna.client) == 0
    assert fetch(world, world.client()) == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_case_8_a_silent_owner_is_severed_after_its_session_timeout(
    world: OwnershipWorld, anna: Owner
) -> None:
    world.clock.pump([0.1] * 99)
    assert anna.renew(T).error_code == 0
    world.clock.pump([0.1] * 99)
    assert is_open(anna)
    world.clock.pump([0.1] * 2)
    assert not is_open(anna)
    assert write(world.client()) == 0


def test_any_request_extends_an_owners_session(world: OwnershipWorld, anna: Owner) -> None:
    for _ in range(5):
        world.clock.advance(SESSION_MS / 1000 - 0.1)
        assert anna.write(T) == 0
    assert is_open(anna)


def test_an_owner_whose_connection_is_muted_keeps_its_session(world: OwnershipWorld, anna: Owner) -> None:
    anna.client.connection.mute(SESSION_MS + 5000)
    world.clock.pump([0.5] * (2 * (SESSION_MS + 4000) // 1000))
    assert is_open(anna)


def test_a_standstill_of_the_broker_ends_no_session(world: OwnershipWorld, anna: Owner) -> None:
    """The owner's requests are still in the socket: the broker reads them before it judges the session."""
    world.clock.advance(SESSION_MS / 1000 + 30)
    assert is_open(anna)
    assert anna.write(T) == 0
    world.clock.pump([0.5] * 4)
    assert is_open(anna)


def test_a_busy_broker_severs_silent_owners_after_a_standstill(world: OwnershipWorld, anna: Owner) -> None:
    """Each claim resets the timer, which must fire after waiting requests are read, and no later."""
    ben = world.owner("ben")
    world.clock.advance(SESSION_MS / 1000 + 30)
    for _ in range(10):
        assert ben.claim(T, generation=-1).error_code in (0, ErrorCode.RESOURCE_OWNED)
        world.clock.advance(0.1)
    assert not is_open(anna)


def test_a_renew_waits_until_its_owners_standing_changes(world: OwnershipWorld, anna: Owner) -> None:
    ben = world.owner("ben")
    anna.renew(T)
    anna.ask(anna.renew_request(T, max_wait_ms=3000))
    assert anna.client.answers() == []

    ben.claim(T, generation=-1, wait_timeout_ms=-1)

    (answer,) = anna.client.answers()
    assert (answer.resources[0].error_code, answer.resources[0].is_contended) == (0, True)
    ben.renew(T)
    ben.ask(ben.renew_request(T, max_wait_ms=3000))
    anna.client.connection.close("gone")
    (promoted,) = ben.client.answers()
    assert (promoted.resources[0].error_code, promoted.resources[0].generation) == (0, 2)
    assert ben.write(T) == 0


def test_a_waiting_renew_is_answered_after_max_wait_ms(world: OwnershipWorld, anna: Owner) -> None:
    anna.renew(T)
    anna.ask(anna.renew_request(T, max_wait_ms=3000))
    world.clock.advance(2.9)
    assert anna.client.answers() == []
    world.clock.advance(0.2)
    (answer,) = anna.client.answers()
    assert answer.resources[0].error_code == 0


def test_a_paused_owner_whose_last_renew_was_answered_is_pinged_too(
    world: OwnershipWorld, anna: Owner
) -> None:
    """Its Renew may wait, so it relies on its session for `own.ping.timeout.ms` only."""
    anna.renew(T)
    anna.ask(anna.renew_request(T, max_wait_ms=500))
    world.clock.advance(0.6)
    assert len(anna.client.answers()) == 1
    ben = world.owner("ben")
    ben.claim(T, generation=-1, wait_timeout_ms=-1)
    world.clock.pump([0.1] * (PING_MS // 100 - 2))
    assert is_open(anna)
    world.clock.pump([0.1] * 5)
    assert not is_open(anna)
    assert ben.write(T) == 0


def test_a_pinged_owner_that_renews_keeps_its_resource(world: OwnershipWorld, anna: Owner) -> None:
    anna.renew(T)
    anna.ask(anna.renew_request(T, max_wait_ms=500))
    world.clock.advance(0.6)
    world.owner("ben").claim(T, generation=-1, wait_timeout_ms=-1)
    world.clock.pump([0.1] * 10)
    anna.ask(anna.renew_request(T, max_wait_ms=500))
    world.clock.pump([0.1] * (PING_MS // 100))
    assert is_open(anna)
    anna.client.answers()
    assert anna.write(T) == 0


def test_an_owner_whose_renews_never_wait_keeps_its_session_timeout(
    world: OwnershipWorld, anna: Owner
) -> None:
    anna.renew(T)
    world.owner("ben").claim(T, generation=-1, wait_timeout_ms=-1)
    world.clock.pump([0.1] * (PING_MS // 100 + 5))
    assert is_open(anna)


def test_a_claim_that_zookeeper_does_not_answer_times_out_and_can_be_repeated(world: OwnershipWorld) -> None:
    anna = world.owner("anna")
    world.zookeeper.is_held = True
    anna.ask(anna.claim_request(T, timeout_ms=500))
    world.clock.advance(0.6)
    (answer,) = anna.client.answers()
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    world.zookeeper.release()
    assert anna.claim(T).generation == 1


def test_a_write_to_zookeeper_with_a_lost_answer_is_read_back(world: OwnershipWorld, anna: Owner) -> None:
    ben = world.owner("ben")
    world.zookeeper.loses_answer = True
    taken = ben.claim(T)
    assert (taken.error_code, taken.generation) == (0, 2)
    assert ben.write(T) == 0


def test_a_claim_succeeds_after_a_change_of_the_isr(world: OwnershipWorld) -> None:
    anna = world.owner("anna")
    path = partition_state_path(T, 0)
    data, version = world.zookeeper.znodes[path]
    world.zookeeper.znodes[path] = (data, version + 3)
    assert anna.claim(T).generation == 1


def test_a_leader_that_has_been_replaced_grants_nothing(world: OwnershipWorld) -> None:
    """A zombie leader does not know of its successor; the write to ZooKeeper fails on the newer state."""
    anna = world.owner("anna")
    path = partition_state_path(T, 0)
    state = PartitionState(2, 1, (2,), 1)
    world.zookeeper.znodes[path] = (encode_partition_state(state), 1)

    response = anna.client.call(anna.claim_request(T))

    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert PartitionKey(world.topic_id(T), 0).path not in world.zookeeper.znodes
    assert world.replicas.partition(T, 0).admission is None


def test_a_new_leader_loads_the_grants_of_its_predecessor(world: OwnershipWorld, anna: Owner) -> None:
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    assert anna.write(T) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert is_open(anna), "anna may resume at the other broker, and may own other partitions here"

    world.lead(T, leader_epoch=2)

    assert write(world.client()) == ErrorCode.POLICY_VIOLATION
    # The error at which owners resume, those of older versions too.
    assert anna.write(T) == ErrorCode.TOPIC_AUTHORIZATION_FAILED, "anna has not resumed"
    assert anna.resume(T).generation == 1
    assert anna.write(T) == 0


def test_a_claim_is_answered_once_everything_before_its_fence_is_committed(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path)
    world.lead(T, replicas=(1, 2))
    world.client().ask(produce_request(T, batch(b"x")))
    anna = world.owner("anna")
    anna.ask(anna.claim_request(T))
    assert anna.client.answers() == []
    world.client().call(fetch_request(world.topic_id(T), 1, replica_id=2))
    (answer,) = anna.client.answers()
    assert (answer.resources[0].error_code, answer.resources[0].fence_offset) == (0, 1)


def test_a_former_leader_answers_no_claim(tmp_path: Path) -> None:
    world = OwnershipWorld(tmp_path)
    world.lead(T, replicas=(1, 2))
    world.client().ask(produce_request(T, batch(b"x")))
    anna, ben = world.owner("anna"), world.owner("ben")
    anna.ask(anna.claim_request(T))
    ben.ask(ben.claim_request(T, timeout_ms=300))
    world.clock.advance(0.4)
    assert ben.client.answers()[0].resources[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    assert not is_open(anna), "ben was granted the partition"
    world.lead(T, leader_epoch=2, replicas=(1, 2))
    cleo = world.owner("cleo")
    cleo.ask(cleo.claim_request(T, generation=2))
    world.assign(T, leader=2, leader_epoch=3, replicas=(1, 2))
    assert cleo.client.answers()[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_stopping_broker_promotes_no_waiter(world: OwnershipWorld, anna: Owner) -> None:
    ben = world.owner("ben")
    ben.claim(T, generation=-1, wait_timeout_ms=-1)
    world.ownership.service.stop()
    anna.client.connection.close("the broker is stopping")
    written = world.zookeeper.znodes[PartitionKey(world.topic_id(T), 0).path][0]
    assert b'"generation":2' not in written


def test_a_stopping_broker_refuses_forced_releases(world: OwnershipWorld) -> None:
    world.owner("anna").claim(T)
    world.ownership.service.stop()
    response = world.client().call(
        ForceReleaseRequest(group="app", resources=[ResourceToRelease(name=T, partition=0)], timeout_ms=5000)
    )
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def access(world: OwnershipWorld, owner: Owner, mode: ProducerAccessMode, **fields: int) -> int:
    response = owner.client.call(
        ProducerAccessRequest(
            topic=T,
            partition=fields.get("partition", 0),
            producer_id=owner.owner_id,
            mode=mode,
            epoch=fields.get("epoch", -1),
            session_timeout_ms=SESSION_MS,
            timeout_ms=5000,
        )
    )
    return response.error_code


def test_an_exclusive_producer_keeps_out_producers_without_access(world: OwnershipWorld) -> None:
    """ "the particular instance of that application is guaranteed to be only writer on that topic"
    (PIP-68)."""
    producer, stock = world.owner("producer"), world.client()
    assert access(world, producer, ProducerAccessMode.EXCLUSIVE) == 0
    assert (producer.write(T), write(stock)) == (0, ErrorCode.POLICY_VIOLATION)
    thief = world.owner("thief")
    assert access(world, thief, ProducerAccessMode.EXCLUSIVE_WITH_FENCING) == 0
    assert not is_open(producer)
    producer.reconnect()
    assert access(world, producer, ProducerAccessMode.EXCLUSIVE, epoch=1) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("policy", "mode", "error"),
    [
        ("off", ProducerAccessMode.EXCLUSIVE, ErrorCode.POLICY_VIOLATION),
        ("off", ProducerAccessMode.WAIT_FOR_EXCLUSIVE, ErrorCode.POLICY_VIOLATION),
        ("off", ProducerAccessMode.SHARED, ErrorCode.NONE),
        ("required", ProducerAccessMode.SHARED, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ("required", ProducerAccessMode.EXCLUSIVE, ErrorCode.NONE),
    ],
)
def test_the_single_writer_setting_decides_which_access_modes_are_granted(
    tmp_path: Path, policy: str, mode: ProducerAccessMode, error: ErrorCode
) -> None:
    world = OwnershipWorld(tmp_path, topic_config={"single.writer": policy})
    world.lead(T)
    assert access(world, world.owner("producer"), mode) == error


def test_access_requests_with_invalid_fields_are_refused(world: OwnershipWorld) -> None:
    owner = world.owner("producer")
    assert access(world, owner, 9) == ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    exclusive = ProducerAccessMode.EXCLUSIVE
    assert access(world, owner, exclusive, epoch=-2) == ErrorCode.INVALID_REQUEST
    assert access(world, owner, exclusive, partition=7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_are_owned_at_their_groups_coordinator(world: OwnershipWorld) -> None:
    anna, ben = world.owner("anna"), world.owner("ben")
    refused = anna.claim("leader", partition=-1)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    world.lead(OFFSETS)
    assert anna.claim("leader", partition=-1).generation == 1
    assert ben.claim("leader", partition=-1).generation == 2
    assert not is_open(anna)
    world.assign(OFFSETS, leader=2, leader_epoch=1, replicas=(1, 2))
    assert ben.renew("leader", -1).error_code == ErrorCode.NOT_COORDINATOR
    world.lead(OFFSETS, leader_epoch=2)
    assert ben.resume("leader", -1).generation == 2


def test_a_resource_whose_record_cannot_be_decoded_cannot_be_claimed(
    world: OwnershipWorld, anna: Owner
) -> None:
    """Failing closed: to start again at generation 1 would let stale owners in."""
    key = PartitionKey(world.topic_id(T), 0, T)
    world.zookeeper.znodes[key.path] = (b"{}", 7)
    world.assign(T, leader=2, leader_epoch=1, replicas=(1, 2))
    world.lead(T, leader_epoch=2)
    assert world.owner("ben").claim(T).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_owners_are_described_with_their_history(world: OwnershipWorld, anna: Owner) -> None:
    ben, cleo = world.owner("ben"), world.owner("cleo")
    anna.write(T)
    ben.claim(T)
    cleo.claim(T, generation=-1, wait_timeout_ms=60_000)
    write(world.client())

    response = world.client().call(DescribeOwnersRequest(include_history=True))

    (resource,) = response.resources
    assert (resource.name, resource.partition, resource.group) == (T, 0, "app")
    assert (resource.generation, resource.state, resource.owner_id) == (2, OwnershipState.OWNED, "ben")
    assert (resource.fence_offset, resource.session_timeout_ms) == (1, SESSION_MS)
    assert [waiter.owner_id for waiter in resource.waiters] == ["cleo"]
    assert [(past.generation, past.start_offset, past.reason) for past in resource.history] == [
        (1, 0, LossReason.STOLEN),
        (2, 1, LossReason.NONE),
    ]
    assert (resource.claims, resource.steals, resource.fenced_appends) == (2, 1, 1)
    assert world.client().call(DescribeOwnersRequest(groups=["other"])).resources == []


def test_names_are_described_before_any_client_has_claimed_them_at_this_broker(world: OwnershipWorld) -> None:
    """A group's new coordinator loads the owners of its names to describe them."""
    world.lead(OFFSETS)
    for group in ("app", "other"):
        world.owner("anna", group).claim("leader", partition=-1)
    world.lead(OFFSETS, leader_epoch=1)

    response = world.client().call(DescribeOwnersRequest(groups=None, include_history=False))

    assert [(each.group, each.name, each.owner_id) for each in response.resources] == [
        ("app", "leader", "anna"),
        ("other", "leader", "anna"),
    ]


def test_an_administrators_forced_release_severs_the_owner_and_is_audited(
    world: OwnershipWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast_log.broker.ownership.audit")
    anna = world.owner("anna")
    anna.claim(T)
    forced = world.client().call(
        ForceReleaseRequest(
            group="app",
            resources=[ResourceToRelease(name=T, partition=0)],
            timeout_ms=5000,
            comment="stuck\nsince noon",
        )
    )
    assert (forced.resources[0].error_code, forced.resources[0].owner_id) == (0, "anna")
    assert not is_open(anna)
    assert write(world.client()) == 0
    lines = [
        line.getMessage() for line in caplog.records if line.name == "holdfast_log.broker.ownership.audit"
    ]
    assert len(lines) == 3, "one line each for the grant, the request and the loss"
    assert "stuck\\nsince noon" in lines[1]


def test_claims_steals_refusals_and_fenced_appends_are_counted(world: OwnershipWorld, anna: Owner) -> None:
    ben = world.owner("ben")
    ben.claim(T, generation=-1)
    ben.claim(T)
    world.owner("cleo").claim(T, generation=-1, wait_timeout_ms=-1)
    write(world.client())
    found = read_single(OWNERSHIP_METRICS, world.ownership.service)
    taken = found.pop("holdfast_ownership_record_bytes")
    left = found.pop("holdfast_ownership_record_bytes_available")
    assert taken > 0 and taken + left == OwnershipSettings().records_bytes_max
    assert found == {
        "holdfast_ownership_claims_total": 2,
        "holdfast_ownership_steals_total": 1,
        "holdfast_ownership_refusals_total": 1,
        "holdfast_ownership_fenced_appends_total": 1,
        "holdfast_ownership_mismatches_total": 0,
        "holdfast_ownership_waiters": 1,
        "holdfast_ownership_owners": 1,
        "holdfast_ownership_forced_releases_total": 0,
        "holdfast_ownership_detached_owners": 0,
    }


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 2**31 - 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"generation": -2}, ErrorCode.INVALID_GENERATION),
        ({"access": 0}, ErrorCode.INVALID_REQUEST),
        ({"wait_timeout_ms": 5}, ErrorCode.INVALID_REQUEST),
        ({"partition": -2}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_claims_with_invalid_fields_are_refused(
    world: OwnershipWorld, fields: dict[str, int], error: ErrorCode
) -> None:
    anna = world.owner("anna")
    response = anna.client.call(anna.claim_request(T, **fields))
    assert (response.error_code, response.resources) == (error, [])
    assert response.error_message


def test_names_of_any_length_fit_into_a_write_to_zookeeper(world: OwnershipWorld) -> None:
    """ZooKeeper closes the connection of a broker that writes 1 MB at once, so clients must not cause it."""
    world.lead(OFFSETS)
    anna = world.owner("\N{GREEK SMALL LETTER ALPHA}" * 255)
    too_long = world.owner("\N{GRINNING FACE}" * 255)
    response = too_long.client.call(
        too_long.claim_request("leader", partition=-1, writer_client_id="b" * 255)
    )
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert response.error_message is not None
    assert "beyond ASCII" in response.error_message

    claims = [ResourceClaim(name=f"{n:0255}", partition=-1, generation=0) for n in range(100)]
    codes = set()
    for number in range(HISTORY_MAX):
        request = anna.claim_request(
            "", writer_client_id=f"{number:0255}", writer_principal=anna.owner_id[:200]
        )
        request.resources = claims
        codes.add(anna.client.call(request).error_code)
        assert max(len(data) for data, _ in world.zookeeper.znodes.values()) < 12_000
    assert codes == {0, ErrorCode.POLICY_VIOLATION}
    assert anna.claim("leader", partition=-1).error_code == 0


def test_requests_about_resources_without_an_owner_leave_no_state_behind(world: OwnershipWorld) -> None:
    world.lead(OFFSETS)
    anna = world.owner("anna")
    for number in range(50):
        anna.renew(f"name-{number}", -1)
        anna.client.call(anna.claim_request(T, generation=2))
    assert [str(resource.key) for resource in world.ownership.service.resources()] == ["t-0"]


def test_a_changed_single_writer_setting_is_enforced_at_once(world: OwnershipWorld) -> None:
    stock = world.client()
    world.logs.settings.set_topic(T, {"single.writer": "required"})
    world.ownership.service.topic_changed(T)
    assert write(stock) == ErrorCode.POLICY_VIOLATION
    world.logs.settings.set_topic(T, {})
    world.ownership.service.topic_changed(T)
    assert write(stock) == 0
