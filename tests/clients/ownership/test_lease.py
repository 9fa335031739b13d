"""Leases (own API) against brokers in memory, without a thread: polling renews a lease."""

from __future__ import annotations

import random
from typing import Any

import pytest

from holdfast_log.broker.ownership.settings import OwnershipSettings
from holdfast_log.clients.errors import ClosedError, RequestTimeoutError
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.clients.producer import Producer
from holdfast_log.protocol.errors import ErrorCode, OwnershipFencedError, OwnershipRefusedError
from holdfast_log.protocol.messages.ownership import (
    Access,
    LossReason,
    OwnRequest,
    ReleaseRequest,
    RenewRequest,
    ResumeRequest,
)
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster

LOG = TopicPartition("log", 0)
NAME = "leader"
WAIT_MS = 30_000
SESSION_MS = 9000
PING_MS = OwnershipSettings().ping_timeout_ms


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_topic(LOG.topic)
    return cluster


def lease_on(cluster: FakeCluster, *resources: OwnedResource, **options: Any) -> Lease:
    return Lease(
        {"bootstrap.servers": cluster.bootstrap},
        "app",
        resources or [NAME],
        network=cluster.network(),
        rng=random.Random(1),
        is_threaded=False,
        **{"session_timeout_ms": SESSION_MS, **options},
    )


def asked(cluster: FakeCluster, kind: type[Any]) -> list[Any]:
    return [request for request in cluster.brokers[1].requests if isinstance(request, kind)]


def test_the_first_owner_has_generation_1(cluster: FakeCluster) -> None:
    """ "If there is no such owner then the connection of the requesting process is made the owner and we
    return generation 1" (own API)."""
    with lease_on(cluster, NAME, LOG) as lease:
        assert [lease.generation(resource) for resource in (NAME, LOG)] == [1, 1]
        assert (lease.is_held, lease.fence_offset(LOG), lease.fence_offset(NAME)) == (True, 0, None)
    (claim,) = asked(cluster, OwnRequest)
    assert [(row.name, row.partition) for row in claim.resources] == [("leader", -1), ("log", 0)]
    (release,) = asked(cluster, ReleaseRequest)
    assert len(release.resources) == 2
    assert not lease.is_held


def test_resources_could_be_any_arbitrary_string(cluster: FakeCluster) -> None:
    """ "For our use case resources will always be topic-partition pairs, but they could be any arbitrary
    string" (own API)."""
    for name in ("x", "log-0", "Ärger / %2F 你好 \x00", "n" * 255):
        with lease_on(cluster, name) as lease:
            assert lease.generation(name) == 1


def test_a_claim_that_names_a_lower_generation_fails(cluster: FakeCluster) -> None:
    """ "If the existing owner has a higher generation the request fails, returning an error_code" (own
    API)."""
    anna = lease_on(cluster, generation=5)
    anna.claim(WAIT_MS)
    lease_on(cluster, generation=1).claim(WAIT_MS)
    stale = lease_on(cluster, generation=1)

    with pytest.raises(OwnershipRefusedError) as refused:
        stale.claim(WAIT_MS)

    assert refused.value.code is ErrorCode.STALE_GENERATION
    refusal = stale.poll()[-1]
    assert (refusal.state, refusal.generation) == (ClaimState.REFUSED, 2)
    assert stale.poll(1000) == []


@pytest.mark.parametrize(("generation", "granted"), [(1, 2), (110, 110)])
def test_a_claim_that_names_an_equal_or_higher_generation_severs_the_owner(
    cluster: FakeCluster, generation: int, granted: int
) -> None:
    """ "If the existing owner has a an equal or lower generation the existing owner's connection is severed"
    (own API). The loser gets an event, and does not claim again."""
    anna = lease_on(cluster)
    anna.claim(WAIT_MS)
    ben = lease_on(cluster, generation=generation, owner_id="ben")
    ben.claim(WAIT_MS)
    assert ben.generation(NAME) == granted

    while not (events := [each for each in anna.poll(WAIT_MS) if each.state is ClaimState.LOST]):
        assert not anna.is_held

    (lost,) = events
    assert (lost.reason, lost.generation, lost.owner_id) == (LossReason.STOLEN, granted, "ben")
    for _ in range(2):
        with pytest.raises(OwnershipFencedError):
            anna.claim(WAIT_MS)
    assert len(asked(cluster, OwnRequest)) == 2
    ben.poll(1000)
    assert ben.is_held


