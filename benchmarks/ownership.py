"""Measures what ownership and conditional appends cost: python -m benchmarks.ownership --help.

Measures, on one broker with ZooKeeper: the throughput that `single.writer=required` costs a producer, and
that an expected offset costs single appends; the rates of conditional appends and of claims, each written to
ZooKeeper before it is answered; and the time from an owner's kill until the next process owns its topic. Ends
with one line of JSON.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from benchmarks import ownership_pairs
from benchmarks.ownership_pairs import VALUE
from benchmarks.results import percentiles, print_json, print_table
from holdfast_log.broker.tools.local_cluster import LocalCluster
from holdfast_log.clients.admin import Admin, NewTopic
from holdfast_log.clients.connection.connection import ANY_NODE, Connection
from holdfast_log.clients.connection.link import Call
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.groups.coordinator import coordinator_in, find_coordinator_request
from holdfast_log.clients.message import Message
from holdfast_log.clients.ownership.claim_requests import (
    OwnDialect,
    RequestKind,
    ResourceRequest,
    standings_in,
)
from holdfast_log.clients.ownership.events import ClaimState, OwnershipEvent
from holdfast_log.clients.producer import Producer
from holdfast_log.clients.sending.responses import SendResponse
from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.protocol.errors import BrokerError, error_for
from holdfast_log.protocol.messages.producer_access import ProducerAccessMode

HOME = Path(__file__).parents[1]
SESSION_MS = 60_000
WAIT_S = 60.0


@click.command()
@click.option(
    "--rounds", default=30, show_default=True, help="Rounds of two runs with a rule and two without it."
)
@click.option(
    "--records",
    default=200_000,
    show_default=True,
    help="Records of 100 bytes written in each run of a rule.",
)
@click.option("--only-rules", is_flag=True, help="Measure only the cost of the rules.")
@click.option(
    "--seconds", default=2.0, show_default=True, help="Seconds of each measurement of appends or claims."
)
@click.option("--pipeline", default=200, show_default=True, help="Conditional appends, or claims, in flight.")
@click.option("--kills", default=20, show_default=True, help="Number of owners that are killed.")
def main(rounds: int, records: int, only_rules: bool, seconds: float, pipeline: int, kills: int) -> None:
    """Measure the cost of ownership on a broker started for the benchmark."""
    with _cluster() as cluster:
        bootstrap = cluster.bootstrap
        report: dict[str, Any] = {"benchmark": "ownership"}
        report |= _rules(bootstrap, cluster.brokers[0].pid, rounds, records)
        if not only_rules:
            report["conditional_appends_per_second"] = {
                "one_in_flight": _conditional(bootstrap, "single", 1, seconds),
                "pipelined": _conditional(bootstrap, "pipelined", pipeline, seconds),
            }
            report["claims_per_second"] = {
                "one_in_flight": _claims(bootstrap, "one", 1, seconds),
                "pipelined": _claims(bootstrap, "many", pipeline, seconds),
            }
            report["takeover_ms"] = _takeovers(bootstrap, kills)
            _print(report)
    print_json(report)


@contextlib.contextmanager
def _cluster() -> Iterator[LocalCluster]:
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-benchmark-") as directory,
        LocalCluster(directory) as cluster,
    ):
        yield cluster


def _create(bootstrap: str, topic: str, **configs: str) -> None:
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        given = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topics([NewTopic(topic, 1, 1, configs=given)])


# What rules cost --------------------------------------------------------------------------------------


def _rules(bootstrap: str, broker_pid: int, rounds: int, records: int) -> dict[str, Any]:
    _create(bootstrap, "free", single_writer="off")
    _create(bootstrap, "owned", single_writer="required")
    _create(bootstrap, "unconditional", single_writer="off")
    _create(bootstrap, "conditional", single_writer="off")
    found = {
        "single_writer": ownership_pairs.one_writer(bootstrap, broker_pid, rounds, records),
        "expected_offset": ownership_pairs.one_condition(bootstrap, broker_pid, rounds),
    }
    names = {
        "single_writer": "produce, single.writer=required",
        "expected_offset": "appends one by one, at an expected offset",
    }
    rows = [
        [
            names[rule],
            f"{comparison.plain_per_second:,}/s",
            f"{comparison.ruled_per_second:,}/s",
            str(comparison.throughput),
            str(comparison.processor),
        ]
        for rule, comparison in found.items()
    ]
    headings = ("rule", "without", "with", "throughput with over without", "broker's processor time")
    print_table(f"What rules cost: medians of {rounds} rounds, with their 95 % intervals", headings, rows)
    return {rule: comparison.summary() for rule, comparison in found.items()}


# Conditions -------------------------------------------------------------------------------------------


def _conditional(bootstrap: str, topic: str, under_way_max: int, seconds: float) -> int:
    """Rate of appends of one record with an expected offset, per second."""
    _create(bootstrap, topic)
    under_way: deque[SendResponse] = deque()
    offset = 0
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            under_way.append(producer.send_at(offset, Message(topic, value=VALUE, partition=0)))
            offset += 1
            if len(under_way) >= under_way_max:
                under_way.popleft().result()
        for response in under_way:
            response.result()
        return round(offset / (time.perf_counter() - began))


# Claims -----------------------------------------------------------------------------------------------


def _claims(bootstrap: str, group: str, under_way_max: int, seconds: float) -> int:
    """Rate of claims of new names, per second. The broker writes each to ZooKeeper before it answers."""
    dialect = OwnDialect(group, "claimant", SESSION_MS)
    with Connection(bootstrap) as connection:
        node = _coordinator(connection, group)
        granted = asked = 0
        calls: list[Call] = []
        began = time.perf_counter()
        while time.perf_counter() - began < seconds or granted < asked:
            while time.perf_counter() - began < seconds and asked - granted < under_way_max:
                name = f"name-{asked}"
                calls.append(
                    Call(
                        node, dialect.claim([ResourceRequest(RequestKind.CLAIM, name)], SESSION_MS), tag=name
                    )
                )
                asked += 1
            for reply in connection.poll(1000, *calls):
                if reply.response is None:
                    raise reply.error or AssertionError("a claim got neither a response nor an error")
                (standing,) = standings_in(reply.response, [reply.call.tag])
                if standing.error_code:
                    raise error_for(standing.error_code, standing.error_message)
                granted += 1
            calls = []
        return round(granted / (time.perf_counter() - began))


def _coordinator(connection: Connection, group: str) -> int:
    """The coordinator of a group, once it has loaded the group."""
    dialect = OwnDialect(group, "claimant", SESSION_MS)
    deadline = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(BrokerError):
            node = coordinator_in(connection.ask(ANY_NODE, find_coordinator_request(group))).node
            response = connection.ask(
                node, dialect.claim([ResourceRequest(RequestKind.CLAIM, "first")], SESSION_MS)
            )
            (standing,) = standings_in(response, ["first"])
            if standing.error_code == 0:
                return node
        if time.monotonic() > deadline:
            raise TimeoutError(f"group {group} has had no coordinator for {WAIT_S:.0f} s")
        time.sleep(0.05)


# Take-overs -------------------------------------------------------------------------------------------


def _takeovers(bootstrap: str, kills: int) -> dict[str, float]:
    """Time in ms from kill -9 of the owner until the next process is notified that it owns the topic. The
    system closes the connections of a killed process at once, which notifies the broker."""
    _create(bootstrap, "contended")
    samples_ms = [_takeover(bootstrap) for _ in range(kills)]
    found = percentiles(samples_ms)
    return {"p50": round(found.p50_ms, 1), "p99": round(found.p99_ms, 1), "count": kills}


def _takeover(bootstrap: str) -> float:
    is_queued, is_held = threading.Event(), threading.Event()

    def follow(event: OwnershipEvent) -> None:
        (is_queued if event.state is ClaimState.QUEUED else is_held).set()

    holder = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.ownership_holder", bootstrap, "contended"],
        cwd=HOME,
        stdout=subprocess.PIPE,
        preexec_fn=die_with_parent,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with ExclusiveProducer(
            {"bootstrap.servers": bootstrap},
            "contended",
            ProducerAccessMode.WAIT_FOR_EXCLUSIVE,
            is_waiting=False,
            on_ownership=follow,
        ):
            assert is_queued.wait(WAIT_S)
            began = time.perf_counter()
            holder.kill()
            assert is_held.wait(WAIT_S)
            return (time.perf_counter() - began) * 1000
    finally:
        holder.kill()
        holder.wait()


def _print(report: dict[str, Any]) -> None:
    appends, claims = report["conditional_appends_per_second"], report["claims_per_second"]
    takeover = report["takeover_ms"]
    rows = [
        ["conditional appends, one in flight", f"{appends['one_in_flight']:,}/s"],
        ["conditional appends, pipelined", f"{appends['pipelined']:,}/s"],
        ["claims, one in flight", f"{claims['one_in_flight']:,}/s"],
        ["claims, pipelined", f"{claims['pipelined']:,}/s"],
        ["take-over after kill -9", f"p50 {takeover['p50']} ms, p99 {takeover['p99']} ms"],
    ]
    print_table("Ownership on one broker", ("", "measured"), rows)


if __name__ == "__main__":
    main()
