"""The compiled load generator: its percentiles, its checks, and loads on a real broker."""

from __future__ import annotations

import functools
import math
import random
import re
import shutil
import socket
import threading
from collections.abc import Callable

import pytest

from benchmarks import load_generator
from benchmarks.load_error import LoadError
from benchmarks.load_generator import LoadGroup, LoadPlan, LoadResult, summarize
from benchmarks.raw_client import batch_of, fetch_frame, produce_frame
from benchmarks.targets import Target, create_topic
from holdfast_log.coordinator.tools.zookeeper_process import HOST, free_port
from holdfast_log.protocol.frames import SIZE
from tests.cluster import BackgroundBroker, Cluster

RECORDS = 4
BATCH = batch_of(RECORDS, 500)
pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="the load generator needs a C compiler"
)
loaded = functools.partial(LoadGroup, batch_bytes=len(BATCH), batch_records=RECORDS)
"""Connections whose requests are about such batches."""
patient = functools.partial(LoadPlan, silence_s=300.0)
"""A plan that does not fail because a broker is late."""


@pytest.fixture(scope="module")
def broker(cluster_of_module: Cluster) -> BackgroundBroker:
    return cluster_of_module.start(properties={"zookeeper.session.timeout.ms": "60000"})[0]


def runs_until(
    is_enough: Callable[[LoadResult], bool], plan: Callable[[float], LoadPlan]
) -> list[LoadResult]:
    """The results of runs, each four times as long as the one before, up to the first that is enough: where
    all answers are late, a short run has none in its counted time."""
    results = []
    seconds = 0.2
    while not results or not is_enough(results[-1]):
        assert seconds < 300
        results.append(load_generator.run(plan(seconds)))
        seconds *= 4
    return results


def at(broker: BackgroundBroker) -> tuple[str, int]:
    return broker.host, broker.port


def made(broker: BackgroundBroker, topic: str, partitions: int = 1) -> str:
    create_topic(Target("holdfast", broker.address), topic, partitions)
    return topic


def test_a_change_of_any_part_of_the_generator_builds_it_anew() -> None:
    sources = [load_generator.SOURCE.with_name(name) for name in load_generator.PARTS]
    included = {name for source in sources for name in re.findall(r'#include "(.+)"', source.read_text())}

    assert included == set(load_generator.PARTS) - {load_generator.SOURCE.name}


def test_percentiles_are_never_too_low_and_less_than_a_hundredth_too_high() -> None:
    chance = random.Random(1)
    samples = [int(chance.lognormvariate(13, 3)) for _ in range(20_000)]

    found = summarize(samples)

    ordered = sorted(samples)
    for share, ms in ((0.5, found.p50_ms), (0.9, found.p90_ms), (0.99, found.p99_ms), (0.999, found.p999_ms)):
        exact = ordered[math.ceil(share * len(ordered)) - 1] / 1e6
        assert exact * 0.999999 - 1e-6 <= ms <= exact * 1.01 + 1e-6
    assert found.max_ms == pytest.approx(ordered[-1] / 1e6, abs=1e-6)
    assert found.count == len(samples)


def test_one_slow_request_in_a_hundred_is_above_the_99th_percentile() -> None:
    found = summarize([1_000_000] * 99 + [50_000_000])

    assert (found.p50_ms, found.p99_ms) == pytest.approx((1.0, 1.0), rel=0.01)
    assert (found.p999_ms, found.max_ms) == pytest.approx((50.0, 50.0), rel=0.01)


def test_every_produced_batch_and_no_other_is_in_the_log(broker: BackgroundBroker) -> None:
    topic = made(broker, "produced", 2)
    frames = [produce_frame(topic, number, BATCH, acks=-1) for number in range(2)]
    group = loaded("load", "closed", at(broker), 3, topic, frames, in_flight=4)

    loads = runs_until(
        lambda load: load.groups["load"].requests > 0 and load.broker_cpu_seconds > 0,
        lambda seconds: patient([group], seconds, 0.1, [broker.pid]),
    )

    done = loads[-1].groups["load"]
    assert 0 < done.requests <= done.requests_total - 1
    assert done.bytes == done.requests * len(BATCH)
    target = Target("holdfast", broker.address)
    total = sum(load.groups["load"].requests_total for load in loads)
    assert load_generator.end_offsets(target, topic, 2) == total * RECORDS


def test_paced_requests_are_all_sent_and_their_latency_counts_from_when_they_were_due(
    broker: BackgroundBroker,
) -> None:
    topic = made(broker, "paced")
    group = loaded("load", "paced", at(broker), 2, topic, [produce_frame(topic, 0, BATCH)], rate=200)

    done = load_generator.run(patient([group], 0.5)).groups["load"]

    assert done.requests_total == 100
    assert done.latency.count == 100
    assert done.latency.max_ms >= done.lateness.p50_ms


