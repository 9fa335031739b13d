"""Single readers (own API) against a real broker."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.clients.exclusive_consumer import ExclusiveConsumer
from holdfast_log.clients.ownership.claim import FOR_EVER
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.protocol.errors import OwnershipFencedError, OwnershipRefusedError
from holdfast_log.protocol.topic_partition import TopicPartition
from tests.integration import clients
from tests.models.cuttable import CuttableNetwork

WAIT_MS = 60_000
TURN_MS = 200
SESSION_MS = 60_000
"""So long that an owner keeps its partition on a machine that stands still for a while."""
_topics = itertools.count(1)


@pytest.fixture
def log(broker: BackgroundBroker) -> TopicPartition:
    """A partition with four records, which only its owner may read."""
    topic = f"log-{next(_topics)}"
    clients.create_topic(broker.address, topic, config={"single.reader": "required"})
    clients.produce(broker.address, topic, [b"a", b"b", b"c", b"d"])
    return TopicPartition(topic, 0)


def reader_on(
    broker: BackgroundBroker, log: TopicPartition, properties: dict[str, Any] | None = None, **options: Any
) -> ExclusiveConsumer:
    given = {"bootstrap.servers": broker.address, "auto.offset.reset": "earliest", **(properties or {})}
    return ExclusiveConsumer(given, "app", [log], session_timeout_ms=SESSION_MS, **options)


def read(reader: ExclusiveConsumer, count: int) -> list[bytes]:
    """Read the next `count` records. Returns their values."""
    values: list[bytes] = []
    while len(values) < count:
        values += [record.value for record in reader.poll(WAIT_MS, count - len(values))]
    return values


def test_a_standby_reads_nothing_until_granted_and_then_starts_at_the_committed_offset(
    broker: BackgroundBroker, log: TopicPartition
) -> None:
    group = {"group.id": f"of-{log.topic}", "enable.auto.commit": False}
    standby = reader_on(broker, log, group, wait_ms=FOR_EVER)
    with reader_on(broker, log, group) as anna:
        assert read(anna, 3) == [b"a", b"b", b"c"]
        assert standby.poll(TURN_MS) == [] and not standby.is_owner
        with reader_on(broker, log) as refused, pytest.raises(OwnershipRefusedError):
            read(refused, 1)
        anna.commit()

    assert read(standby, 1) == [b"d"]
    assert (standby.is_owner, standby.generation(log)) == (True, 2)
    standby.close()


def test_a_reader_that_lost_its_partition_reads_and_commits_nothing(
    broker: BackgroundBroker, log: TopicPartition
) -> None:
    events: list[OwnershipEvent] = []
    group = {"group.id": f"of-{log.topic}", "enable.auto.commit": False}
    anna = reader_on(broker, log, group, on_ownership=events.append)
    assert read(anna, 2) == [b"a", b"b"]
    with reader_on(broker, log, generation=1) as ben:
        assert read(ben, 1) == [b"a"]
        with pytest.raises(OwnershipFencedError):
            while True:
                anna.poll(TURN_MS)
        assert [event.state for event in events][-1] is ClaimState.LOST
        assert events[-1].generation == 2
        with pytest.raises(OwnershipFencedError):
            anna.poll(0)
        with pytest.raises(OwnershipFencedError):
            anna.commit()
        assert anna.committed([log]) == {log: None}
        assert read(ben, 3) == [b"b", b"c", b"d"]
    anna.close()


def test_a_reader_resumes_after_its_connection_breaks(broker: BackgroundBroker, log: TopicPartition) -> None:
    network = CuttableNetwork()
    with reader_on(broker, log, network=network) as anna:
        assert read(anna, 1) == [b"a"]
        network.cut()
        clients.produce(broker.address, log.topic, [b"e"])
        assert read(anna, 4) == [b"b", b"c", b"d", b"e"]
        assert anna.generation(log) == 1