def test_a_lease_that_was_cut_off_while_a_stranger_wrote_is_lost(cluster: FakeCluster) -> None:
    lease = lease_on(cluster, LOG, access=Access.WRITE)
    lease.claim(WAIT_MS)
    for channel in cluster.brokers[1].channels:
        channel.cut()
    given = {"bootstrap.servers": cluster.bootstrap}
    with Producer(given, network=cluster.network(), is_threaded=False) as stock:
        stock.send(Message(LOG.topic, value="x", partition=0))
    while not (events := [each for each in lease.poll(WAIT_MS) if each.state is ClaimState.LOST]):
        assert not lease.is_held
    (lost,) = events
    assert (lost.reason, lost.generation, lost.fence_offset) == (LossReason.FOREIGN_APPEND, 2, 0)
    with pytest.raises(OwnershipFencedError, match=r"from offset 0 on"):
        lease.claim(WAIT_MS)


def test_two_leases_with_one_owner_id_exclude_each_other(cluster: FakeCluster) -> None:
    """Two hosts with one configured `owner_id` are two owners: the broker tells them apart by secrets."""
    anna = lease_on(cluster, owner_id="the-service")
    anna.claim(WAIT_MS)
    with pytest.raises(OwnershipRefusedError):
        lease_on(cluster, owner_id="the-service").claim(WAIT_MS)
    anna.poll(1000)
    assert anna.is_held


def test_generation_0_always_succeeds_and_resets(cluster: FakeCluster) -> None:
    """ "Generation 0 will have special meaning. It will always succeed in claiming the resource, and will
    reset the generation" (own API)."""
    anna = lease_on(cluster, generation=1)
    anna.claim(WAIT_MS)
    lease_on(cluster, generation=110).claim(WAIT_MS)
    ben = lease_on(cluster, generation=0)
    ben.claim(WAIT_MS)
    assert ben.generation(NAME) == 1


def test_each_resource_may_be_claimed_with_a_generation_of_its_own(cluster: FakeCluster) -> None:
    """ "own_request group [resource generation]" (own API)."""
    anna = lease_on(cluster, NAME, LOG)
    anna.claim(WAIT_MS)
    ben = lease_on(cluster, NAME, LOG, generation={NAME: 1, LOG: 7})
    ben.claim(WAIT_MS)
    assert [ben.generation(resource) for resource in (NAME, LOG)] == [2, 7]
    (claim,) = [each for each in asked(cluster, OwnRequest) if each.owner_id == ben.owner_id]
    assert [row.generation for row in claim.resources] == [1, 7]