def test_paused_time_of_a_broker_is_in_the_latencies_of_all_requests_that_were_due_then() -> None:
    """A server that answers nothing for 0.3 s, and then everything: a generator that waits for answers
    before it sends would count one slow request."""
    topic, rate, pause_s = "t", 1000, 0.3
    answer = b"".join(
        [
            (1).to_bytes(4), len(topic).to_bytes(2), topic.encode(), (1).to_bytes(4), bytes(4), bytes(2),
            bytes(8 + 8 + 8 + 4 + 2 + 4),
        ]
    )  # fmt: skip
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            waited = False
            with connection, connection.makefile("rb") as requests:
                while head := requests.read(SIZE.size):
                    request = requests.read(SIZE.unpack(head)[0])
                    if not waited:
                        waited = not threading.Event().wait(pause_s)
                    connection.sendall(SIZE.pack(4 + len(answer)) + request[4:8] + answer)

        threading.Thread(target=serve, daemon=True).start()
        frames = [produce_frame(topic, 0, BATCH)]
        address = (HOST, server.getsockname()[1])
        group = loaded("load", "paced", address, 1, topic, frames, rate=rate)
        done = load_generator.run(patient([group], 0.5)).groups["load"]

    assert done.latency.count == 500
    # 300 of 500 requests were due within the pause, and 200 of these waited for 100 ms and longer.
    assert done.latency.p99_ms > 250
    assert done.latency.p90_ms > 100
    assert done.longest_pause_ms > 250


def test_fetches_tails_and_catching_up_consumers_receive_what_was_written(broker: BackgroundBroker) -> None:
    topic = made(broker, "read")
    fetch = fetch_frame(topic, 0, 1 << 20, max_wait_ms=500)
    appends = loaded("appends", "paced", at(broker), 1, topic, [produce_frame(topic, 0, BATCH)], rate=100)
    tails = loaded("tails", "tail", at(broker), 5, topic, [fetch], is_fetch=True)
    delivered = load_generator.run(patient([tails, appends], 0.4))
    written = delivered.groups["appends"].requests_total

    assert written == 40
    assert delivered.groups["tails"].latency.count == 5 * written
    assert delivered.groups["tails"].latency.p50_ms > 0

    end = written * RECORDS
    readers = loaded("readers", "catch_up", at(broker), 3, topic, [fetch], is_fetch=True, end=end)
    caught_up = load_generator.run(patient([readers], 300)).groups["readers"]
    assert (caught_up.finished, caught_up.batches) == (3, 3 * written)

    frames = [fetch_frame(topic, number * RECORDS, len(BATCH)) for number in range(10)]
    idle = LoadGroup("idle", "idle", at(broker), 7)
    fetches = loaded("fetches", "closed", at(broker), 2, topic, frames, is_fetch=True, in_flight=4)
    for discard in (False, True):
        plan = functools.partial(patient, [fetches, idle], discard=discard)
        fetched = runs_until(lambda load: load.groups["fetches"].requests > 0, plan)[-1].groups["fetches"]
        assert fetched.bytes == fetched.requests * len(BATCH) > 0


def test_groups_of_one_name_have_one_result_with_the_sum_of_all(broker: BackgroundBroker) -> None:
    topic = made(broker, "summed", 3)
    groups = [
        loaded(
            "load", "paced", at(broker), number, topic, [produce_frame(topic, number - 1, BATCH)], rate=rate
        )
        for number, rate in ((1, 20), (2, 50), (3, 100))
    ]

    done = load_generator.run(patient(groups, 0.5)).groups["load"]

    assert done.connections == 6
    assert done.requests_total == 10 + 25 + 50
    assert done.latency.count == done.requests == 85
    assert done.bytes == done.requests * len(BATCH)
    assert load_generator.end_offsets(Target("holdfast", broker.address), topic, 3) == 85 * RECORDS


@pytest.mark.parametrize(
    ("partition", "message"), [(7, "the broker answered with error 3"), (0, "holds no whole batch")]
)
def test_an_answer_other_than_expected_fails_the_run(
    broker: BackgroundBroker, partition: int, message: str
) -> None:
    topic = f"refused-{partition}"
    made(broker, topic)
    frame = fetch_frame(topic, 0, 1 << 20, partition=partition)
    group = loaded("load", "closed", at(broker), 1, topic, [frame], is_fetch=True)

    with pytest.raises(LoadError, match=message):
        load_generator.run(patient([group], 0.2))


def test_a_broker_that_is_not_there_fails_the_run() -> None:
    group = LoadGroup("load", "idle", (HOST, free_port()), 1)

    with pytest.raises(LoadError, match="Connection refused"):
        load_generator.run(patient([group], 0.2))


def test_a_broker_that_falls_silent_fails_the_run() -> None:
    frames = [produce_frame("t", 0, BATCH)]
    with socket.create_server((HOST, 0)) as server:
        group = loaded("load", "closed", (HOST, server.getsockname()[1]), 1, "t", frames)

        with pytest.raises(LoadError, match="no answer for 0"):
            load_generator.run(LoadPlan([group], 300, silence_s=0.2))
