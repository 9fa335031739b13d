"""Produce, Fetch, ListOffsets and DeleteRecords through the dispatcher: requests and responses of a
client."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

from holdfast_log.broker.cluster.first_update import FirstUpdate
from holdfast_log.broker.handlers.api_versions import ApiVersionsHandler
from holdfast_log.broker.replication.partition_values import LeaderAndIsr
from holdfast_log.broker.requests.features import advertised_versions, finalized_features
from holdfast_log.broker.requests.handler import RequestContext
from holdfast_log.broker.transactions.settings import TransactionVersionSetting
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from holdfast_log.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast_log.protocol.messages.end_txn import EndTxnRequest
from holdfast_log.protocol.messages.fetch import FetchRequest
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from holdfast_log.protocol.records import iterate
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.broker.world import (
    START_S,
    Client,
    SessionFollower,
    World,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
)
from tests.models.batches import batch
from tests.models.orders import update_metadata


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def led(world: World) -> World:
    """A broker that leads t-0."""
    world.assign("t")
    return world


def values_in(records: object) -> list[bytes]:
    assert isinstance(records, memoryview)
    return [record.value or b"" for record in iterate(records)] if len(records) else []


@pytest.mark.usefixtures("either_way")
class TestProduce:
    def test_a_batch_gets_its_offset_and_is_read_back(self, led: World) -> None:
        client = led.client()
        first = only_produced(client.call(produce_request("t", batch(b"a", b"b"))))
        second = only_produced(client.call(produce_request("t", batch(b"c"))))
        assert (first.error_code, first.base_offset, second.base_offset) == (0, 0, 2)
        fetched = only_fetched(client.call(fetch_request(led.topic_id("t"), 0)))
        assert (fetched.error_code, fetched.high_watermark, fetched.log_start_offset) == (0, 3, 0)
        assert values_in(fetched.records)[:2] == [b"a", b"b"]

    @pytest.mark.parametrize("version", range(3, 12))
    @pytest.mark.parametrize("acks", [1, -1])
    def test_every_version_is_answered(self, led: World, version: int, acks: int) -> None:
        answer = led.client().call(produce_request("t", batch(b"a"), acks=acks), version)
        assert only_produced(answer).error_code == 0

    @pytest.mark.parametrize("version", range(3))
    def test_the_old_formats_versions_are_refused_in_words_a_client_knows(
        self, led: World, version: int
    ) -> None:
        answer = led.client().call(produce_request("t", batch(b"a")), version)
        assert only_produced(answer).error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    def test_without_acknowledgement_there_is_no_response(self, led: World) -> None:
        client = led.client()
        client.ask(produce_request("t", batch(b"a"), acks=0))
        assert client.answers() == []
        assert led.replicas.partition("t", 0).log.log_end_offset == 1
        assert not client.connection.is_closed

    def test_a_failure_with_acks_0_closes_the_connection(self, world: World) -> None:
        client = world.client()
        client.ask(produce_request("t", batch(b"a"), acks=0))
        assert client.connection.is_closed

    def test_a_failed_partition_does_not_fail_the_others(self, world: World) -> None:
        world.assign("t", 0)
        world.assign("t", 1, leader=2, replicas=(1, 2))
        world.assign("t", 2, leader=2, replicas=(2,))
        client = world.client()
        for index, expected in enumerate(
            [
                ErrorCode.NONE,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
        ):
            produced = only_produced(client.call(produce_request("t", batch(b"a"), index)))
            assert produced.error_code == expected
        moved = only_produced(client.call(produce_request("t", batch(b"a"), 1)))
        assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 0)

    def test_a_former_leader_names_its_successor_before_the_metadata_does(self, world: World) -> None:
        topic_id = world.topic_id("t")
        world.assign("t", replicas=(1, 2))
        world.replicas.partition("t", 0).follow(LeaderAndIsr(2, 1, (2,), 1, (1, 2)))
        client = world.client()
        produced = only_produced(client.call(produce_request("t", batch(b"a"))))
        fetched = only_fetched(client.call(fetch_request(topic_id, 0, leader_epoch=0)))
        for moved in (produced, fetched):
            assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 1)

    def test_a_damaged_batch_is_refused(self, led: World) -> None:
        damaged = bytearray(batch(b"abcdef"))
        damaged[-3] ^= 1
        produced = only_produced(led.client().call(produce_request("t", bytes(damaged))))
        assert produced.error_code == ErrorCode.CORRUPT_MESSAGE
        assert produced.error_message and "CORRUPT_MESSAGE" not in produced.error_message
        assert led.replicas.partition("t", 0).log.log_end_offset == 0

    def test_unheard_of_acks_are_refused(self, led: World) -> None:
        produced = only_produced(led.client().call(produce_request("t", batch(b"a"), acks=3)))
        assert produced.error_code == ErrorCode.INVALID_REQUIRED_ACKS

    def test_a_batch_outside_of_transactions_is_taken_whatever_id_the_request_names(self, led: World) -> None:
        request = produce_request("t", batch(b"a"))
        request.transactional_id = "mine"
        assert only_produced(led.client().call(request)).error_code == ErrorCode.NONE

    def test_a_partition_named_twice_is_refused(self, led: World) -> None:
        request = produce_request("t", batch(b"a"))
        request.topic_data *= 2
        response = led.client().call(request)
        codes = [
            partition.error_code for topic in response.responses for partition in topic.partition_responses
        ]
        assert set(codes) == {ErrorCode.INVALID_REQUEST}
        assert led.replicas.partition("t", 0).log.log_end_offset == 0

    def test_a_retry_of_an_idempotent_batch_gets_the_same_offset(self, led: World) -> None:
        records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        offsets = [
            only_produced(led.client().call(produce_request("t", records))).base_offset for _ in range(2)
        ]
        assert offsets == [0, 0]
        assert led.replicas.partition("t", 0).log.log_end_offset == 1


@pytest.mark.usefixtures("either_way")
class TestAcknowledgedByAll:
    def test_acks_all_waits_for_the_in_sync_replicas(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        producer, follower = world.client(), world.client()
        producer.ask(produce_request("t", batch(b"a")))
        assert producer.answers() == []
        assert follow(world, follower, 0).error_code == 0
        assert producer.answers() == []
        follow(world, follower, 1)
        (answer,) = producer.answers()
        assert only_produced(answer).base_offset == 0

    def test_acks_all_times_out_although_the_record_is_appended(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        producer = world.client()
        producer.ask(produce_request("t", batch(b"a"), timeout_ms=500))
        world.clock.advance(0.5)
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert world.replicas.partition("t", 0).log.log_end_offset == 1

    def test_a_write_with_too_few_in_sync_replicas_is_refused(self, tmp_path: Path) -> None:
        world = World(tmp_path, topic_config={"min.insync.replicas": 2})
        world.assign("t", replicas=(1, 2), isr=(1,))
        client = world.client()
        produced = only_produced(client.call(produce_request("t", batch(b"a"))))
        assert produced.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert only_produced(client.call(produce_request("t", batch(b"a"), acks=1))).error_code == 0

    def test_in_sync_replicas_lost_after_the_append_are_an_error(self, tmp_path: Path) -> None:
        world = World(tmp_path, topic_config={"min.insync.replicas": 2})
        world.assign("t", replicas=(1, 2))
        producer = world.client()
        producer.ask(produce_request("t", batch(b"a")))
        world.assign("t", replicas=(1, 2), isr=(1,), partition_epoch=1)
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def test_a_waiting_produce_fails_when_leadership_is_lost(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        producer = world.client()
        producer.ask(produce_request("t", batch(b"a")))
        world.assign("t", leader=2, leader_epoch=1, replicas=(1, 2))
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_without_a_lease_a_write_is_acknowledged_once_the_follower_has_it(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        follower, producer = SessionFollower(world), world.client()
        follower.fetch_for(0.2)
        world.set_lease(is_held=False)
        producer.ask(produce_request("t", batch(b"a"), timeout_ms=5000))
        assert producer.answers() == []
        follower.fetch()
        (answer,) = producer.answers()
        assert (only_produced(answer).error_code, only_produced(answer).base_offset) == (0, 0)

    def test_without_a_lease_a_leader_alone_in_sync_acknowledges_nothing(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), isr=(1,))
        world.set_lease(is_held=False)
        refused = only_produced(world.client().call(produce_request("t", batch(b"a"))))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "the only replica in sync" in refused.error_message
        assert world.replicas.partition("t", 0).log.log_end_offset == 0
        world.set_lease(is_held=True)
        assert only_produced(world.client().call(produce_request("t", batch(b"a")))).error_code == 0

    def test_a_leader_that_becomes_the_only_one_in_sync_without_its_lease_acknowledges_no_waiting_write(
        self, world: World
    ) -> None:
        """The answer to its last proposal came late: the controller may have elected uncleanly since."""
        world.assign("t", replicas=(1, 2))
        SessionFollower(world).fetch_for(0.2)
        producer = world.client()
        producer.ask(produce_request("t", batch(b"a"), timeout_ms=60_000))
        world.set_lease(is_held=False)
        world.assign("t", replicas=(1, 2), isr=(1,), partition_epoch=1)
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_without_a_lease_writes_are_sent_elsewhere_once_the_follower_has_left(self, world: World) -> None:
        """It follows another leader by now, so nothing that this one has can be committed."""
        world.assign("t", replicas=(1, 2))
        SessionFollower(world).fetch_for(0.2)
        producer = world.client()
        producer.ask(produce_request("t", batch(b"a"), timeout_ms=60_000))
        world.set_lease(is_held=False)
        world.clock.advance(1)
        assert producer.answers() == [], "the follower's next fetch may come late"
        for _ in range(20):
            world.clock.advance(0.1)
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = only_produced(world.client().call(produce_request("t", batch(b"b"))))
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert "look for the leader" in refused.error_message

    def test_a_follower_that_has_heard_of_another_leader_epoch_proves_nothing(self, world: World) -> None:
        world.assign("t", replicas=(1, 2), leader_epoch=3)
        follower = SessionFollower(world)
        follower.fetch_for(0.2)
        partition = world.replicas.partition("t", 0)
        world.set_lease(is_held=False)
        now_ms = world.replicas.monotonic_ms()
        right = world.replicas.right_to_acknowledge
        assert now_ms - 1000 < right.led_at_ms(partition, now_ms) < now_ms
        partition.leader_epoch = 4
        assert right.led_at_ms(partition, now_ms) < 0

    def test_a_follower_that_fetches_outside_its_session_has_not_left(self, world: World) -> None:
        """It does so while its records become durable, with `flush.before.ack`."""
        world.assign("t", replicas=(1, 2))
        follower, producer = world.client(), world.client()
        world.set_lease(is_held=False)
        follow(world, follower, 0)
        producer.ask(produce_request("t", batch(b"a"), timeout_ms=5000))
        world.clock.pump([0.1] * 10)
        assert producer.answers() == []
        follow(world, follower, 1)
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == 0

    def test_a_write_that_waits_while_the_lease_ends_and_returns_is_acknowledged(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        follower, producer = SessionFollower(world), world.client()
        follower.fetch_for(0.2)
        producer.ask(produce_request("t", batch(b"a"), timeout_ms=5000))
        world.set_lease(is_held=False)
        world.clock.advance(0.5)
        world.set_lease(is_held=True)
        world.clock.advance(3)
        assert producer.answers() == []
        follower.fetch()
        (answer,) = producer.answers()
        assert only_produced(answer).error_code == 0


@pytest.mark.usefixtures("either_way")
class TestFlushBeforeAck:
    @pytest.mark.parametrize("acks", [1, -1])
    def test_produce_requests_wait_for_a_shared_fsync(self, tmp_path: Path, acks: int) -> None:
        world = World(tmp_path, topic_config={"flush.before.ack": True})
        world.assign("t")
        world.workers.is_held = True
        clients = [world.client() for _ in range(3)]
        for client in clients:
            client.ask(produce_request("t", batch(b"a"), acks=acks))
        assert [client.answers() for client in clients] == [[], [], []]
        world.workers.release()
        for offset, client in enumerate(clients):
            (answer,) = client.answers()
            assert only_produced(answer).base_offset == offset

    def test_consumers_see_a_record_only_when_it_is_durable(self, tmp_path: Path) -> None:
        world = World(tmp_path, topic_config={"flush.before.ack": True})
        world.assign("t")
        world.workers.is_held = True
        client = world.client()
        client.ask(produce_request("t", batch(b"a"), acks=0))
        assert only_fetched(client.call(fetch_request(world.topic_id("t")))).high_watermark == 0
        world.workers.release()
        assert only_fetched(client.call(fetch_request(world.topic_id("t")))).high_watermark == 1


def follow(world: World, follower: Client, offset: int, topic: str = "t"):  # type: ignore[no-untyped-def]
    """Fetch as replica 2, which has all records before `offset`."""
    return only_fetched(follower.call(fetch_request(world.topic_id(topic), offset, replica_id=2)))


class TestFetch:
    def test_it_waits_for_bytes_and_is_answered_by_a_produce(self, led: World) -> None:
        consumer = led.client()
        consumer.ask(fetch_request(led.topic_id("t"), max_wait_ms=500))
        assert consumer.answers() == []
        led.client().call(produce_request("t", batch(b"a")))
        (answer,) = consumer.answers()
        assert values_in(only_fetched(answer).records) == [b"a"]

    def test_it_waits_until_there_are_enough(self, led: World) -> None:
        consumer, producer = led.client(), led.client()
        one = batch(b"a")
        consumer.ask(fetch_request(led.topic_id("t"), max_wait_ms=500, min_bytes=2 * len(one)))
        producer.call(produce_request("t", one))
        assert consumer.answers() == []
        producer.call(produce_request("t", one))
        (answer,) = consumer.answers()
        assert len(only_fetched(answer).records or b"") == 2 * len(one)

    def test_it_is_answered_empty_when_the_time_is_up(self, led: World) -> None:
        consumer = led.client()
        consumer.ask(fetch_request(led.topic_id("t"), max_wait_ms=500))
        led.clock.advance(0.5)
        (answer,) = consumer.answers()
        assert only_fetched(answer).records == b""

    def test_a_client_that_has_gone_waits_no_more(self, led: World) -> None:
        consumer = led.client()
        consumer.ask(fetch_request(led.topic_id("t"), max_wait_ms=500))
        assert len(led.replicas.readers) == 1
        consumer.connection.connection_lost("the client went away")
        assert len(led.replicas.readers) == 0

    def test_many_waits_of_one_connection_leave_nothing_behind(self, led: World) -> None:
        consumer = led.client()
        for _ in range(5):
            consumer.ask(fetch_request(led.topic_id("t"), max_wait_ms=500))
            led.clock.advance(0.5)
        assert len(consumer.answers()) == 5
        assert len(led.replicas.readers) == 0
        assert len(consumer.connection._close_callbacks) == 1  # the connection's, not one for each wait

    def test_consumers_see_nothing_beyond_the_high_watermark(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        client = world.client()
        client.call(produce_request("t", batch(b"a"), acks=1))
        fetched = only_fetched(client.call(fetch_request(world.topic_id("t"))))
        assert (fetched.high_watermark, fetched.records) == (0, b"")
        assert values_in(follow(world, client, 0).records) == [b"a"]

    def test_the_first_batch_comes_whole_however_little_is_asked_for(self, led: World) -> None:
        client = led.client()
        client.call(produce_request("t", batch(b"a" * 1000)))
        client.call(produce_request("t", batch(b"b")))
        for limits in ({"max_bytes": 1}, {"partition_max_bytes": 1}):
            fetched = only_fetched(client.call(fetch_request(led.topic_id("t"), **limits)))
            assert values_in(fetched.records) == [b"a" * 1000]

    def test_max_bytes_limits_all_partitions_together(self, world: World) -> None:
        client = world.client()
        for index in range(3):
            world.assign("t", index)
            client.call(produce_request("t", batch(b"a" * 1000), index))
        request = fetch_request(world.topic_id("t"), max_bytes=1500)
        partitions = request.topics[0].partitions
        for index in (1, 2):
            other = fetch_request(world.topic_id("t"), index=index).topics[0].partitions
            partitions.extend(other)
        response = client.call(request)
        sizes = [len(partition.records or b"") for partition in response.responses[0].partitions]
        assert sizes[0] > 1000
        assert sizes[1:] == [0, 0]

    @pytest.mark.parametrize("version", range(4, 17))
    def test_every_version_is_answered(self, led: World, version: int) -> None:
        client = led.client()
        client.call(produce_request("t", batch(b"a")))
        request = fetch_request(led.topic_id("t"))
        request.topics[0].topic = "t"
        response = client.call(request, version)
        assert values_in(only_fetched(response).records) == [b"a"]
        assert response.session_id == 0

    def test_offsets_out_of_range_are_told(self, led: World) -> None:
        client = led.client()
        for offset in (5, -1):
            fetched = only_fetched(client.call(fetch_request(led.topic_id("t"), offset, max_wait_ms=500)))
            assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_a_fetch_of_an_unknown_topic_id_is_an_error(self, world: World) -> None:
        fetched = only_fetched(world.client().call(fetch_request(world.topic_id("nothing"))))
        assert fetched.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    @pytest.mark.parametrize(
        ("epoch", "expected"),
        [
            (-1, ErrorCode.NONE),
            (5, ErrorCode.NONE),
            (4, ErrorCode.FENCED_LEADER_EPOCH),
            (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ],
    )
    def test_a_fetch_with_another_leader_epoch_is_refused(
        self, world: World, epoch: int, expected: ErrorCode
    ) -> None:
        world.assign("t", leader_epoch=5)
        fetched = only_fetched(world.client().call(fetch_request(world.topic_id("t"), leader_epoch=epoch)))
        assert fetched.error_code == expected

    def test_a_fetch_from_a_diverging_log_returns_the_diverging_epoch(self, world: World) -> None:
        world.assign("t", leader_epoch=1)
        client = world.client()
        client.call(produce_request("t", batch(b"a", b"b")))
        world.assign("t", leader_epoch=3)
        client.call(produce_request("t", batch(b"c")))
        request = fetch_request(world.topic_id("t"), 3, last_fetched_epoch=2, max_wait_ms=500)
        diverging = only_fetched(client.call(request)).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (1, 2)

    def test_sessions_are_not_kept(self, led: World) -> None:
        request = fetch_request(led.topic_id("t"))
        request.session_id, request.session_epoch = 17, 3
        response = led.client().call(request)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class TestListOffsets:
    @staticmethod
    def ask(world: World, timestamp: int, version: int = 7) -> ListOffsetsPartitionResponse:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        return world.client().call(request, version).topics[0].partitions[0]

    @pytest.mark.parametrize("version", range(1, 8))
    def test_first_last_and_by_time(self, led: World, version: int) -> None:
        start_ms = int(START_S * 1000)
        for number in range(3):
            records = batch(b"x", timestamp=start_ms + number)
            led.client().call(produce_request("t", records))
        assert self.ask(led, -2, version).offset == 0
        assert self.ask(led, -1, version).offset == 3
        found = self.ask(led, start_ms + 1, version)
        assert (found.offset, found.timestamp) == (1, start_ms + 1)
        none = self.ask(led, start_ms + 3, version)
        assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)

    def test_a_partition_is_asked_for_once(self, led: World) -> None:
        """Others of the request are answered, as Kafka does it."""
        led.assign("t", 1)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
        other = ListOffsetsPartition(partition_index=1, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted, other, wanted])]
        )
        answers = led.client().call(request).topics[0].partitions
        refused = ErrorCode.INVALID_REQUEST
        assert [answer.error_code for answer in answers] == [refused, 0, refused]

    def test_the_latest_timestamp_is_found(self, led: World) -> None:
        start_ms = int(START_S * 1000)
        for number in (0, 5, 2):
            led.client().call(produce_request("t", batch(b"x", timestamp=start_ms + number)))
        found = self.ask(led, -3)
        assert (found.offset, found.timestamp) == (1, start_ms + 5)

    @pytest.mark.parametrize("is_latest", [True, False])
    def test_no_record_is_found_by_its_time_before_it_is_committed(
        self, world: World, *, is_latest: bool
    ) -> None:
        world.assign("t", replicas=(1, 2))
        start_ms = int(START_S * 1000)
        world.client().call(produce_request("t", batch(b"x", timestamp=start_ms), acks=1))
        timestamp = -3 if is_latest else start_ms
        assert self.ask(world, timestamp).offset == -1
        world.client().call(fetch_request(world.topic_id("t"), 1, replica_id=2))
        assert self.ask(world, timestamp).offset == 0

    def test_an_offset_query_for_an_unknown_partition_is_an_error(self, world: World) -> None:
        assert self.ask(world, -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def test_a_worker_looks_into_batches_and_others_are_served_meanwhile(self, led: World) -> None:
        start_ms = int(START_S * 1000)
        led.client().call(produce_request("t", batch(b"x", b"y", timestamp=start_ms)))
        led.workers.is_held = True
        client = led.client()
        wanted = ListOffsetsPartition(partition_index=0, timestamp=start_ms)
        client.ask(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        )
        assert client.answers() == []
        assert self.ask(led, -1).offset == 2
        led.workers.release()
        (answer,) = client.answers()
        assert answer.topics[0].partitions[0].offset == 0

    def test_a_partition_that_goes_during_a_look_up_is_no_failure_of_the_disk(self, led: World) -> None:
        start_ms = int(START_S * 1000)
        led.client().call(produce_request("t", batch(b"x", timestamp=start_ms)))
        led.workers.is_held = True
        client = led.client()
        wanted = ListOffsetsPartition(partition_index=0, timestamp=start_ms)
        client.ask(
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        )
        led.logs.delete(TopicPartition("t", 0))
        led.workers.release()
        (answer,) = client.answers()
        assert answer.topics[0].partitions[0].error_code in (0, ErrorCode.KAFKA_STORAGE_ERROR)
        assert led.logs.live_directories


class TestDeleteRecords:
    @staticmethod
    def request(offset: int, timeout_ms: int = 1000) -> DeleteRecordsRequest:
        wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[wanted])], timeout_ms=timeout_ms
        )

    def test_the_log_begins_later_afterwards(self, led: World) -> None:
        client = led.client()
        for _ in range(5):
            client.call(produce_request("t", batch(b"x")))
        deleted = client.call(self.request(3)).topics[0].partitions[0]
        assert (deleted.error_code, deleted.low_watermark) == (0, 3)
        below = only_fetched(client.call(fetch_request(led.topic_id("t"), 2)))
        assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        everything = client.call(self.request(-1)).topics[0].partitions[0]
        assert everything.low_watermark == 5

    def test_beyond_the_high_watermark_there_is_nothing_to_delete(self, led: World) -> None:
        deleted = led.client().call(self.request(1)).topics[0].partitions[0]
        assert deleted.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    def test_deleting_records_waits_until_their_log_start_is_in_a_checkpoint(self, led: World) -> None:
        client = led.client()
        client.call(produce_request("t", batch(b"x")))
        led.workers.is_held = True
        client.ask(self.request(1))
        client.ask(self.request(1))
        assert client.answers() == []
        led.workers.release()
        deleted = [answer.topics[0].partitions[0] for answer in client.answers()]
        assert [(each.error_code, each.low_watermark) for each in deleted] == [(0, 1), (0, 1)]

    def test_deleting_records_waits_for_the_followers(self, world: World) -> None:
        world.assign("t", replicas=(1, 2))
        client, follower = world.client(), world.client()
        client.call(produce_request("t", batch(b"x"), acks=1))
        follow(world, follower, 1)
        client.ask(self.request(1, timeout_ms=700))
        assert client.answers() == []
        world.clock.advance(0.7)
        (answer,) = client.answers()
        assert answer.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


class TestBadInput:
    @pytest.mark.parametrize(
        "frame",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"\x00\x00\x00", id="cut off in the header"),
            pytest.param(b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff", id="an API that does not exist"),
            pytest.param(b"\x00\x00\x00\x63\x00\x00\x00\x01\xff\xff", id="a version that does not exist"),
            pytest.param(b"\x00\x00\x00\x03\x00\x00\x00\x01\xff\xff\xff", id="cut off in the body"),
            pytest.param(b"\x00\x00\x00\x03\x00\x00\x00\x01\x7f\xff", id="a client id longer than the frame"),
        ],
    )
    def test_an_invalid_request_closes_the_connection_with_one_log_line(
        self, world: World, frame: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        client = world.client()
        client.send_bytes(frame)
        assert client.connection.is_closed
        assert len(caplog.records) == 1
        assert "Closing connection 1" in caplog.text

    def test_an_unknown_version_of_api_versions_is_answered_in_version_0(self, world: World) -> None:
        world.metadata.update(update_metadata())
        client = world.client()
        client.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        client.answers()
        client._asked.append((ApiVersionsRequest, 0))
        client.send_bytes(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x00")
        (answer,) = client.answers()
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        ((key, first, last),) = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
        assert (key, first, last) == (18, 0, 4)

    def test_an_unexpected_failure_is_answered_and_the_connection_lives(
        self, led: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = led.client()
        with monkeypatch.context() as patch:
            patch.setattr(led.replicas, "append", None)
            produced = only_produced(client.call(produce_request("t", batch(b"a"))))
        assert produced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert any(record.exc_info for record in caplog.records)
        assert only_produced(client.call(produce_request("t", batch(b"a")))).error_code == 0


def test_only_apis_with_a_handler_are_advertised(world: World) -> None:
    world.metadata.update(update_metadata())
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = world.client().call(request)
    ranges = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert ranges[ProduceRequest.api.key] == (0, 11)
    assert ranges[FetchRequest.api.key] == (4, 16)
    assert all(first <= last for first, last in ranges.values())
    assert 4 not in ranges  # LeaderAndIsr is between brokers


@pytest.mark.parametrize(("level", "last"), [(0, (11, 4, 4)), (1, (11, 4, 4)), (2, (12, 5, 5))])
def test_versions_of_transaction_version_2_are_advertised_with_it(level: int, last: tuple[int, ...]) -> None:
    apis = [request.api for request in (ProduceRequest, EndTxnRequest, TxnOffsetCommitRequest)]
    assert tuple(advertised_versions(api, level).last for api in apis) == last
    assert advertised_versions(FetchRequest.api, level) == FetchRequest.api.advertised
    assert finalized_features(level) == ({"transaction.version": level} if level else {})


def test_what_a_client_says_of_itself_does_not_change_the_versions(world: World) -> None:
    world.metadata.update(update_metadata())
    found = []
    for client_id in ("", "console-consumer", "holdfast", "x" * 30_000):
        for name in ("x", "apache-kafka-java", "librdkafka", "holdfast-python"):
            request = ApiVersionsRequest(client_software_name=name, client_software_version="4.1.1")
            found.append(world.client(client_id).call(request))
    assert found[1:] == found[:-1]
    levels = {row.name: row.max_version_level for row in found[0].finalized_features}
    assert levels == {"transaction.version": 1}


@pytest.mark.parametrize(("own", "produce"), [(1, 11), (2, 12)])
def test_clients_are_told_what_the_controller_says_of_features_with_its_epoch(
    world: World, own: int, produce: int
) -> None:
    """The versions of APIs are those of the broker's file: connections that are made before the features rise
    last longer."""

    def announced() -> tuple[int, list[int]]:
        (answer,) = ask_versions(world, own)
        rows = [row.max_version for row in answer.api_keys if row.api_key == ProduceRequest.api.key]
        assert rows == [produce]
        return answer.finalized_features_epoch, [row.max_version_level for row in answer.finalized_features]

    def say(epoch: int, version: int) -> None:
        world.metadata.update(update_metadata(finalized_features_epoch=epoch, transaction_version=version))

    say(1, 1)
    assert announced() == (1, [1])
    say(2, 2)  # Java's clients take over features only with a higher epoch.
    assert announced() == (2, [2])
    say(-1, 0)  # From a controller of an earlier version, which says nothing about features.
    assert announced() == (2, [2])
    say(3, 0)
    assert announced() == (3, [])


def ask_versions(world: World, own: int, version: int = 4) -> list[ApiVersionsResponse]:
    """The answer of a broker with this version of transactions in its file, once there is one."""
    answers: list[ApiVersionsResponse] = []
    handler = ApiVersionsHandler(
        world.dispatcher,
        world.metadata,
        FirstUpdate(world.metadata, world.clock),
        TransactionVersionSetting(own),
    )
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = handler.handle(RequestContext(version, "", None), request)
    if isinstance(answer, Deferred):
        answer.addCallback(answers.append)
    else:
        answers.append(answer)
    return answers


@pytest.mark.parametrize("version", [0, 2, 3, 4])
def test_an_answer_with_features_waits_until_the_controller_has_said_what_is_decided(
    world: World, version: int
) -> None:
    """A client asks once for each connection, and connects to a broker that restarts before it registers."""
    answers = ask_versions(world, 2, version)
    if version < 3:
        assert answers
        return
    assert not answers
    world.metadata.update(update_metadata(finalized_features_epoch=7, transaction_version=2))
    assert [answer.finalized_features_epoch for answer in answers] == [7]


def test_a_broker_without_a_controller_announces_what_its_file_says_in_no_epoch(world: World) -> None:
    """Kafka's clients follow no features of epoch -1, but find the versions of APIs of which they know."""
    found = world.metadata.features(2)
    assert (found.transaction_version, found.epoch) == (2, -1)


