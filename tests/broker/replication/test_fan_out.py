"""Many fetches wait for one partition: an append costs what it changes, not what waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.partition_values import PartitionRead
from holdfast_log.broker.replication.waiting import OWNED_MAX
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.frames import FileSlice, Part
from holdfast_log.protocol.headers import decode_response
from holdfast_log.protocol.messages.fetch import FetchRequest
from tests.broker.world import Client, World, fetch_request, only_fetched, only_produced, produce_request
from tests.models.batches import batch

READERS = 12
pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.assign("t")
    return world


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The offsets at which the log has been read below a high watermark."""
    offsets: list[int] = []
    read = Log.read

    def noted(log: Log, offset: int, max_bytes: int, *, upper_offset: int, **more: bool) -> object:
        if offset < upper_offset:
            offsets.append(offset)
        return read(log, offset, max_bytes, upper_offset=upper_offset, **more)

    monkeypatch.setattr(Log, "read", noted)
    yield offsets


def tail(world: World, offset: int = 0, **more: int) -> FetchRequest:
    return fetch_request(world.topic_id("t"), offset, max_wait_ms=500, **more)


def waiting(world: World, request: FetchRequest, count: int = READERS, version: int = 16) -> list[Client]:
    clients = [world.client() for _ in range(count)]
    for client in clients:
        client.ask(request, version)
        assert not client.answers()
    return clients


def produce(world: World, *values: bytes) -> None:
    assert only_produced(world.client().call(produce_request("t", batch(*values)))).error_code == 0


def test_an_append_is_read_once_for_all_that_wait_for_it(world: World, reads: list[int]) -> None:
    clients = waiting(world, tail(world))
    produce(world, b"one")
    answers = [client.answers() for client in clients]
    assert reads == [0]
    found = [only_fetched(answer) for (answer,) in answers]
    assert len({bytes(each.records) for each in found}) == 1 and found[0].records
    assert {(each.error_code, each.high_watermark) for each in found} == {(0, 1)}
    late = only_fetched(world.client().call(tail(world)))
    assert bytes(late.records) == bytes(found[0].records)
    assert reads == [0, 0], "nothing is shared with a later fetch"


def test_fetches_of_other_offsets_limits_and_versions_share_nothing_wrong(world: World) -> None:
    produce(world, b"one")
    first = waiting(world, tail(world, 1), 3)
    limited = waiting(world, tail(world, 1, partition_max_bytes=1), 2)
    large = waiting(world, tail(world, 0, min_bytes=120), 2)
    names = tail(world, 1)
    names.topics[0].topic = "t"
    old = waiting(world, names, 2, version=11)
    produce(world, b"two", b"three")
    for clients, offsets in ((first, (3,)), (limited, (3,)), (large, (3,)), (old, (3,))):
        for client in clients:
            (answer,) = client.answers()
            assert only_fetched(answer).high_watermark == offsets[0]
            assert answer.responses[0].topic_id.int == (0 if clients is old else world.topic_id("t").int)
            assert answer.responses[0].topic == ("t" if clients is old else "")
    sizes = {bytes(only_fetched(world.client().call(tail(world, offset))).records) for offset in (0, 1)}
    assert len(sizes) == 2


def test_a_damaged_read_is_refused_to_all(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = waiting(world, tail(world))

    def refuse(*_: object, **__: object) -> None:
        raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(Log, "read", refuse)
    produce(world, b"one")
    codes = {only_fetched(answer).error_code for client in clients for answer in client.answers()}
    assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}


def test_each_reader_is_admitted_on_its_own(world: World) -> None:
    clients = waiting(world, tail(world))
    refused = clients[5].connection.id

    class OneRefused:
        def admit(self, connection: int) -> None:
            if connection == refused:
                raise BrokerError(ErrorCode.OWNERSHIP_FENCED, "another reader has it")

    world.replicas.partition("t", 0).read_admission = OneRefused()
    produce(world, b"one")
    codes = [only_fetched(answer).error_code for client in clients for answer in client.answers()]
    assert codes == [ErrorCode.OWNERSHIP_FENCED if number == 5 else 0 for number in range(READERS)]


def test_a_throttle_is_told_to_its_own_client_only(world: World) -> None:
    """A call that is charged to a client puts its throttle time into the response."""
    world.quota_limits.configs_changed("clients", "slow", {"consumer_byte_rate": "10"})
    clients = [world.client("slow" if number == 3 else "test") for number in range(READERS)]
    for client in clients:
        client.ask(tail(world))
    produce(world, b"one")
    times = [answer.throttle_time_ms for client in clients for answer in client.answers()]
    assert times[3] > 0 and times == [times[3] if number == 3 else 0 for number in range(READERS)]


