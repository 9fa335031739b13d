"""Owners that are gone while a stock client writes, against a real broker."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.protocol.errors import ErrorCode, ProducerFencedError
from holdfast_log.protocol.messages.ownership import LossReason
from tests.integration import clients
from tests.models.cuttable import CuttableNetwork

WAIT_MS = 60_000
CUTS = 15


def values(broker: BackgroundBroker, topic: str, count: int) -> list[bytes]:
    return clients.consume(broker.address, topic, count)


def test_an_owner_that_slept_through_its_session_learns_that_a_stock_client_wrote(
    broker: BackgroundBroker, topic: str
) -> None:
    clients.create_topic(broker.address, topic)
    told: list[OwnershipEvent] = []
    owner = ExclusiveProducer(
        {"bootstrap.servers": broker.address},
        topic,
        session_timeout_ms=1500,
        is_threaded=False,
        on_ownership=told.append,
    )
    owner.send(Message(topic, value="mine"))
    owner.flush(WAIT_MS)
    # Nobody turns the owner's loop from here on: it is silent.
    generation = told[-1].generation  # An owner that was slow has claimed again before.
    refused = int(ErrorCode.POLICY_VIOLATION)
    deadline_s = time.monotonic() + WAIT_MS / 1000
    while clients.produce_error(broker.address, topic) == refused:
        assert time.monotonic() < deadline_s
    clients.produce(broker.address, topic, [b"y", b"z"])

    late = owner.send(Message(topic, value="late"))
    with pytest.raises(ProducerFencedError, match="from offset 1 on"):
        while not late.done:
            owner.turn(WAIT_MS)
        late.result()

    lost = told[-1]
    assert (lost.state, lost.reason) == (ClaimState.LOST, LossReason.FOREIGN_APPEND)
    assert (lost.generation, lost.fence_offset, owner.has_access) == (generation + 1, 1, False)
    owner.close()
    assert values(broker, topic, 4) == [b"mine", b"x", b"y", b"z"]


def test_no_record_of_a_stock_client_lies_between_those_of_an_owner_whose_connection_is_cut(
    broker: BackgroundBroker, topic: str
) -> None:
    clients.create_topic(broker.address, topic)
    told: list[OwnershipEvent] = []
    network = CuttableNetwork()
    owner = ExclusiveProducer(
        {"bootstrap.servers": broker.address}, topic, network=network, on_ownership=told.append
    )
    written = itertools.count()
    has_ended = threading.Event()

    def write_as_a_stranger() -> None:
        while not has_ended.is_set():
            clients.produce_error(broker.address, topic)

    stranger = threading.Thread(target=write_as_a_stranger)
    stranger.start()
    sent = []
    try:
        with suppress(ProducerFencedError):
            for cuts in range(CUTS + 1):
                if cuts:  # What follows the last cut tells the owner, too, whether it has lost the topic.
                    network.cut()
                some = [Message(topic, value=f"mine {next(written)}") for _ in range(10)]
                sent += [owner.send(message) for message in some]
                sent[-1].result(WAIT_MS)
    finally:
        has_ended.set()
        stranger.join()
        with suppress(ProducerFencedError):
            owner.close()
    (end_offset,) = clients.produce(broker.address, topic, [b"end"])
    found = values(broker, topic, end_offset)
    mine = [place for place, value in enumerate(found) if value.startswith(b"mine")]
    assert mine == list(range(mine[0], mine[-1] + 1)), found
    acknowledged = [response for response in sent if response.done and response.error is None]
    assert len(mine) >= len(acknowledged)
    lost = [event for event in told if event.state is ClaimState.LOST]
    if b"x" in found:
        assert [event.reason for event in lost] == [LossReason.FOREIGN_APPEND]
        # An owner that is back before the stranger's first record is committed learns of no offset.
        assert lost[0].fence_offset in (None, mine[-1] + 1)
    else:
        assert lost == []


def test_a_librdkafka_producer_that_is_refused_at_one_partition_writes_to_a_free_one_at_once(
    broker: BackgroundBroker, topic: str
) -> None:
    """librdkafka takes TOPIC_AUTHORIZATION_FAILED for an error of the whole topic: it refuses to send to any
    partition of it until it has new metadata."""
    clients.create_topic(broker.address, topic, partitions=2)
    owner = ExclusiveProducer(
        {"bootstrap.servers": broker.address}, topic, partitions=[0], session_timeout_ms=WAIT_MS
    )
    idempotent = clients.Idempotent(broker.address)
    try:
        owner.send(Message(topic, value="mine", partition=0)).result(WAIT_MS)
        assert idempotent.write(topic, 1, b"x") is None

        refusal = idempotent.write(topic, 0, b"refused")

        assert idempotent.write(topic, 1, b"y") is None, "only one partition has refused the client"
        assert refusal is not None
        assert refusal.code() == ErrorCode.POLICY_VIOLATION
        owner.close()
        assert [idempotent.write(topic, 0, value) for value in (b"a", b"b")] == [None, None]
        assert idempotent.write(topic, 1, b"z") is None
    finally:
        owner.close()
    assert values(broker, topic, 3) == [b"mine", b"a", b"b"]
    assert clients.consume(broker.address, topic, 3, partition=1) == [b"x", b"y", b"z"]