def test_a_replica_that_must_end_its_log_at_damage_is_offline_while_it_may_be_elected(world: World) -> None:
    replicas = (1, 2, 3)
    assert world.assign("t", leader=2, replicas=replicas) == ErrorCode.NONE
    partition = world.replicas.partition("t", 0)
    partition.is_withdrawing = True
    offline = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.assign("t", leader=2, leader_epoch=1, replicas=replicas) == offline
    assert world.assign("t", leader=1, leader_epoch=1, replicas=replicas) == offline
    assert world.assign("t", leader=2, leader_epoch=1, replicas=replicas, isr=(2,), eligible=(1,)) == offline
    assert partition.is_counted_on and partition.leader_epoch == 0
    assert world.assign("t", leader=2, leader_epoch=2, replicas=replicas, isr=(2, 3)) == ErrorCode.NONE
    assert not partition.is_withdrawing and not partition.is_counted_on


def test_the_only_replica_in_sync_leads_although_its_log_is_damaged(world: World) -> None:
    assert world.assign("t", leader=2, replicas=(1, 2)) == ErrorCode.NONE
    world.replicas.partition("t", 0).is_withdrawing = True
    assert world.assign("t", leader=1, leader_epoch=1, replicas=(1, 2), isr=(1,)) == ErrorCode.NONE
