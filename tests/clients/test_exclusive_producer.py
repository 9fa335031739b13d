"""Exclusive producers (PIP-68) against brokers in memory; one sending loop sends claims and records."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.clients.errors import ClosedError, RequestTimeoutError, UndeliveredError
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import (
    ErrorCode,
    OwnershipRefusedError,
    PolicyViolationError,
    ProducerFencedError,
)
from holdfast_log.protocol.messages.ownership import LossReason, ReleaseRequest
from holdfast_log.protocol.messages.produce import ProduceRequest
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode, ProducerAccessRequest
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from holdfast_log.testing.fakes.fake_ownership import FakeOwnership
from holdfast_log.testing.fakes.fake_partition import FakePartition
from tests.clients.sending.settling import settle

LOG = "log"
WAIT_MS = 30_000
EXCLUSIVE = ProducerAccessMode.EXCLUSIVE
FENCING = ProducerAccessMode.EXCLUSIVE_WITH_FENCING
SHARED = ProducerAccessMode.SHARED
WAITING = ProducerAccessMode.WAIT_FOR_EXCLUSIVE


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic(LOG, 3)
    return cluster


class Owner(ExclusiveProducer):
    """An exclusive producer of partition 0, and the ownership events that it got."""

    def __init__(
        self, cluster: FakeCluster, mode: ProducerAccessMode = EXCLUSIVE, *partitions: int, **options: Any
    ) -> None:
        self.told: list[OwnershipEvent] = []
        super().__init__(
            {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0},
            LOG,
            mode,
            partitions=partitions or [0],
            network=cluster.network(),
            rng=random.Random(1),
            is_threaded=False,
            on_ownership=self.told.append,
            **options,
        )

    @property
    def states(self) -> list[ClaimState]:
        return [event.state for event in self.told]

    def write(self, *values: str) -> list[int]:
        """Send messages. Returns their offsets."""
        responses = [self.send(Message(LOG, value=value, partition=0)) for value in values]
        assert settle(self, WAIT_MS)
        return [response.result(0).offset for response in responses]


def values_in(cluster: FakeCluster, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in cluster.topics[LOG][partition].records()]


def asked(cluster: FakeCluster, kind: type[Any], node: int = 1) -> list[Any]:
    """The requests of one type that a broker got, in order."""
    return [request for request in cluster.brokers[node].requests if isinstance(request, kind)]


def turn_until_told(owner: Owner, state: ClaimState) -> OwnershipEvent:
    """Run a producer's loop until it gets an event with this state. Returns the last such event."""
    while state not in owner.states:
        owner.turn(WAIT_MS)
    return [event for event in owner.told if event.state is state][-1]


def write_as_a_stranger(cluster: FakeCluster, *values: str) -> list[int]:
    """Send messages by a producer that claims nothing. Returns their offsets."""
    given = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0}
    stock = Producer(given, network=cluster.network(), is_threaded=False)
    responses = [stock.send(Message(LOG, value=value, partition=0)) for value in values]
    assert settle(stock, WAIT_MS)
    stock.close()
    return [response.result(0).offset for response in responses]


def cut_all(cluster: FakeCluster) -> None:
    for broker in cluster.brokers.values():
        for channel in broker.channels:
            channel.cut()


def test_an_exclusive_producer_is_the_only_writer(cluster: FakeCluster) -> None:
    """ "Once an application is successful in creating a producer with 'exclusive' access, the particular
    instance of that application is guaranteed to be only writer on that topic. Other producers trying to
    produce on this topic, will receive an error immediately (if using Exclusive or Shared access mode)"; "the
    broker will inform the exclusive producer of it's associated epoch" (PIP-68)."""
    anna = Owner(cluster)
    for mode in (SHARED, EXCLUSIVE):
        with pytest.raises(OwnershipRefusedError) as refused:
            Owner(cluster, mode)
        assert refused.value.code is ErrorCode.RESOURCE_OWNED
    assert anna.write("a") == [0]
    assert (anna.has_access, anna.epoch(), anna.fence_offset()) == (True, 1, 0)
    anna.close()