def test_an_owner_that_does_not_poll_loses_its_lease(cluster: FakeCluster) -> None:
    """ "It may not be dead, violating our single-writing (or reading) restriction" (own API): the first owner
    stops considering a resource its own by the time the server grants it to another."""
    anna = lease_on(cluster)
    anna.claim(WAIT_MS)
    for _ in range(10):
        anna.poll(SESSION_MS // 2)
    believed = [anna.is_held]
    assert len(asked(cluster, RenewRequest)) >= 10
    ben = lease_on(cluster, wait_ms=FOR_EVER)

    ben.claim(WAIT_MS)

    assert ben.generation(NAME) == 2
    assert [*believed, anna.is_held] == [True, False]
    with pytest.raises(OwnershipFencedError):
        anna.claim(WAIT_MS)
    assert [event.reason for event in anna.poll()][-1] is LossReason.SESSION_TIMED_OUT


@pytest.mark.parametrize("session_ms", [60_000, 9000, 1000])
def test_a_lease_is_not_held_longer_than_the_broker_keeps_it_while_another_client_waits(
    cluster: FakeCluster, session_ms: int
) -> None:
    """The broker ends the session of an owner early that does not react to the claim of another client."""
    anna = lease_on(cluster, session_timeout_ms=session_ms)
    anna.claim(WAIT_MS)
    while len(asked(cluster, RenewRequest)) < 2:  # The broker answers only the first one at once.
        anna.poll(100)
    ben = lease_on(cluster, wait_ms=FOR_EVER)
    began_ms = cluster.time_ms

    while not ben.is_held:
        ben.poll(10)
        assert not (anna.is_held and ben.is_held)

    assert cluster.time_ms - began_ms < 2 * min(session_ms, PING_MS) + 1000


def test_a_lease_renews_often_enough_to_be_held_while_another_client_waits(cluster: FakeCluster) -> None:
    anna = lease_on(cluster, session_timeout_ms=60_000)
    ben = lease_on(cluster, session_timeout_ms=60_000, wait_ms=FOR_EVER)
    anna.claim(WAIT_MS)
    until_ms = cluster.time_ms + 10 * PING_MS
    while cluster.time_ms < until_ms:
        anna.poll(100)
        ben.poll(100)
        assert (anna.is_held, ben.is_held) == (True, False)


def test_an_owner_gets_an_event_when_others_wait_for_its_resource(cluster: FakeCluster) -> None:
    anna = lease_on(cluster)
    anna.claim(WAIT_MS)
    anna.poll()
    ben = lease_on(cluster, wait_ms=FOR_EVER)
    with pytest.raises(RequestTimeoutError):
        ben.claim(0)
    while not any(event.is_contended for event in anna.poll(100)):
        ben.poll(100)
    assert anna.is_held
    anna.close()
    ben.claim(WAIT_MS)
    ben.close()


def test_an_expired_wait_raises_a_timeout_and_is_final(cluster: FakeCluster) -> None:
    anna = lease_on(cluster, session_timeout_ms=3_600_000)
    anna.claim(WAIT_MS)
    ben = lease_on(cluster, wait_ms=500)
    with pytest.raises(RequestTimeoutError, match="leader: not granted within 500 ms"):
        ben.claim()
    with pytest.raises(RequestTimeoutError):
        ben.check()
    ben.close()
    carl = lease_on(cluster, wait_ms=FOR_EVER)
    with pytest.raises(RequestTimeoutError, match="not granted within 700 ms"):
        carl.claim(700)
    anna.close()
    carl.claim(WAIT_MS)  # The caller's timeout has passed, not that of the claim.
    assert carl.generation(NAME) == 2
    carl.close()


def test_closing_a_queued_lease_leaves_the_queue_at_once(cluster: FakeCluster) -> None:
    anna = lease_on(cluster, NAME, LOG)
    anna.claim(WAIT_MS)
    ben, carl = (lease_on(cluster, NAME, LOG, wait_ms=FOR_EVER) for _ in range(2))
    for each in (ben, carl):
        while each.state(NAME) is not ClaimState.QUEUED:
            each.turn(1000)
    before_ms = cluster.time_ms

    ben.close()
    anna.close()

    assert cluster.time_ms - before_ms < 100, "no answer waits behind a renewal"
    carl.claim(WAIT_MS)
    assert [carl.generation(resource) for resource in (NAME, LOG)] == [2, 2]
    carl.close()
    with pytest.raises(ClosedError):
        carl.claim(0)


@pytest.mark.parametrize("seed", range(5))
def test_two_leases_that_wait_for_the_same_resources_do_not_deadlock(seed: int) -> None:
    """Every lease is granted at some time, whichever resources it names and whichever brokers decide."""
    rng = random.Random(seed)
    cluster = FakeCluster(brokers=3)
    cluster.add_topic("log", 6)
    everything: list[OwnedResource] = ["leader", "zoo", *(TopicPartition("log", index) for index in range(6))]
    waiting = [
        lease_on(cluster, *rng.sample(everything, rng.randint(1, 6)), wait_ms=FOR_EVER) for _ in range(8)
    ]
    holding: list[Lease] = []
    while waiting or holding:
        assert cluster.time_ms < 60_000, f"{len(waiting)} wait for each other"
        for lease in [*waiting, *holding]:
            lease.turn(rng.randint(0, 20))
        granted = [lease for lease in waiting if lease.is_held]
        waiting = [lease for lease in waiting if lease not in granted]
        holding += granted
        owned = [resource for lease in holding for resource in lease.resources]
        assert len(owned) == len(set(owned))
        if holding and rng.random() < 0.5:
            holding.pop(rng.randrange(len(holding))).close()


def test_a_lease_moves_with_the_coordinator_of_its_group(cluster: FakeCluster) -> None:
    cluster = FakeCluster(brokers=2)
    lease = lease_on(cluster)
    lease.claim(WAIT_MS)

    cluster.groups.node = 2

    while ClaimState.DETACHED not in [event.state for event in lease.poll(WAIT_MS)]:
        pass
    lease.claim(WAIT_MS)
    assert (lease.generation(NAME), lease.is_held) == (1, True)
    assert any(isinstance(request, ResumeRequest) for request in cluster.brokers[2].requests)
    lease.close()
