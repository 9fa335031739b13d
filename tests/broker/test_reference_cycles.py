"""Ended requests, answered or not, leave no reference cycle for the garbage collector.

A cycle for each request would make the collector traverse the whole broker several times a second, which
delays every client.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast_log.protocol.messages.ownership import IF_FREE
from tests.broker import test_parts as of_parts
from tests.broker.groups.group_broker import (
    GroupBroker,
    commit_request,
    heartbeat_request,
    join_alone,
    sync_request,
)
from tests.broker.groups.group_broker import fetch_request as offsets_request
from tests.broker.ownership.world import Owner, OwnershipWorld
from tests.broker.world import (
    Client,
    World,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
)
from tests.garbage import collector_off
from tests.models.batches import batch

REPETITIONS = 20


def assert_no_cycles(act: Callable[[], None]) -> None:
    """Repeat `act` with garbage collection disabled. Returns the number of objects that only a collection can
    free."""
    act()  # Objects created once, such as compiled codecs, may have cycles.
    with collector_off():
        try:
            for _ in range(REPETITIONS):
                act()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            kinds = Counter(type(each).__qualname__ for each in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert not kinds, f"{REPETITIONS} repetitions left cycles: {kinds.most_common(12)}"


def test_a_cycle_is_counted() -> None:
    def act() -> None:
        cycle: list[object] = []
        cycle.append(cycle)

    with pytest.raises(AssertionError, match="'list', 20"):
        assert_no_cycles(act)


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.assign("t")
    return world


class TestRequestsOfManyRows:
    def test_a_request_that_is_refused_in_parts_leaves_no_cycle(self) -> None:
        world = of_parts.World(of_parts.Undivided())

        def act() -> None:
            world.send(of_parts.asking(("refused", of_parts.ROWS)))
            world.turns()
            assert world.answered()

        assert_no_cycles(act)

    def test_records_that_cannot_be_deleted_leave_no_cycle(self, world: World) -> None:
        unknown = DeleteRecordsPartition(partition_index=7, offset=-1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[unknown])], timeout_ms=1000
        )

        def act() -> None:
            (topic,) = world.client().call(request).topics
            assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        assert_no_cycles(act)


class TestFetch:
    def test_a_fetch_answered_at_once_leaves_no_cycle(self, world: World) -> None:
        client = world.client()
        produce(client)
        assert_no_cycles(
            lambda: check_fetched(client.call(fetch_request(world.topic_id("t"))), ErrorCode.NONE)
        )

    @pytest.mark.parametrize("partitions", [1, 2])
    def test_a_fetch_answered_after_a_wait_leaves_no_cycle(self, world: World, partitions: int) -> None:
        world.assign("t", 1)
        consumer, producer = world.client(), world.client()

        def act() -> None:
            consumer.ask(tail(world, range(partitions)))
            assert not consumer.answers()
            produce(producer)
            assert consumer.answers()

        assert_no_cycles(act)

    def test_a_fetch_that_times_out_leaves_no_cycle(self, world: World) -> None:
        consumer = world.client()

        def act() -> None:
            consumer.ask(tail(world))
            world.clock.advance(1)
            assert consumer.answers()

        assert_no_cycles(act)

    def test_a_waiting_fetch_of_a_closed_connection_leaves_no_cycle(self, world: World) -> None:
        def act() -> None:
            consumer = world.client()
            consumer.ask(tail(world))
            assert len(world.replicas.readers) == 1
            consumer.connection.connection_lost("the client went away")
            assert len(world.replicas.readers) == 0

        assert_no_cycles(act)

    def test_a_refused_fetch_leaves_no_cycle(self, world: World) -> None:
        client = world.client()
        request = fetch_request(world.topic_id("t"), 1 << 40)
        assert_no_cycles(lambda: check_fetched(client.call(request), ErrorCode.OFFSET_OUT_OF_RANGE))

    def test_a_fetch_refused_as_a_whole_leaves_no_cycle(self, world: World) -> None:
        client = world.client()
        request = fetch_request(world.topic_id("t"))
        request.session_id, request.session_epoch = 7, 7
        assert_no_cycles(lambda: check_code(client.call(request), ErrorCode.FETCH_SESSION_ID_NOT_FOUND))

    def test_a_followers_fetch_replaced_by_its_next_leaves_no_cycle(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), partition_epoch=1)
        follower = world.client()

        def act() -> None:
            follower.ask(tail(world, replica_id=2))
            follower.ask(tail(world, replica_id=2))
            world.clock.advance(1)
            assert len(follower.answers()) == 2

        assert_no_cycles(act)


class TestFetchSession:
    def test_a_fetch_session_leaves_no_cycle(self, world: World) -> None:
        consumer, producer = world.client(), world.client()

        def act() -> None:
            session_id = begin_session(world, consumer)
            consumer.ask(in_session(tail(world), session_id, 1))
            produce(producer)
            assert consumer.answers()
            consumer.ask(in_session(FetchRequest(max_wait_ms=500, min_bytes=1, topics=[]), session_id, 2))
            world.clock.advance(1)
            assert consumer.answers()
            consumer.call(in_session(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), session_id, -1))
            assert len(world.replicas.sessions) == 0

        assert_no_cycles(act)

    def test_a_waiting_session_fetch_of_a_closed_connection_leaves_no_cycle(self, world: World) -> None:
        def act() -> None:
            consumer = world.client()
            session_id = begin_session(world, consumer)
            consumer.ask(in_session(tail(world), session_id, 1))
            assert len(world.replicas.readers) == 1
            consumer.connection.connection_lost("the client went away")
            assert len(world.replicas.sessions) == len(world.replicas.readers) == 0

        assert_no_cycles(act)


@pytest.mark.usefixtures("either_way")
class TestProduce:
    def test_a_produce_acknowledged_at_once_leaves_no_cycle(self, world: World) -> None:
        client = world.client()
        assert_no_cycles(lambda: produce(client))

    def test_a_produce_with_acks_all_leaves_no_cycle(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), partition_epoch=1)
        producer, follower = world.client(), world.client()

        def act() -> None:
            producer.ask(produce_request("t", batch(b"a")))
            assert not producer.answers()
            end_offset = world.replicas.partition("t", 0).log.log_end_offset
            follower.call(fetch_request(world.topic_id("t"), end_offset, replica_id=2))
            assert producer.answers()

        assert_no_cycles(act)

    def test_a_produce_that_times_out_leaves_no_cycle(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), partition_epoch=1)
        producer = world.client()

        def act() -> None:
            producer.ask(produce_request("t", batch(b"a")))
            world.clock.advance(2)
            (answer,) = producer.answers()
            assert only_produced(answer).error_code == ErrorCode.REQUEST_TIMED_OUT

        assert_no_cycles(act)

    def test_a_waiting_produce_of_a_closed_connection_leaves_no_cycle(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), partition_epoch=1)

        def act() -> None:
            producer = world.client()
            producer.ask(produce_request("t", batch(b"a")))
            producer.connection.connection_lost("the client went away")
            world.clock.advance(2)
            assert len(world.replicas.writers) == 0

        assert_no_cycles(act)

    def test_a_produce_acknowledged_after_an_fsync_leaves_no_cycle(self, tmp_path: Path) -> None:
        world = World(tmp_path, topic_config={"flush.before.ack": True})
        world.assign("t")
        client = world.client()

        def act() -> None:
            world.workers.is_held = True
            client.ask(produce_request("t", batch(b"a")))
            assert not client.answers()
            world.workers.release()
            assert client.answers()

        assert_no_cycles(act)

    def test_a_refused_produce_leaves_no_cycle(self, world: World) -> None:
        client = world.client()

        def act() -> None:
            response = client.call(produce_request("t", batch(b"a"), index=7))
            assert only_produced(response).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            damaged = bytearray(batch(b"abcdef"))
            damaged[-3] ^= 1
            response = client.call(produce_request("t", bytes(damaged)))
            assert only_produced(response).error_code == ErrorCode.CORRUPT_MESSAGE

        assert_no_cycles(act)


class TestQuotas:
    def test_throttled_requests_leave_no_cycle(self, world: World) -> None:
        limits = {"producer_byte_rate": "100", "consumer_byte_rate": "10", "request_percentage": "0.001"}
        world.quota_limits.configs_changed("clients", "test", limits)

        def act() -> None:
            client = world.client()
            produce(client)
            assert client.connection.is_muted
            world.clock.advance(60)
            fetched = client.call(fetch_request(world.topic_id("t"), 0))
            assert fetched.throttle_time_ms > 0
            client.connection.close("test")

        assert_no_cycles(act)


class TestGroups:
    @pytest.fixture
    def broker(self, tmp_path: Path) -> GroupBroker:
        broker = GroupBroker(tmp_path, group_initial_rebalance_delay_ms=100)
        broker.assign("t", 0)
        broker.make_offsets_topic()
        return broker

    def test_a_group_member_leaves_no_cycle(self, broker: GroupBroker) -> None:
        client = broker.client()

        def act() -> None:
            joined = join_alone(broker, client, "g")
            member_id, generation = joined.member_id, joined.generation_id
            check_code(client.call(sync_request("g", member_id, generation)), ErrorCode.NONE)
            check_code(client.call(heartbeat_request("g", member_id, generation)), ErrorCode.NONE)
            leaving = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=member_id)])
            check_code(client.call(leaving), ErrorCode.NONE)

        assert_no_cycles(act)

    def test_committing_and_fetching_offsets_leaves_no_cycle(self, broker: GroupBroker) -> None:
        client = broker.client()

        def act() -> None:
            assert client.call(commit_request("g", 5)).topics
            assert client.call(offsets_request("g")).groups

        assert_no_cycles(act)

    def test_a_refused_group_request_leaves_no_cycle(self, broker: GroupBroker) -> None:
        client = broker.client()
        request = heartbeat_request("g", "nobody", 1)
        assert_no_cycles(lambda: check_code(client.call(request), ErrorCode.UNKNOWN_MEMBER_ID))


class TestOwnership:
    @pytest.fixture
    def world(self, tmp_path: Path) -> OwnershipWorld:
        world = OwnershipWorld(tmp_path)
        world.lead("t")
        return world

    def test_a_claim_and_its_release_leave_no_cycle(self, world: OwnershipWorld) -> None:
        owner = world.owner("one")

        def act() -> None:
            assert owner.claim("t", 0).error_code == ErrorCode.NONE
            release(owner)

        assert_no_cycles(act)

    def test_a_renewal_that_times_out_leaves_no_cycle(self, world: OwnershipWorld) -> None:
        owner = world.owner("one")
        owner.claim("t")
        owner.renew("t")

        def act() -> None:
            owner.ask(owner.renew_request("t", max_wait_ms=500))
            assert not owner.client.answers()
            world.clock.advance(1)
            assert owner.client.answers()

        assert_no_cycles(act)

    def test_a_refused_claim_leaves_no_cycle(self, world: OwnershipWorld) -> None:
        world.owner("one").claim("t")
        other = world.owner("two")

        def act() -> None:
            assert other.claim("t", generation=IF_FREE).error_code == ErrorCode.RESOURCE_OWNED

        assert_no_cycles(act)

    def test_a_claim_that_times_out_leaves_no_cycle(self, world: OwnershipWorld) -> None:
        world.owner("one").claim("t")
        other = world.owner("two")

        def act() -> None:
            other.ask(other.claim_request("t", generation=IF_FREE, wait_timeout_ms=500))
            world.clock.advance(1)
            assert other.client.answers()

        assert_no_cycles(act)

    def test_an_owner_whose_connection_closes_leaves_no_cycle(self, world: OwnershipWorld) -> None:
        def act() -> None:
            owner = world.owner("one")
            assert owner.claim("t", 0).error_code == ErrorCode.NONE
            owner.client.connection.connection_lost("the client went away")
            world.clock.advance(1)

        assert_no_cycles(act)


def release(owner: Owner) -> None:
    check_code(owner.client.call(owner.release_request("t")), ErrorCode.NONE)


def check_code(response: object, expected: ErrorCode) -> None:
    assert getattr(response, "error_code") == expected  # noqa: B009


def produce(client: Client) -> None:
    assert only_produced(client.call(produce_request("t", batch(b"a")))).error_code == ErrorCode.NONE


def check_fetched(response: object, expected: ErrorCode) -> None:
    assert only_fetched(response).error_code == expected  # type: ignore[arg-type]


def tail(world: World, indexes: range = range(1), replica_id: int = -1) -> FetchRequest:
    """A fetch from the end of partitions of t, which waits for records."""
    request = fetch_request(world.topic_id("t"), max_wait_ms=500, replica_id=replica_id)
    request.topics[0].partitions = [
        fetch_request(world.topic_id("t"), world.replicas.partition("t", index).log.log_end_offset, index)
        .topics[0]
        .partitions[0]
        for index in indexes
    ]
    return request


def in_session(request: FetchRequest, session_id: int, epoch: int) -> FetchRequest:
    request.session_id, request.session_epoch = session_id, epoch
    return request


def begin_session(world: World, client: Client) -> int:
    request = tail(world)
    request.max_wait_ms = 0
    return client.call(in_session(request, 0, 0)).session_id
