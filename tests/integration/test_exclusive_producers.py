"""Exclusive producers (PIP-68) against a real broker: each test covers a sentence of PIP-68."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.errors import ClosedError, ConfigError, RequestTimeoutError, UndeliveredError
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
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode
from tests.integration import clients
from tests.integration.programs import HOME
from tests.integration.waiting import until
from tests.models.cuttable import CuttableNetwork

WAIT_MS = 60_000
SESSION_MS = 60_000
"""So long that an owner keeps its topic on a machine that stands still for a while."""
EXCLUSIVE = ProducerAccessMode.EXCLUSIVE
FENCING = ProducerAccessMode.EXCLUSIVE_WITH_FENCING
SHARED = ProducerAccessMode.SHARED
WAITING = ProducerAccessMode.WAIT_FOR_EXCLUSIVE
_topics = itertools.count(1)


@pytest.fixture
def topic(broker: BackgroundBroker) -> str:
    """A topic with one partition."""
    topic = f"topic-{next(_topics)}"
    clients.create_topic(broker.address, topic)
    return topic


def producer_on(
    broker: BackgroundBroker, topic: str, mode: ProducerAccessMode = EXCLUSIVE, **options: Any
) -> ExclusiveProducer:
    given = {"session_timeout_ms": SESSION_MS, **options}
    return ExclusiveProducer({"bootstrap.servers": broker.address}, topic, mode, **given)


def write(producer: Producer, topic: str, value: str) -> int:
    """Send a message. Returns its offset."""
    response = producer.send(Message(topic, value=value))
    with suppress(UndeliveredError):
        producer.flush(WAIT_MS)
    return response.result(0).offset


def test_exclusive_access_fails_at_once_while_a_producer_is_connected(
    broker: BackgroundBroker, topic: str
) -> None:
    with producer_on(broker, topic) as anna:
        assert (anna.epoch(), anna.fence_offset(), anna.has_access) == (1, 0, True)
        with pytest.raises(OwnershipRefusedError) as refused:
            producer_on(broker, topic)
        assert refused.value.code is ErrorCode.RESOURCE_OWNED
        assert write(anna, topic, "a") == 0
    with producer_on(broker, topic) as ben:
        assert (ben.epoch(), ben.fence_offset()) == (2, 1)


def test_other_producers_fail_at_once_beside_an_exclusive_one(broker: BackgroundBroker, topic: str) -> None:
    with producer_on(broker, topic), Producer({"bootstrap.servers": broker.address}) as stock:
        with pytest.raises(PolicyViolationError):
            write(stock, topic, "no")
        with pytest.raises(OwnershipRefusedError):
            producer_on(broker, topic, SHARED)


def test_a_waiting_producer_is_promoted_when_the_exclusive_one_closes(
    broker: BackgroundBroker, topic: str
) -> None:
    """ "Suspend the producer creation until we can be promoted to be exclusive"."""
    events: list[OwnershipEvent] = []
    anna = producer_on(broker, topic)
    ben = producer_on(broker, topic, WAITING, is_waiting=False, on_ownership=events.append)
    until(lambda: bool(events))  # The claim is in the queue.
    with pytest.raises(RequestTimeoutError):
        producer_on(broker, topic, WAITING, timeout_ms=500)
    early = ben.send(Message(topic, value="b"))
    assert write(anna, topic, "a") == 0
    assert not ben.has_access and not early.done

    anna.close()

    ben.claim(WAIT_MS)
    assert early.result(WAIT_MS).offset == 1
    assert (ben.epoch(), ben.fence_offset()) == (2, 1)
    ben.close()
    assert [event.state for event in events] == [
        ClaimState.QUEUED, ClaimState.HELD, ClaimState.RELEASED
    ]  # fmt: skip


def test_the_constructor_of_a_waiting_producer_returns_when_the_exclusive_one_closes(
    broker: BackgroundBroker, topic: str
) -> None:
    events: queue.Queue[OwnershipEvent] = queue.Queue()
    anna = producer_on(broker, topic)
    with ThreadPoolExecutor() as pool:
        constructed = pool.submit(
            producer_on, broker, topic, WAITING, timeout_ms=2 * WAIT_MS, on_ownership=events.put
        )
        assert events.get(timeout=WAIT_MS / 1000).state is ClaimState.QUEUED
        anna.close()
        ben = constructed.result(WAIT_MS / 1000)
    assert (ben.has_access, write(ben, topic, "b")) == (True, 0)
    ben.close()


def test_a_waiting_producer_is_promoted_when_the_last_shared_one_leaves(
    broker: BackgroundBroker, topic: str
) -> None:
    shared = [producer_on(broker, topic, SHARED) for _ in range(2)]
    assert [write(each, topic, "s") for each in shared] == [0, 1]
    assert shared[0].epoch() is None
    waiting = producer_on(broker, topic, WAITING, is_waiting=False)
    with pytest.raises(RequestTimeoutError):
        waiting.claim(200)

    shared[0].close()
    with pytest.raises(RequestTimeoutError):
        waiting.claim(200)
    shared[1].close()

    waiting.claim(WAIT_MS)
    assert write(waiting, topic, "w") == 2
    waiting.close()


def test_a_fenced_producer_gets_producer_fenced_for_every_later_message(
    broker: BackgroundBroker, topic: str
) -> None:
    anna = producer_on(broker, topic)
    write(anna, topic, "a")

    with producer_on(broker, topic, FENCING) as ben:
        assert ben.epoch() == 2
        with pytest.raises(ProducerFencedError):
            write(anna, topic, "late")
        with pytest.raises(ProducerFencedError):
            anna.send(Message(topic, value="later"))
        assert not anna.has_access
        assert write(ben, topic, "b") == 1
    anna.close()
    with pytest.raises((ProducerFencedError, ClosedError)):
        anna.send(Message(topic, value="after all"))


def test_a_producer_whose_connection_breaks_resumes_without_loss_or_duplicates(
    broker: BackgroundBroker, topic: str
) -> None:
    network = CuttableNetwork()
    states: list[ClaimState] = []
    with producer_on(
        broker, topic, network=network, on_ownership=lambda event: states.append(event.state)
    ) as anna:
        responses = []
        for number in range(300):
            responses.append(anna.send(Message(topic, value=str(number))))
            if number % 100 == 50:
                anna.flush()
                responses.append(anna.send(Message(topic, value="cut")))
                network.cut()
        assert [each.result(WAIT_MS).offset for each in responses] == list(range(303))
        assert anna.epoch() == 1
    assert states.count(ClaimState.DETACHED) >= 3


def test_a_producer_silent_beyond_its_session_is_fenced_by_the_next_one(
    broker: BackgroundBroker, topic: str
) -> None:
    """ "If the producer experiences a network partition with the broker … this producer will be evicted"."""
    sleeper = producer_on(broker, topic, session_timeout_ms=5000, is_threaded=False)
    write(sleeper, topic, "a")

    with producer_on(broker, topic, WAITING, timeout_ms=WAIT_MS) as ben:
        assert ben.fence_offset() == 1
        with pytest.raises(ProducerFencedError):
            write(sleeper, topic, "late")
        assert write(ben, topic, "b") == 1


def test_access_is_granted_to_a_whole_topic_or_to_chosen_partitions(broker: BackgroundBroker) -> None:
    clients.create_topic(broker.address, "wide", partitions=3)
    with producer_on(broker, "wide", partitions=[1]) as anna:
        with pytest.raises(OwnershipRefusedError):
            producer_on(broker, "wide")
        placed = [anna.send(Message("wide", value="x")).result(WAIT_MS).partition for _ in range(3)]
        assert placed == [1, 1, 1]
        with pytest.raises(ValueError, match="wide-0"):
            anna.send(Message("wide", partition=0))
        with pytest.raises(ValueError, match="other"):
            anna.send(Message("other"))
    with producer_on(broker, "wide") as ben:
        placed = [ben.send(Message("wide", value="x")).result(WAIT_MS).partition for _ in range(6)]
        assert placed == [0, 1, 2, 0, 1, 2]
        assert ben.send_many("wide", ["x"] * 10).result(WAIT_MS) is not None
        assert (ben.epoch(0), ben.epoch(1)) == (2, 2)


def test_an_exclusive_producer_requires_acks_all(broker: BackgroundBroker) -> None:
    with pytest.raises(ConfigError, match="acks=all"):
        ExclusiveProducer({"bootstrap.servers": broker.address, "acks": "1"}, "any")


LEADER_WAIT_MS = 2_000
LEADER = """
import sys
from holdfast_log import (
    ExclusiveProducer, Message, ProducerAccessMode, ProducerFencedError, RequestTimeoutError,
)

