"""Measures what a rule costs clients that obey it, by the same load with the rule and without it, in turns.

Two rules: `single.writer=required`, under which the broker checks the writer of every batch, and an
expected offset, which it compares with the log's end (KIP-27). Each load is a fixed number of records, enough
to be measured, but few enough that other work on the machine affects both loads alike. Measured are the time
taken and the CPU time of the broker's reactor thread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.pairs import Ratio, in_turns, median_ratio
from benchmarks.targets import reactor_seconds
from holdfast_log.clients.exclusive_producer import ExclusiveProducer
from holdfast_log.clients.message import Message
from holdfast_log.clients.producer import Producer

VALUE = b"v" * 100
RECORDS_A_CALL = 10_000
APPENDS_A_RUN = 200


@dataclass(frozen=True, slots=True)
class Comparison:
    """Throughput with a rule over throughput without, and likewise of the broker's processor time."""

    throughput: Ratio
    processor: Ratio
    plain_per_second: int
    ruled_per_second: int

    def summary(self) -> dict[str, Any]:
        """The comparison for the JSON line."""
        return {
            "plain_per_second": self.plain_per_second,
            "ruled_per_second": self.ruled_per_second,
            **{
                f"{name}_ratio": {
                    "median": round(ratio.median, 3),
                    "low": round(ratio.low, 3),
                    "high": round(ratio.high, 3),
                    "rounds": ratio.rounds,
                }
                for name, ratio in (("throughput", self.throughput), ("processor", self.processor))
            },
        }


class _Load:
    """One of the two compared loads, and the times of its runs."""

    def __init__(self, run: Callable[[], object], broker_pid: int) -> None:
        self._run = run
        self._broker_pid = broker_pid
        self.seconds: list[float] = []
        self.processor: list[float] = []

    def __call__(self) -> float:
        busy, began = reactor_seconds(self._broker_pid), time.perf_counter()
        self._run()
        self.seconds.append(time.perf_counter() - began)
        self.processor.append(reactor_seconds(self._broker_pid) - busy)
        return self.seconds[-1]


def compare(
    plain: Callable[[], object], ruled: Callable[[], object], size: int, broker_pid: int, rounds: int
) -> Comparison:
    """Compare two loads of `size` records each, in `rounds` of two runs of each."""
    for _ in range(3):  # Warm up both before measuring.
        plain()
        ruled()
    without, with_rule = _Load(plain, broker_pid), _Load(ruled, broker_pid)
    throughput, processor = [], []
    for _ in range(rounds):
        before, after = in_turns(without, with_rule)
        throughput.append(before / after)
        processor.append(sum(with_rule.processor[-2:]) / sum(without.processor[-2:]))
    return Comparison(
        median_ratio(throughput),
        median_ratio(processor),
        round(size / statistics.median(without.seconds)),
        round(size / statistics.median(with_rule.seconds)),
    )


def one_writer(bootstrap: str, broker_pid: int, rounds: int, records: int) -> Comparison:
    """Compare bulk produce by the owner of the topic `owned`, which only its owner may write, with that
    to `free`, which any client may write. Both topics exist."""
    properties = {"bootstrap.servers": bootstrap}
    calls = max(1, records // RECORDS_A_CALL)
    values = [VALUE] * RECORDS_A_CALL

    def produce(producer: Producer | ExclusiveProducer, topic: str) -> None:
        for _ in range(calls):
            producer.send_many(topic, values, partition=0)
        producer.flush()

    with Producer(properties) as anyone, ExclusiveProducer(properties, "owned") as owner:
        return compare(
            lambda: produce(anyone, "free"),
            lambda: produce(owner, "owned"),
            calls * RECORDS_A_CALL,
            broker_pid,
            rounds,
        )


def one_condition(bootstrap: str, broker_pid: int, rounds: int) -> Comparison:
    """Compare awaited single appends with and without an expected offset, to the empty topics `conditional`
    and `unconditional`."""
    offset = 0
    # A linger of 0 for both, because conditional records do not linger.
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": "0"}) as producer:

        def anywhere() -> None:
            for _ in range(APPENDS_A_RUN):
                producer.send(Message("unconditional", value=VALUE, partition=0)).result()

        def at_an_offset() -> None:
            nonlocal offset
            for _ in range(APPENDS_A_RUN):
                producer.send_at(offset, Message("conditional", value=VALUE, partition=0)).result()
                offset += 1

        return compare(anywhere, at_an_offset, APPENDS_A_RUN, broker_pid, rounds)
