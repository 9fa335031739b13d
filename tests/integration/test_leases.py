"""Leases against a real broker: names and partitions that one process owns exclusively."""

from __future__ import annotations

import itertools
import uuid
from collections import deque
from typing import Any

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.errors import RequestTimeoutError
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.claim_requests import Writer
from holdfast_log.clients.ownership.events import ClaimState, OwnedResource, OwnershipEvent
from holdfast_log.clients.ownership.lease import Lease
from holdfast_log.protocol.errors import ErrorCode, OwnershipFencedError, OwnershipRefusedError
from holdfast_log.protocol.messages.ownership import LossReason
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.integration import clients
from tests.models.cuttable import CuttableNetwork

WAIT_MS = 60_000
SESSION_MS = 60_000
"""So long that an owner keeps its resources on a machine that stands still for a while."""
_topics = itertools.count(1)


@pytest.fixture
def log(broker: BackgroundBroker) -> TopicPartition:
    """A topic with one partition."""
    topic = f"log-{next(_topics)}"
    clients.create_topic(broker.address, topic)
    return TopicPartition(topic, 0)


@pytest.fixture
def name() -> str:
    return f"leader-{uuid.uuid4()}"


class HeardLease(Lease):
    """A lease with a queue of the events that no test has asked for yet."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.heard: deque[OwnershipEvent] = deque()


def lease_on(broker: BackgroundBroker, *resources: OwnedResource, **options: Any) -> HeardLease:
    given = {"session_timeout_ms": SESSION_MS, **options}
    return HeardLease({"bootstrap.servers": broker.address}, "app", resources, **given)


def wait_for(lease: HeardLease, state: ClaimState) -> OwnershipEvent:
    """Wait for the next event with this state, and drop the events before it."""
    while True:
        while lease.heard:
            event = lease.heard.popleft()
            if event.state is state:
                return event
        lease.heard += lease.poll(WAIT_MS)


def test_a_name_is_leased_and_released(broker: BackgroundBroker, name: str) -> None:
    with lease_on(broker, name) as anna:
        assert anna.is_held
        assert (anna.generation(name), anna.fence_offset(name)) == (1, None)
        with pytest.raises(OwnershipRefusedError) as refused:
            lease_on(broker, name).__enter__()
        assert refused.value.code is ErrorCode.RESOURCE_OWNED

    with lease_on(broker, name) as ben:
        assert ben.generation(name) == 2
    assert not anna.is_held


def test_a_queued_claim_gets_events_with_its_position(broker: BackgroundBroker, name: str) -> None:
    anna, ben, carl = (lease_on(broker, name, wait_ms=FOR_EVER) for _ in range(3))
    anna.claim(WAIT_MS)
    with pytest.raises(RequestTimeoutError):
        ben.claim(0)
    assert wait_for(ben, ClaimState.QUEUED).position == 1
    assert wait_for(carl, ClaimState.QUEUED).position == 2
    assert wait_for(anna, ClaimState.HELD).generation == 1
    assert wait_for(anna, ClaimState.HELD).is_contended

    ben.close()
    assert wait_for(carl, ClaimState.QUEUED).position == 1
    anna.close()

    assert wait_for(carl, ClaimState.HELD).generation == 2
    assert carl.is_held
    carl.close()


def test_an_owner_whose_resource_is_stolen_gets_an_event_and_cannot_claim_again(
    broker: BackgroundBroker, name: str
) -> None:
    anna = lease_on(broker, name)
    anna.claim(WAIT_MS)
    ben = lease_on(broker, name, generation=1, owner_id="ben")
    ben.claim(WAIT_MS)

    lost = wait_for(anna, ClaimState.LOST)

    assert (lost.reason, lost.generation, lost.owner_id) == (LossReason.STOLEN, 2, "ben")
    assert not anna.is_held
    with pytest.raises(OwnershipFencedError):
        anna.check()
    with pytest.raises(OwnershipFencedError):
        anna.claim(WAIT_MS)
    assert ben.is_held
    anna.close()
    ben.close()


def test_all_resources_of_a_lease_are_granted_or_none(
    broker: BackgroundBroker, log: TopicPartition, name: str
) -> None:
    first, last = f"a-{name}", f"z-{name}"
    anna = lease_on(broker, last)
    anna.claim(WAIT_MS)

    with pytest.raises(OwnershipRefusedError):
        lease_on(broker, last, log, first).__enter__()

    with lease_on(broker, first, log) as ben:
        # Generation 1: the refused lease was granted none of its resources, not even for a moment.
        assert (ben.generation(first), ben.generation(log), ben.fence_offset(log)) == (1, 1, 0)
    anna.close()


def test_a_lease_resumes_after_its_connection_breaks(broker: BackgroundBroker, log: TopicPartition) -> None:
    clients.produce(broker.address, log.topic, [b"a", b"b"])
    network = CuttableNetwork()
    anna = lease_on(broker, log, writer=Writer(client_id="loader"), network=network)
    anna.claim(WAIT_MS)
    assert (anna.generation(log), anna.fence_offset(log)) == (1, 2)
    wait_for(anna, ClaimState.HELD)

    network.cut()

    assert wait_for(anna, ClaimState.DETACHED).generation == 1
    resumed = wait_for(anna, ClaimState.HELD)
    assert (resumed.is_resumed, resumed.generation) == (True, 1)
    assert clients.produce(broker.address, log.topic, [b"c"], **{"client.id": "loader"}) == [2]
    anna.close()


def test_a_silent_owner_loses_its_lease_to_the_waiting_claim(broker: BackgroundBroker, name: str) -> None:
    silent = lease_on(broker, name, session_timeout_ms=2000, is_threaded=False)
    silent.claim(WAIT_MS)
    with lease_on(broker, name, wait_ms=FOR_EVER) as ben:
        assert ben.generation(name) == 2
        assert not silent.is_held
        lost = wait_for(silent, ClaimState.LOST)
        assert lost.reason is LossReason.SESSION_TIMED_OUT
    silent.close()