address, topic, wait_ms, patience_ms = sys.argv[1:]
producer = ExclusiveProducer(
    {"bootstrap.servers": address}, topic, ProducerAccessMode.EXCLUSIVE, session_timeout_ms=1500
)
try:
    while True:
        try:
            producer.send(Message(topic, value="I lead")).result(timeout_ms=int(wait_ms))
        except RequestTimeoutError as error:
            try:  # A busy machine may take longer, but not while somebody else leads.
                producer.send(Message(topic, value="I lead")).result(timeout_ms=int(patience_ms))
            except ProducerFencedError:
                raise error
        print("written", flush=True)
except Exception as error:
    print(type(error).__name__, flush=True)
"""


def test_a_leader_that_was_stopped_learns_in_result_that_it_is_fenced(
    broker: BackgroundBroker, topic: str
) -> None:
    """Its wait has run out when it goes on, and the refusal of the broker is not read yet."""
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, broker.address, topic, str(LEADER_WAIT_MS), str(WAIT_MS)],
        cwd=HOME,
        env={**os.environ, "PYTHONPATH": str(HOME)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert leader.stdout is not None
    assert leader.stdout.readline() == "written\n"
    leader.send_signal(signal.SIGSTOP)
    with producer_on(broker, topic, FENCING) as successor:
        successor.send(Message(topic, value="now I lead")).result(WAIT_MS)
        time.sleep(2 * LEADER_WAIT_MS / 1000)  # Longer than the leader's wait for its last message.
        leader.send_signal(signal.SIGCONT)
        *_, last = leader.communicate(timeout=WAIT_MS / 1000)[0].splitlines()
    assert last == "ProducerFencedError"