@pytest.mark.parametrize("code", [ErrorCode.POLICY_VIOLATION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_owner_that_is_taken_for_a_stranger_resumes_and_writes(
    cluster: FakeCluster, code: ErrorCode
) -> None:
    """A broker of an older version answers TOPIC_AUTHORIZATION_FAILED to everybody."""
    anna = Owner(cluster)
    cluster.brokers[1].fail_next(ProduceRequest, code)
    assert anna.write("a") == [0]
    assert (anna.states[-1], anna.epoch()) == (ClaimState.HELD, 1)
    assert ClaimState.DETACHED in anna.states
    anna.close()


def test_nothing_is_written_before_all_partitions_are_granted(
    cluster: FakeCluster,
) -> None:
    ben = Owner(cluster, EXCLUSIVE, 2)
    anna = Owner(cluster, WAITING, 2, 0, 1, is_waiting=False)
    early = anna.send(Message(LOG, value="early", partition=0))
    turn_until_told(anna, ClaimState.QUEUED)
    claims = [
        request.partition
        for request in asked(cluster, ProducerAccessRequest)
        if request.producer_id == anna.producer_id
    ]
    assert claims == [0, 1, 2]
    assert not early.done and asked(cluster, ProduceRequest) == []

    ben.close()

    anna.claim(WAIT_MS)
    assert settle(anna, WAIT_MS) and early.offset == 0
    anna.close()


def test_a_refused_partition_releases_the_others(cluster: FakeCluster) -> None:
    """ "Require exclusive access for producer. Fail immediately if there's already a producer connected"."""
    cluster.ownership = FakeOwnership(cluster, OwnershipSettings(release_grace_ms=3_600_000))
    ben = Owner(cluster, EXCLUSIVE, 2)
    with pytest.raises(OwnershipRefusedError):
        Owner(cluster, EXCLUSIVE, 0, 1, 2)
    with Owner(cluster, EXCLUSIVE, 0, 1) as carl:
        assert [carl.epoch(partition) for partition in (0, 1)] == [2, 2]
    ben.close()


def test_a_resumption_names_the_epoch_that_was_granted(
    cluster: FakeCluster,
) -> None:
    """ "The first time, the client will leave it empty and then it will always carry the same epoch number on
    the subsequent reconnections"; "from that point on, the producer instance will always be associated with
    that particular topic epoch" (PIP-68). This producer is the first to come back:
    "in this case, the topic epoch will still match the producer epoch and the topic epoch doesn't need to
    get incremented"."""
    anna = Owner(cluster)
    offsets = anna.write("a", "b")
    for value in ("c", "d"):
        cut_all(cluster)
        offsets += anna.write(value)

    assert offsets == [0, 1, 2, 3]
    assert values_in(cluster) == [b"a", b"b", b"c", b"d"]
    assert [request.epoch for request in asked(cluster, ProducerAccessRequest)] == [-1, 1, 1]
    assert anna.epoch() == 1
    assert anna.states == [ClaimState.HELD, *[ClaimState.DETACHED, ClaimState.HELD] * 2]
    assert [event.is_resumed for event in anna.told if event.state is ClaimState.HELD] == [False, True, True]
    anna.close()


@pytest.mark.parametrize("how", ["cut", "cut after"])
def test_messages_under_way_when_access_is_lost_fail(cluster: FakeCluster, how: str) -> None:
    """ "When a producer reconnects, it will pass the existing topic epoch and if it's lower than the current
    topic epoch that the broker has, the producer will be considered 'fenced' permanently. That will ensure
    that no inflight message from this fenced producer will ever make its way in the topic." It "will not be
    immediately notified of that event, but it's guaranteed to receive a ProducerFencedException the next time
    it attempts to publish a message on the topic" (PIP-68)."""
    anna = Owner(cluster)
    assert anna.write("a") == [0]
    cluster.brokers[1].fail_next(ProduceRequest, how)
    under_way = anna.send(Message(LOG, value="under way", partition=0))
    while len(asked(cluster, ProduceRequest)) < 2:
        anna.turn(0)
    waiting = anna.send(Message(LOG, value="waiting", partition=0))

    ben = Owner(cluster, FENCING)
    fence = 1 if how == "cut" else 2
    assert (ben.epoch(), ben.fence_offset()) == (2, fence)

    assert settle(anna, WAIT_MS)
    assert [type(each.error) for each in (under_way, waiting)] == [ProducerFencedError] * 2
    assert len(asked(cluster, ProduceRequest)) == 2
    with pytest.raises(ProducerFencedError):
        anna.send(Message(LOG, value="later", partition=0))
    lost = turn_until_told(anna, ClaimState.LOST)
    assert (lost.reason, lost.generation, lost.owner_id) == (LossReason.DISCONNECTED, 2, ben.producer_id)
    assert ben.write("b") == [fence]
    anna.close()
    ben.close()


def test_a_fenced_producer_stays_fenced_and_a_new_one_may_claim(cluster: FakeCluster) -> None:
    """ "Once the application receives ProducerFencedException, the producer instance is permanently fenced
    off. To restart producing on the topic, it will be necessary to create a new instance" (PIP-68)."""
    anna = Owner(cluster)
    Owner(cluster, FENCING).close()
    for _ in range(2):
        with pytest.raises(ProducerFencedError):
            anna.write("late")
    claims = len(asked(cluster, ProducerAccessRequest))
    with pytest.raises(ProducerFencedError):
        anna.claim(WAIT_MS)
    assert len(asked(cluster, ProducerAccessRequest)) == claims
    assert not anna.has_access
    anna.close()

    with Owner(cluster) as again:
        assert (again.epoch(), again.write("again")) == (3, [0])


def test_a_producer_that_was_cut_off_while_a_stranger_wrote_is_fenced_and_told(
    cluster: FakeCluster,
) -> None:
    """ "A new producer is the first in reconnecting and it will force the increment on the topic epoch"
    (PIP-68); a client that claims nothing is a new producer too."""
    anna = Owner(cluster)
    anna.write("a", "b")
    cut_all(cluster)
    assert write_as_a_stranger(cluster, "x") == [2]
    late = anna.send(Message(LOG, value="late", partition=0))

    assert settle(anna, WAIT_MS)

    assert isinstance(late.error, ProducerFencedError) and "(from offset 2 on)" in str(late.error)
    lost = turn_until_told(anna, ClaimState.LOST)
    assert (lost.reason, lost.generation, lost.fence_offset) == (LossReason.FOREIGN_APPEND, 2, 2)
    assert not anna.has_access
    with pytest.raises(ProducerFencedError):
        anna.send(Message(LOG, value="later", partition=0))
    assert values_in(cluster) == [b"a", b"b", b"x"]
    anna.close()


def test_a_producer_that_was_paused_while_a_stranger_wrote_is_fenced_and_told(cluster: FakeCluster) -> None:
    anna = Owner(cluster, session_timeout_ms=1500)
    anna.write("a")
    with pytest.raises(PolicyViolationError):
        write_as_a_stranger(cluster, "too early")
    cluster.time_ms += 4000
    assert write_as_a_stranger(cluster, "x", "y", "z") == [1, 2, 3]

    with pytest.raises(ProducerFencedError):
        anna.write("late")
    lost = turn_until_told(anna, ClaimState.LOST)
    assert (lost.reason, lost.fence_offset, anna.has_access) == (LossReason.FOREIGN_APPEND, 1, False)
    assert values_in(cluster) == [b"a", b"x", b"y", b"z"]
    anna.close()


def test_a_producer_that_the_broker_does_not_know_resumes(cluster: FakeCluster) -> None:
    """A restarted broker knows its owners, but not their new connections."""
    anna = Owner(cluster)
    assert anna.write("a") == [0]

    cluster.ownership.begin_anew(LOG, 0)

    assert anna.write("b", "c") == [1, 2]
    assert anna.epoch() == 1
    assert anna.states == [ClaimState.HELD, ClaimState.DETACHED, ClaimState.HELD]
    assert values_in(cluster) == [b"a", b"b", b"c"]
    anna.close()


def test_access_is_resumed_at_the_next_leader(cluster: FakeCluster) -> None:
    cluster = FakeCluster(brokers=2)
    cluster.add_topic(LOG, 2)
    anna = Owner(cluster)
    assert anna.write("a") == [0]

    partition = cluster.topics[LOG][0]
    partition.leader, partition.leader_epoch = 2, 1
    cluster.ownership.begin_anew(LOG, 0)

    assert anna.write("b", "c") == [1, 2]
    assert [request.epoch for request in asked(cluster, ProducerAccessRequest, 2)] == [1]
    assert len(asked(cluster, ProduceRequest, 2)) >= 1
    anna.close()


def test_a_waiting_constructor_returns_when_the_previous_producer_has_left(cluster: FakeCluster) -> None:
    """ "Producer creation is pending until it can acquire exclusive access"; the other's is removed when "the
    TCP connection for the producer is closed" (PIP-68)."""
    anna = Owner(cluster, session_timeout_ms=3_600_000)
    channels = list(cluster.brokers[1].channels)

    def disconnect() -> None:
        for channel in channels:
            channel.cut()

    cluster.at(cluster.time_ms + 5000, disconnect)
    before_ms = cluster.time_ms

    ben = Owner(cluster, WAITING)

    assert cluster.time_ms - before_ms >= 5000
    assert (ben.has_access, ben.epoch()) == (True, 2)
    ben.close()
    anna.close()


def test_each_leader_reads_all_earlier_segments_and_appends_its_own(
    cluster: FakeCluster,
) -> None:
    """ "The topic will contain different segments of updates, one per each successive leader, and there will
    be no interleaving across different leaders"; "the producers that succeeds in becoming the exclusive
    producer is treated as the 'leader'", and "will also need to make to have applied all the update from the
    previous producers", which is what the fence offset is for (PIP-68)."""
    candidates = [Owner(cluster, WAITING, is_waiting=False) for _ in range(4)]
    for candidate in candidates:
        candidate.send(Message(LOG, value="too early to lead", partition=0))
        candidate.turn(0)
    terms: list[list[bytes | None]] = []
    while candidates:
        for candidate in candidates:
            candidate.turn(100)
        leaders = [candidate for candidate in candidates if candidate.has_access]
        if not leaders:
            continue
        (leader,) = leaders
        fence = leader.fence_offset()
        assert fence is not None
        known = values_in(cluster)[:fence]
        assert known == [value for term in terms for value in term]
        leader.write("x", "y")
        terms.append(values_in(cluster)[fence:])
        leader.close()
        candidates.remove(leader)
    assert terms == [[b"too early to lead", b"x", b"y"]] * 4


def test_messages_sent_while_queued_are_written_once_access_is_granted(cluster: FakeCluster) -> None:
    """ "If there are producers connected, suspend the producer creation until we can be promoted to be
    exclusive producer" (PIP-68); with `is_waiting=False`, the producer may send meanwhile. It is promoted
    when the producer before it closes: "the client sends a CloseProducer command, for a graceful close"."""
    anna = Owner(cluster)
    ben = Owner(cluster, WAITING, is_waiting=False)
    carl = Owner(cluster, WAITING, is_waiting=False)
    responses = [ben.send(Message(LOG, value=str(number), partition=0)) for number in range(3)]
    assert turn_until_told(ben, ClaimState.QUEUED).position == 1
    assert turn_until_told(carl, ClaimState.QUEUED).position == 2
    assert anna.write("a") == [0] and not any(response.done for response in responses)

    anna.close()

    assert settle(ben, WAIT_MS)
    assert [response.result(0).offset for response in responses] == [1, 2, 3]
    assert (ben.epoch(), ben.fence_offset()) == (2, 1)
    while carl.told[-1].position != 1:
        carl.turn(WAIT_MS)
    ben.close()
    carl.claim(WAIT_MS)
    assert (carl.epoch(), carl.fence_offset()) == (3, 4)
    carl.close()


def test_a_waiting_producer_gets_access_when_the_last_shared_one_leaves(cluster: FakeCluster) -> None:
    """ "By default multiple producers can publish on a topic"; an epoch "will only be set if we were
    requiring exclusive access when creating the producer" (PIP-68)."""
    shared = [Owner(cluster, SHARED) for _ in range(2)]
    assert [each.write("s") for each in shared] == [[0], [1]]
    assert [each.epoch() for each in shared] == [None, None]
    waiting = Owner(cluster, WAITING, is_waiting=False)
    turn_until_told(waiting, ClaimState.QUEUED)
    for each in shared:
        assert not waiting.has_access
        each.close()

    waiting.claim(WAIT_MS)

    assert waiting.write("w") == [2]
    waiting.close()


def test_closing_while_queued_leaves_the_queue(cluster: FakeCluster) -> None:
    anna = Owner(cluster)
    ben = Owner(cluster, WAITING, is_waiting=False)
    carl = Owner(cluster, WAITING, is_waiting=False)
    waiting = ben.send(Message(LOG, value="never", partition=0))
    for each in (ben, carl):
        turn_until_told(each, ClaimState.QUEUED)

    with pytest.raises(UndeliveredError, match="1 to log-0: ClosedError"):
        ben.close(1000)

    assert isinstance(waiting.error, ClosedError)
    assert asked(cluster, ReleaseRequest)[-1].owner_id == ben.producer_id
    anna.close()
    carl.claim(WAIT_MS)
    assert carl.epoch() == 2 and ClaimState.HELD not in ben.states
    carl.close()


def test_an_expired_wait_raises_a_timeout(cluster: FakeCluster) -> None:
    anna = Owner(cluster, session_timeout_ms=3_600_000)
    before_ms = cluster.time_ms
    with pytest.raises(RequestTimeoutError, match="log"):
        Owner(cluster, WAITING, timeout_ms=500)
    assert cluster.time_ms - before_ms >= 500
    ben = Owner(cluster, WAITING, timeout_ms=500, is_waiting=False)
    with pytest.raises(RequestTimeoutError, match="log-0"):
        ben.claim()
    with pytest.raises(RequestTimeoutError):
        ben.send(Message(LOG, value="never", partition=0))
    ben.close()
    anna.close()


def test_an_unknown_topic_is_waited_for_at_most_max_block_ms(cluster: FakeCluster) -> None:
    given = {"bootstrap.servers": cluster.bootstrap, "max.block.ms": 3000}
    with pytest.raises(RequestTimeoutError, match="no broker described topic nowhere") as over:
        ExclusiveProducer(given, "nowhere", network=cluster.network(), is_threaded=False)
    assert over.value.__cause__ is not None


class TopicOwner(ExclusiveProducer):
    """An exclusive producer of the whole topic."""

    def __init__(
        self, cluster: FakeCluster, mode: ProducerAccessMode = EXCLUSIVE, *, is_waiting: bool = True
    ) -> None:
        super().__init__(
            {"bootstrap.servers": cluster.bootstrap, "linger.ms": 0, "metadata.max.age.ms": 2000},
            LOG,
            mode,
            network=cluster.network(),
            rng=random.Random(1),
            is_threaded=False,
            is_waiting=is_waiting,
        )

    def turn_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.turn(WAIT_MS)


def add_partition(cluster: FakeCluster) -> None:
    cluster.topics[LOG].append(FakePartition(1))


def test_a_producer_of_a_topic_claims_the_partitions_that_are_added(cluster: FakeCluster) -> None:
    anna = TopicOwner(cluster)
    assert (anna.has_access, list(anna.partitions)) == (True, [0, 1, 2])

    add_partition(cluster)
    while len(anna.partitions) < 4:
        is_known = len(anna._engine.connection.metadata.topics[LOG].partitions) == 4
        assert anna.has_access is not is_known
        anna.turn(WAIT_MS)

    assert (list(anna.partitions), anna.epoch(3)) == ([0, 1, 2, 3], 1)
    sent = anna.send(Message(LOG, value="new", partition=3))
    assert settle(anna, WAIT_MS) and sent.offset == 0
    assert [each.covers_topic for each in asked(cluster, ProducerAccessRequest)] == [True] * 4
    anna.close()
    with Owner(cluster, EXCLUSIVE, 3) as ben:
        assert ben.epoch(3) == 2, "closing releases the added partition too"


def test_a_producer_of_a_topic_has_no_access_before_it_has_partitions_that_it_did_not_know(
    cluster: FakeCluster,
) -> None:
    """The broker counts the partitions after the grant, because the metadata may be out of date."""
    anna = TopicOwner(cluster, is_waiting=False)
    add_partition(cluster)
    anna.claim(WAIT_MS)
    assert anna.has_access
    assert [each.partition for each in asked(cluster, ProducerAccessRequest)] == [0, 1, 2, 3]
    anna.close()


def test_a_producer_of_a_topic_counts_the_partitions_after_it_left_the_queue(cluster: FakeCluster) -> None:
    anna = TopicOwner(cluster)
    ben = TopicOwner(cluster, WAITING, is_waiting=False)
    ben.turn(100)
    anna.close()
    add_partition(cluster)
    ben.claim(WAIT_MS)
    assert ben.has_access and ben.epoch(3) == 1
    ben.close()


def test_a_producer_that_is_refused_an_added_partition_has_lost_the_topic(cluster: FakeCluster) -> None:
    anna = TopicOwner(cluster)
    add_partition(cluster)
    with Owner(cluster, FENCING, 3):
        anna.turn_until(lambda: not anna.has_access)
        with pytest.raises(OwnershipRefusedError):
            anna.claim(WAIT_MS)
        assert not anna.has_access
    anna.close()


def cut_off_leader(cluster: FakeCluster) -> None:
    """Have broker 2 lead partition 0, without broker 1, the former leader, learning of it."""
    partition = cluster.topics[LOG][0]
    cluster.brokers[1].believed_leaders[LOG, 0] = (1, partition.leader_epoch)
    partition.leader, partition.leader_epoch = 2, partition.leader_epoch + 1
    cluster.ownership.begin_anew(LOG, 0)


@pytest.fixture
def two_brokers() -> FakeCluster:
    return cluster_of_two()


def cluster_of_two() -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.add_topic(LOG, 1)
    assert cluster.topics[LOG][0].leader == 1
    return cluster


def test_a_waiter_whose_broker_was_cut_off_and_replaced_asks_another_one(two_brokers: FakeCluster) -> None:
    """The broker goes on naming itself as the leader, and the client has a connection to no other one."""
    cluster = two_brokers
    ben = Owner(cluster)
    anna = Owner(cluster, WAITING, is_waiting=False)
    turn_until_told(anna, ClaimState.QUEUED)
    cut_off_leader(cluster)
    for _ in range(20):
        anna.turn(WAIT_MS)
        ben.turn(WAIT_MS)
    assert ben.has_access, "the owner resumes"
    assert asked(cluster, ProducerAccessRequest, node=2), "the waiter waits there"

    ben.close()

    anna.claim(WAIT_MS)
    assert anna.has_access and anna.write("a") == [0]
    anna.close()


def test_a_waiter_keeps_its_place_before_a_newcomer_that_asks_the_next_broker_first(
    two_brokers: FakeCluster,
) -> None:
    cluster = two_brokers
    ben = Owner(cluster)
    anna = Owner(cluster, WAITING, is_waiting=False)
    turn_until_told(anna, ClaimState.QUEUED)
    cluster.time_ms += 1000
    cut_off_leader(cluster)
    cluster.brokers[1].is_up = False  # A newcomer finds the next leader at once.
    carl = Owner(cluster, WAITING, is_waiting=False)
    turn_until_told(carl, ClaimState.QUEUED)
    cluster.brokers[1].is_up = True
    for _ in range(40):
        for owner in (anna, ben, carl):
            owner.turn(100)

    ben.close()

    for _ in range(40):
        for owner in (anna, carl):
            owner.turn(100)
    assert anna.has_access and not carl.has_access
    anna.close()
    carl.close()


def test_an_owner_whose_broker_was_cut_off_and_replaced_writes_to_another_one(
    two_brokers: FakeCluster,
) -> None:
    cluster = two_brokers
    anna = Owner(cluster)
    assert anna.write("a") == [0]
    cut_off_leader(cluster)
    assert anna.write("b") == [1]
    anna.close()