def test_fetches_that_need_more_bytes_are_not_read_by_each_append(world: World, reads: list[int]) -> None:
    clients = waiting(world, tail(world, min_bytes=1000))
    size = len(batch(b"x" * 50))
    appends = 0
    while not (answers := [client.answers() for client in clients])[0]:
        assert not reads, "an append that cannot complete a fetch costs no read"
        produce(world, b"x" * 50)
        appends += 1
    assert appends == -(-1000 // size)
    assert reads == [0], "one read for all"
    assert {len(only_fetched(answer).records) for (answer,) in answers} == {appends * size}


def test_a_fetch_that_needs_more_bytes_ends_with_what_there_is(world: World) -> None:
    (client,) = waiting(world, tail(world, min_bytes=10_000), 1)
    produce(world, b"one")
    world.clock.advance(0.5)
    (answer,) = client.answers()
    assert only_fetched(answer).records


def test_records_that_become_visible_without_an_append_complete_a_fetch(world: World) -> None:
    """They were appended before the fetch, and followers had not copied them."""
    world.assign("r", replicas=(1, 2))
    partition = world.replicas.partition("r", 0)
    world.client().ask(produce_request("r", batch(b"y" * 200), acks=1))
    assert partition.high_watermark < partition.log.log_end_offset
    client = world.client()
    client.ask(fetch_request(world.topic_id("r"), 0, min_bytes=200, max_wait_ms=500))
    assert not client.answers()
    follower = fetch_request(world.topic_id("r"), 1, replica_id=2, leader_epoch=partition.leader_epoch)
    world.client().ask(follower)
    (answer,) = client.answers()
    assert only_fetched(answer).records


def test_a_small_shared_read_is_in_memory_and_a_large_one_is_not(
    world: World, reads: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[FileSlice] = []
    end_sharing = Partition.end_sharing

    def noted(partition: Partition) -> None:
        found = [each for each in (partition._shared_reads or {}).values() if isinstance(each, PartitionRead)]
        shared.extend(each.records for each in found if each.records is not None)
        end_sharing(partition)

    monkeypatch.setattr(Partition, "end_sharing", noted)
    for offset, size in ((0, 100), (1, 40_000)):
        clients = waiting(world, tail(world, offset), 3)
        produce(world, b"x" * size)
        contents = {bytes(only_fetched(answer).records) for client in clients for answer in client.answers()}
        assert len(contents) == 1
        assert reads == [offset], "one read for all"
        (records,) = shared
        assert (records.data is not None) == (size == 100)
        shared.clear()
        reads.clear()


def test_a_fetch_of_several_partitions_is_read_when_one_has_its_share_and_answered_in_time(
    world: World, reads: list[int]
) -> None:
    world.assign("t", 1)
    size = len(batch(b"x"))
    wanted = tail(world, min_bytes=6 * size)
    wanted.topics[0].partitions.append(fetch_request(world.topic_id("t"), index=1).topics[0].partitions[0])
    (client,) = waiting(world, wanted, 1)
    for index in (0, 1, 0, 1):
        produce_to(world, index)
    assert not client.answers() and not reads
    produce_to(world, 0)
    assert len(reads) == 1 and not client.answers()
    produce_to(world, 1)
    (answer,) = client.answers()
    assert sum(len(each.records or b"") for each in answer.responses[0].partitions) == 6 * size


def produce_to(world: World, index: int) -> None:
    answer = world.client().call(produce_request("t", batch(b"x"), index=index))
    assert only_produced(answer).error_code == 0


def test_a_log_start_that_moves_while_readers_are_woken_is_told_to_the_rest(world: World) -> None:
    """The answer to one reader may change what the others see."""
    clients = waiting(world, tail(world))
    partition = world.replicas.partition("t", 0)
    for client in clients:
        send = client.wire.send

        def sent(parts: Sequence[Part], send: Callable[[Sequence[Part]], None] = send) -> None:
            partition.log.log_start_offset = 1
            send(parts)

        client.wire.send = sent  # type: ignore[method-assign]
    produce(world, b"one", b"two")
    answers = [only_fetched(answer) for client in clients for answer in client.answers()]
    codes = [answer.error_code for answer in answers]
    assert codes == [0] + [ErrorCode.OFFSET_OUT_OF_RANGE] * (READERS - 1)


def test_a_high_watermark_that_moves_while_readers_are_woken_is_told_to_the_rest(world: World) -> None:
    world.assign("r", replicas=(1, 2))
    partition = world.replicas.partition("r", 0)
    for value in (b"one", b"two"):
        world.client().ask(produce_request("r", batch(value), acks=1))
    clients = waiting(world, fetch_request(world.topic_id("r"), 0, max_wait_ms=500))
    first = clients[0].wire.send

    def sent(parts: Sequence[Part]) -> None:
        partition.high_watermark = 2
        first(parts)

    clients[0].wire.send = sent  # type: ignore[method-assign]
    follower = fetch_request(world.topic_id("r"), 1, replica_id=2, leader_epoch=partition.leader_epoch)
    world.client().ask(follower)
    answers = [only_fetched(answer) for client in clients for answer in client.answers()]
    assert [answer.high_watermark for answer in answers] == [1] + [2] * (READERS - 1)
    sizes = [len(cast(bytes, answer.records)) for answer in answers]
    assert sizes == [sizes[0]] + [2 * sizes[0]] * (READERS - 1)


@pytest.mark.parametrize("version", [11, 16])
def test_an_answer_that_many_share_has_the_ids_of_each_ones_own_request(world: World, version: int) -> None:
    clients, sessions = [], []
    for number in range(READERS):
        client, request = world.client(), tail(world)
        request.topics[0].topic, request.max_wait_ms, request.session_epoch = "t", 0, 0
        # The requests of a client are numbered from 0.
        for _ in range(number + 1):
            opened = client.call(request, version)
        request.max_wait_ms, request.session_id, request.session_epoch = 500, opened.session_id, 1
        client.ask(request, version)
        clients.append(client)
        sessions.append(opened.session_id)
    assert not any(client.answers() for client in clients)
    produce(world, b"one")
    frames = [frame for client in clients for frame in client.wire.frames()]
    assert [int.from_bytes(frame[:4], "big") for frame in frames] == [1 + n for n in range(READERS)]
    found = [decode_response(FetchRequest, version, frame) for frame in frames]
    assert [answer.session_id for answer in found] == sessions
    assert len({cast(bytes, only_fetched(answer).records) for answer in found}) == 1


def test_a_partition_that_gets_another_leader_while_readers_are_woken_is_refused_to_the_rest(
    world: World,
) -> None:
    clients = waiting(world, tail(world))
    partition = world.replicas.partition("t", 0)
    first = clients[0].wire.send

    def sent(parts: Sequence[Part]) -> None:
        partition.role = None
        first(parts)

    clients[0].wire.send = sent  # type: ignore[method-assign]
    world.client().ask(produce_request("t", batch(b"one"), acks=1))
    codes = [only_fetched(answer).error_code for client in clients for answer in client.answers()]
    assert codes == [0] + [ErrorCode.NOT_LEADER_OR_FOLLOWER] * (READERS - 1)


@pytest.mark.parametrize("version", [4, 5, 7, 9, 11, 12, 13, 15, 16])
def test_a_fetch_of_any_version_waits_and_is_answered_in_time(world: World, version: int) -> None:
    request = tail(world)
    request.topics[0].topic = "t"
    (empty, full) = waiting(world, request, 2, version)
    world.clock.advance(0.6)
    for client in (empty, full):
        (answer,) = client.answers()
        assert not only_fetched(answer).records and only_fetched(answer).high_watermark == 0
    full.ask(request, version)
    produce(world, b"one")
    (answer,) = full.answers()
    assert only_fetched(answer).records
    assert not empty.answers()


def test_a_fetch_whose_connection_closes_while_others_are_answered_is_not_answered(world: World) -> None:
    clients = waiting(world, tail(world))
    last = clients[-1]
    send = clients[0].wire.send

    def sent(parts: Sequence[Part]) -> None:
        last.connection.connection_lost("the client went away")
        send(parts)

    clients[0].wire.send = sent  # type: ignore[method-assign]
    produce(world, b"one")
    assert [len(client.answers()) for client in clients] == [1] * (READERS - 1) + [0]
    assert len(world.replicas.readers) == 0


def test_more_fetches_than_may_wait_are_answered_at_once(world: World) -> None:
    world.replicas.readers._capacity = 2
    clients = [world.client() for _ in range(3)]
    for client in clients:
        client.ask(tail(world))
    assert [len(client.answers()) for client in clients] == [0, 0, 1]


@pytest.mark.parametrize("replica_id", [-1, -2, -(2**31)])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_reader_with_any_negative_replica_id_is_admitted_like_a_consumer(
    world: World, replica_id: int, partitions: int
) -> None:
    world.assign("t", 1)
    produce(world, b"one")

    class NobodyElse:
        def admit(self, connection: int) -> None:
            raise BrokerError(ErrorCode.OWNERSHIP_FENCED, "another reader has it")

    world.replicas.partition("t", 0).read_admission = NobodyElse()
    request = fetch_request(world.topic_id("t"), 0, replica_id=replica_id)
    if partitions == 2:
        more = fetch_request(world.topic_id("t"), 0, 1).topics[0].partitions
        request.topics[0].partitions.extend(more)
    answer = world.client().call(request)
    first = answer.responses[0].partitions[0]
    assert first.error_code == ErrorCode.OWNERSHIP_FENCED and not first.records


def test_an_append_wakes_few_fetches_that_one_connection_has_sent_ahead(world: World) -> None:
    client = world.client()
    client.ask_together([tail(world)] * 500)
    while len(world.replicas.readers) < OWNED_MAX or client.connection.is_holding:
        world.clock.advance(0)
    assert len(world.replicas.readers) == OWNED_MAX
    answered = len(client.answers())
    produce(world, b"x")
    assert len(world.replicas.readers) == 0
    assert answered + len(client.answers()) == 500
