"""Clients over their quotas are held, whether they obey throttle times or not, without an error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast_log.broker.quotas.keys import QuotaKey
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import parts_size
from holdfast_log.protocol.headers import encode_request
from holdfast_log.protocol.messages.fetch import FetchResponse
from holdfast_log.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.broker.replication.test_serving_fetch_sessions import Reader
from tests.broker.world import (
    Client,
    World,
    fetch_request,
    only_fetched,
    only_produced,
    produce_request,
)
from tests.models.batches import batch

LIMIT = 100_000
SECONDS = 60


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.assign("t")
    return world


def limit(world: World, name: str, kind: str = "clients", **limits: object) -> None:
    """Give an entity these quotas, and no others."""
    world.quota_limits.configs_changed(kind, name, {key: str(value) for key, value in limits.items()})


def produced(client: Client, size: int) -> int:
    """Produce about `size` bytes with acks=1. Returns the throttle time in ms."""
    response = client.call(produce_request("t", batch(b"x" * size), acks=1))
    assert only_produced(response).error_code == ErrorCode.NONE
    return response.throttle_time_ms


def fill(world: World, size: int, batches: int = 1) -> None:
    """Append records, by a client without a quota."""
    for _ in range(batches):
        produced(world.client("filler"), size)


def fetched(world: World, client: Client, offset: int = 0, **wanted: int) -> FetchResponse:
    return client.call(fetch_request(world.topic_id("t"), offset, **wanted))


@dataclass
class Sender:
    """A client that sends as fast as it may. One that does not obey sends every 10 ms, whatever it hears."""

    client: Client
    size: int
    obeys: bool
    free_at_s: float = 0.0

    def step(self, now_s: float) -> None:
        if now_s < self.free_at_s:
            return
        self.client.ask(produce_request("t", batch(b"x" * self.size), acks=1))
        for answer in self.client.answers():
            if self.obeys:
                self.free_at_s = max(self.free_at_s, now_s + answer.throttle_time_ms / 1000)


def bytes_handled(client: Client, size: int) -> int:
    """Bytes of the requests that the broker has handled."""
    return client.connection.requests * size


def run(world: World, senders: list[Sender], seconds: float = SECONDS) -> None:
    began_s = world.clock.seconds()
    while world.clock.seconds() < began_s + seconds:
        for sender in senders:
            sender.step(world.clock.seconds())
        world.clock.advance(0.01)


def request_bytes(size: int) -> int:
    """Bytes of a Produce request with a record of `size` bytes, without its length."""
    request = produce_request("t", batch(b"x" * size), acks=1)
    return parts_size(encode_request(request, request.api.max_version, 0, "app")) - 4


class TestProduce:
    @pytest.mark.parametrize("obeys", [True, False])
    @pytest.mark.parametrize("size", [2_000, 30_000])
    def test_a_client_gets_its_quota_whether_it_obeys_or_not(
        self, world: World, obeys: bool, size: int
    ) -> None:
        limit(world, "app", producer_byte_rate=LIMIT)
        sender = Sender(world.client("app"), size, obeys)
        run(world, [sender])
        rate = bytes_handled(sender.client, request_bytes(size)) / SECONDS
        assert rate == pytest.approx(LIMIT, rel=0.05)

    def test_five_clients_get_their_quotas_and_one_without_is_never_throttled(self, world: World) -> None:
        senders = []
        for number in range(1, 6):
            limit(world, f"app{number}", producer_byte_rate=number * 20_000)
            senders.append(Sender(world.client(f"app{number}"), 2_000, obeys=number % 2 == 0))
        free = Sender(world.client("free"), 2_000, obeys=True)
        run(world, [*senders, free])
        for number, sender in enumerate(senders, 1):
            rate = bytes_handled(sender.client, request_bytes(2_000)) / SECONDS
            assert rate == pytest.approx(number * 20_000, rel=0.05)
        assert free.client.connection.requests == pytest.approx(SECONDS * 100, abs=2)

    def test_connections_of_a_client_share_its_quota(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=LIMIT)
        senders = [Sender(world.client("app"), 2_000, obeys=False) for _ in range(4)]
        run(world, senders)
        total = sum(bytes_handled(sender.client, request_bytes(2_000)) for sender in senders)
        assert total / SECONDS == pytest.approx(LIMIT, rel=0.05)

    def test_the_response_is_sent_at_once_and_says_how_long_the_connection_is_muted(
        self, world: World
    ) -> None:
        limit(world, "app", producer_byte_rate=1_000)
        client = world.client("app")
        throttle_ms = produced(client, 5_000)
        assert 4_900 < throttle_ms < 5_300
        assert client.connection.is_muted and client.wire.is_paused
        world.clock.advance(throttle_ms / 1000 - 0.01)
        assert client.wire.is_paused
        world.clock.advance(0.02)
        assert not client.wire.is_paused
        assert world.quotas.throttled[QuotaKey.PRODUCE].times == 1

    def test_requests_that_a_client_sent_ahead_wait_until_the_mute_ends(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=1_000)
        client = world.client("app")
        client.ask_together([produce_request("t", batch(b"x" * 5_000), acks=1)] * 3)
        assert len(client.answers()) == 1
        assert client.connection.requests == 1
        world.clock.advance(6)
        assert len(client.answers()) == 1

    def test_a_client_is_held_before_the_first_response_to_requests_that_it_sent_ahead(
        self, world: World
    ) -> None:
        world.assign("t", 1, replicas=(1, 2))
        limit(world, "app", producer_byte_rate=1_000)
        client = world.client("app")
        request = produce_request("t", batch(b"x" * 5_000), 1, acks=-1, timeout_ms=60_000)
        client.ask_together([request] * 3)
        assert client.answers() == []
        assert client.connection.requests == 1

    def test_requests_without_acknowledgement_are_held(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=1_000)
        client = world.client("app")
        client.ask_together([produce_request("t", batch(b"x" * 5_000), acks=0)] * 3)
        assert client.connection.requests == 1
        assert client.connection.is_muted

    def test_other_clients_and_unlimited_ones_are_not_held(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=1_000)
        assert produced(world.client("other"), 50_000) == 0
        assert produced(world.client("app"), 50_000) > 0
        assert produced(world.client("other"), 50_000) == 0

    def test_a_quota_of_the_user_counts_all_its_clients(self, world: World) -> None:
        limit(world, "ANONYMOUS", kind="users", producer_byte_rate=10_000)
        assert produced(world.client("one"), 9_000) == 0
        assert produced(world.client("two"), 9_000) > 1700

    def test_a_quota_of_the_default_client_counts_each_client_alone(self, world: World) -> None:
        limit(world, "<default>", producer_byte_rate=10_000)
        assert produced(world.client("one"), 9_000) == 0
        assert produced(world.client("two"), 9_000) == 0
        assert produced(world.client("one"), 9_000) > 1700


class TestChanges:
    def test_a_raised_quota_ends_the_mute_at_once(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=100)
        client = world.client("app")
        assert produced(client, 10_000) > 90_000
        world.clock.advance(1)
        limit(world, "app", producer_byte_rate=1_000_000)
        assert not client.connection.is_muted
        assert produced(client, 100) == 0

    def test_a_quota_raised_a_little_shortens_the_mute(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=100)
        client = world.client("app")
        produced(client, 10_000)
        limit(world, "app", producer_byte_rate=1_000)
        assert client.connection.is_muted
        world.clock.advance(10.5)
        assert not client.connection.is_muted

    def test_a_removed_quota_ends_the_mute(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=100)
        client = world.client("app")
        produced(client, 10_000)
        limit(world, "app")
        assert not client.connection.is_muted
        assert not world.quotas.is_enforced

    def test_a_lowered_quota_holds_the_client_from_its_next_request_on(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=1_000_000)
        client = world.client("app")
        assert produced(client, 10_000) == 0
        limit(world, "app", producer_byte_rate=1_000)
        assert produced(client, 10_000) > 18_000

    def test_a_change_while_a_client_is_throttled_leaves_its_average_at_the_new_quota(
        self, world: World
    ) -> None:
        limit(world, "app", producer_byte_rate=LIMIT)
        sender = Sender(world.client("app"), 2_000, obeys=False)
        run(world, [sender], 20)
        limit(world, "app", producer_byte_rate=LIMIT // 2)
        before = bytes_handled(sender.client, request_bytes(2_000))
        run(world, [sender], 120)
        rate = (bytes_handled(sender.client, request_bytes(2_000)) - before) / 120
        # The first windows hold the use under the higher quota.
        assert rate == pytest.approx(LIMIT / 2, rel=0.2)

    def test_a_closed_connection_is_forgotten(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=100)
        client = world.client("app")
        produced(client, 10_000)
        assert world.quotas.muted == 1
        client.connection.close("test")
        assert world.quotas.muted == 0
        limit(world, "app")


class TestFetch:
    def test_a_consumer_gets_its_quota(self, world: World) -> None:
        fill(world, 5_000, batches=30)
        limit(world, "app", consumer_byte_rate=10_000)
        consumer, offset, received, now_s = world.client("app"), 0, 0, 0.0
        while now_s < SECONDS:
            response = fetched(world, consumer, offset % 30, partition_max_bytes=8_000)
            records = only_fetched(response).records or b""
            received += len(records)
            offset += 1 if records else 0
            pause_s = max(0.01, response.throttle_time_ms / 1000)
            world.clock.advance(pause_s)
            now_s += pause_s
        assert received / SECONDS == pytest.approx(10_000, rel=0.05)

    def test_a_response_has_at_most_the_quota_of_one_window(self, world: World) -> None:
        fill(world, 5_000, batches=30)
        limit(world, "app", consumer_byte_rate=12_000)
        assert len(only_fetched(fetched(world, world.client("app"))).records or b"") < 12_000
        assert len(only_fetched(fetched(world, world.client("free"))).records or b"") > 100_000

    def test_a_batch_larger_than_the_quota_is_sent_and_then_paid_for(self, world: World) -> None:
        fill(world, 5_000)
        limit(world, "app", consumer_byte_rate=1_000)
        consumer = world.client("app")
        response = fetched(world, consumer)
        assert len(only_fetched(response).records or b"") > 5_000
        assert 4_900 < response.throttle_time_ms < 5_300
        assert consumer.connection.is_muted

    def test_another_connection_of_a_throttled_client_gets_no_records_and_no_error(
        self, world: World
    ) -> None:
        fill(world, 5_000)
        limit(world, "app", consumer_byte_rate=1_000)
        fetched(world, world.client("app"))
        second = world.client("app")
        response = fetched(world, second)
        assert only_fetched(response).error_code == ErrorCode.NONE
        assert not only_fetched(response).records
        assert only_fetched(response).high_watermark == 1
        assert second.connection.is_muted
        world.clock.advance(response.throttle_time_ms / 1000 + 0.01)
        assert only_fetched(fetched(world, second)).records

    def test_a_session_gets_the_records_that_were_withheld(self, world: World) -> None:
        fill(world, 5_000)
        limit(world, "test", consumer_byte_rate=1_000)
        fetched(world, world.client("test"))
        session = Reader(world)
        withheld = session.fetch({0: 0})
        assert not withheld[0].records
        world.clock.advance(10)
        assert session.fetch()[0].records

    def test_followers_are_not_throttled(self, world: World) -> None:
        world.assign("t", 1, replicas=(1, 2))
        client = world.client("filler")
        client.ask(produce_request("t", batch(b"x" * 5_000), 1, acks=1))
        limit(world, "<default>", consumer_byte_rate=10)
        follower = world.client("anything")
        response = follower.call(fetch_request(world.topic_id("t"), 0, 1, replica_id=2))
        assert only_fetched(response).records
        assert response.throttle_time_ms == 0
        assert not follower.connection.is_muted


class TestRequestTime:
    def test_a_client_over_its_share_of_the_reactors_time_is_muted(self, world: World) -> None:
        limit(world, "app", request_percentage=10)
        client = world.client("app")
        slow(world, 0.5)
        response = client.call(ListOffsetsRequest(replica_id=-1, topics=[]))
        # 0.5 s are what 10 % allow in 5 s, but a mute for reactor time lasts one window at most.
        assert response.throttle_time_ms == 1000
        assert client.connection.is_muted
        assert world.quotas.throttled[QuotaKey.REQUEST].times == 1

    def test_a_client_within_its_share_is_not(self, world: World) -> None:
        limit(world, "app", request_percentage=60)
        slow(world, 0.5)
        response = world.client("app").call(ListOffsetsRequest(replica_id=-1, topics=[]))
        assert response.throttle_time_ms == 0

    def test_brokers_are_exempt(self, world: World) -> None:
        limit(world, "<default>", request_percentage=10, producer_byte_rate=1)
        slow(world, 0.5)
        broker = world.client("replica-fetcher-2-0")
        assert broker.call(ListOffsetsRequest(replica_id=-1, topics=[])).throttle_time_ms == 0
        assert produced(broker, 10_000) == 0

    def test_time_is_not_measured_without_a_quota_of_it(self, world: World) -> None:
        limit(world, "app", producer_byte_rate=10)
        assert not world.quotas.measures_time


def slow(world: World, seconds: float) -> None:
    """Let the handling of each ListOffsets request take this long."""
    (handler,) = [each for each in world.dispatcher._handlers.values() if each.request is ListOffsetsRequest]

    def handle(context: object, request: object) -> ListOffsetsResponse:
        world.clock.advance(seconds)
        return ListOffsetsResponse(topics=[])

    handler.handle = handle  # type: ignore[method-assign]


def test_nothing_is_measured_while_there_are_no_quotas(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> int:
        pytest.fail("a client without a quota was charged")

    for name in ("charge", "due_ms", "charge_time", "fetch_bytes_max", "throttle"):
        monkeypatch.setattr(world.quotas, name, fail)
    fill(world, 100)
    assert only_fetched(fetched(world, world.client("free"))).records
    limit(world, "app", producer_byte_rate=10)
    limit(world, "app")
    fill(world, 100)


def test_throttling_is_logged_rarely(world: World, caplog: pytest.LogCaptureFixture) -> None:
    limit(world, "app", producer_byte_rate=1_000)
    client = world.client("app")
    for _ in range(20):
        world.clock.advance(produced(client, 5_000) / 1000 + 0.01)
    assert world.quotas.throttled[QuotaKey.PRODUCE].times == 20
    assert caplog.text.count("Throttling") == 1
