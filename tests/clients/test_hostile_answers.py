"""Clients of brokers that answer at random, by seed: each call ends by its deadline, with a result or an
error of the client's own, without a busy loop, in little memory, and the client closes.

    HOLDFAST_HOSTILE_SEEDS=1000 python -m pytest tests/clients/test_hostile_answers.py

runs so many seeds of each client.
"""

from __future__ import annotations

import logging
import os
import random
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.errors import ClientError
from holdfast_log.clients.message import Message
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.topic_partition import TopicPartition
from holdfast_log.testing.fakes.fake_cluster import FakeCluster
from tests.clients.hostile_broker import HostileBrokers
from tests.clients.test_consumer import fill

SEEDS = int(os.environ.get("HOLDFAST_HOSTILE_SEEDS", "8"))
FIRST_SEED = int(os.environ.get("HOLDFAST_FIRST_HOSTILE_SEED", "0"))
REQUESTS_MAX = 3_000
"""More answers than any client may have asked for in the minutes of a run."""
OVERRUN_MS = 2_500
"""How long a call may take beyond its deadline, on the clock of the cluster: an attempt that was begun."""
GROWTH_MIB = 300
FLIGHTS = TopicPartition("flights", 0)
PATIENCE = {"request.timeout.ms": 2_000, "default.api.timeout.ms": 6_000}


class Run:
    """A fake cluster that has turned hostile, and calls with deadlines."""

    def __init__(self, seed: int) -> None:
        self.cluster = FakeCluster(brokers=2)
        (partition,) = self.cluster.add_topic("flights")
        fill(partition, 20)
        self.cluster.add_topic("other", 2)
        self.brokers = HostileBrokers(self.cluster, seed, REQUESTS_MAX)
        self.rng = random.Random(seed)

    def call(self, what: Callable[[], Any], timeout_ms: int) -> Any:
        """What a call returns; None if it raises an error of a client or broker. It may take `timeout_ms`."""
        began_ms = self.cluster.time_ms
        try:
            return what()
        except (ClientError, BrokerError):
            return None
        finally:
            took_ms = self.cluster.time_ms - began_ms
            assert took_ms <= timeout_ms + OVERRUN_MS, f"{took_ms} ms instead of {timeout_ms}"


def of_producer(run: Run) -> None:
    properties = {
        "delivery.timeout.ms": 5_000, "request.timeout.ms": 2_000, "linger.ms": 0, "max.block.ms": 3_000,
        "enable.idempotence": run.rng.random() < 0.7,
    }  # fmt: skip
    producer = run.cluster.producer(properties)
    for number in range(6):
        topic = "flights" if run.rng.random() < 0.7 else "other"
        response = run.call(partial(producer.send, Message(topic, value=f"value {number}")), 3_000)
        if response is not None:
            run.call(response.result, 5_000)
    run.call(lambda: producer.flush(3_000), 5_000)
    run.call(lambda: producer.close(3_000), 3_000)


def of_reader(run: Run) -> None:
    consumer = run.cluster.consumer({**PATIENCE, "auto.offset.reset": "earliest"})
    consumer.add_topic("flights", 0)
    consumer.add_topic("other")
    for _ in range(6):
        run.call(lambda: consumer.poll(1_000), 1_000)
    run.call(lambda: consumer.position(FLIGHTS), 6_000)
    run.call(lambda: consumer.seek_to_end(FLIGHTS), 6_000)
    run.call(lambda: consumer.poll(1_000), 1_000)
    run.call(consumer.close, 3_000)


def of_member(run: Run) -> None:
    protocol = run.rng.choice(("classic", "consumer", "managed"))
    properties = {**PATIENCE, "group.id": "g", "group.protocol": protocol, "auto.offset.reset": "earliest"}
    if protocol == "classic":
        properties["session.timeout.ms"] = 6_000
        properties["heartbeat.interval.ms"] = 1_000
    consumer = run.cluster.consumer(properties)
    consumer.add_topic("flights")
    consumer.add_topic("other")
    for _ in range(6):
        run.call(lambda: consumer.poll(1_500), 1_500)
        run.call(lambda: consumer.commit(), 6_000)
    run.call(lambda: consumer.committed([FLIGHTS]), 6_000)
    run.call(consumer.close, 30_000)


def of_admin(run: Run) -> None:
    properties = {"bootstrap.servers": run.cluster.bootstrap, **PATIENCE}
    admin = run.call(lambda: Admin(properties, network=run.cluster.network(), rng=run.rng), 6_000)
    calls: list[Callable[[], Any]] = [
        lambda: admin.list_topics(),
        lambda: admin.create_topics([NewTopic("new", 1, 1)]),
        lambda: admin.describe_topics(["flights", "other"]),
        lambda: admin.create_partitions({"other": 3}),
        lambda: admin.list_offsets({FLIGHTS: -1}),
        lambda: admin.alter_group_offsets("g", {FLIGHTS: 3}),
        lambda: admin.list_group_offsets("g", [FLIGHTS]),
        lambda: admin.list_groups(),
        lambda: admin.describe_groups(["g"]),
        lambda: admin.describe_consumer_groups(["g"]),
        lambda: admin.delete_group_offsets("g", [FLIGHTS]),
        lambda: admin.delete_groups(["g"]),
        lambda: admin.delete_topics(["other"]),
        lambda: admin.describe_cluster(),
    ]
    for each in run.rng.sample(calls, len(calls)):
        # A call that asks each leader or coordinator may ask for the cluster first: two deadlines.
        run.call(each, 2 * 6_000)
    run.call(admin.close, 1_000)


def of_exclusive_producer(run: Run) -> None:
    properties = {"delivery.timeout.ms": 5_000, "request.timeout.ms": 2_000, "max.block.ms": 3_000}
    producer = run.call(lambda: run.cluster.exclusive_producer("flights", properties), 60_000)
    if producer is None:
        return
    for number in range(4):
        response = run.call(partial(producer.send, Message("flights", value=f"value {number}")), 3_000)
        if response is not None:
            run.call(response.result, 5_000)
    run.call(producer.close, 30_000)


CLIENTS = [of_producer, of_reader, of_member, of_admin, of_exclusive_producer]


@contextmanager
def bounded_memory() -> Iterator[None]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH_MIB << 10


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__.removeprefix("of_"))
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_every_call_ends_in_time_whatever_brokers_answer(
    client: Callable[[Run], None], seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(seed)
    with bounded_memory(), caplog.at_level(logging.WARNING):
        client(run)
    assert run.brokers.ways.total() <= REQUESTS_MAX
    assert len(caplog.records) < REQUESTS_MAX
