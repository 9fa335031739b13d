"""Asks the cluster for one snapshot. It blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from holdfast_log.clients.admin import LATEST, Admin, LogDir
from holdfast_log.clients.errors import ClientError, UnsupportedRequestError
from holdfast_log.console.asking.snapshot import ClusterSnapshot, RateSample, ViewPart
from holdfast_log.console.asking.work import Clients
from holdfast_log.protocol.errors import BrokerError, ErrorCode
from holdfast_log.protocol.topic_partition import TopicPartition

T = TypeVar("T")

SAMPLES_MAX = 120
"""How many rates are kept for the curve."""
SIZES_EVERY_S = 30.0
"""How old sizes may become: a broker looks at every file for them."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """The time of day, and a clock that nobody can set; both in s."""

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic


def gather(clients: Clients, before: ClusterSnapshot | None, clocks: Clocks) -> ClusterSnapshot:
    """Ask for everything that pages share. A part that cannot be had keeps its value of `before`.

    Raises nothing that a broker or a connection causes: the part then has a problem.
    """
    old = before or ClusterSnapshot(0, 0.0, 0.0)
    began = clocks.steady()
    now_s = clocks.wall()
    try:
        with clients.shared_admin() as admin:
            found = _gathered(admin, old, now_s)
    except (ClientError, BrokerError) as error:
        problem = str(error)
        found = ClusterSnapshot(
            0, 0.0, 0.0,
            cluster=_failed(old.cluster, problem), topics=_failed(old.topics, problem),
            ends=_failed(old.ends, problem), log_dirs=_failed(old.log_dirs, problem),
            groups=_failed(old.groups, problem), owners=_failed(old.owners, problem),
            samples=old.samples,
        )  # fmt: skip
    return ClusterSnapshot(
        old.version + 1, now_s, clocks.steady() - began,
        found.cluster, found.topics, found.ends, found.log_dirs, found.silent, found.groups, found.owners,
        found.rates, found.samples,
    )  # fmt: skip


def _gathered(admin: Admin, old: ClusterSnapshot, now_s: float) -> ClusterSnapshot:
    """Raises ClientError or BrokerError if not even the brokers' addresses can be had."""
    cluster = ViewPart(admin.describe_cluster(), now_s)
    topics = _part(old.topics, now_s, lambda: tuple(admin.describe_topics()))
    led = {
        TopicPartition(topic.name, row.partition): LATEST
        for topic in topics.value or ()
        for row in topic.partitions
        if row.leader >= 0
    }
    ends = _part(old.ends, now_s, lambda: _ends(admin, led))
    log_dirs, silent = _sizes(admin, old, now_s)
    rates = _rates(old.ends, ends)
    return ClusterSnapshot(
        0, now_s, 0.0,
        cluster=cluster,
        topics=topics,
        ends=ends,
        log_dirs=log_dirs,
        silent=silent,
        groups=_part(old.groups, now_s, lambda: tuple(admin.list_groups())),
        owners=_part(old.owners, now_s, lambda: tuple(admin.describe_owners())),
        rates=rates if rates is not None else old.rates,
        samples=_samples(old, ends, rates),
    )  # fmt: skip


def _part(old: ViewPart[T], now_s: float, ask: Callable[[], T]) -> ViewPart[T]:
    try:
        return ViewPart(ask(), now_s)
    except UnsupportedRequestError as error:
        return ViewPart(problem=str(error), is_unsupported=True)
    except BrokerError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return ViewPart(problem=str(error), is_unsupported=True)
        return _failed(old, str(error))
    except ClientError as error:
        return _failed(old, str(error))


def _failed(old: ViewPart[T], problem: str) -> ViewPart[T]:
    return ViewPart(old.value, old.at_s, problem, old.is_unsupported)


def _ends(admin: Admin, led: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    if not led:
        return {}
    return {partition: found.offset for partition, found in admin.list_offsets(led).items()}


def _sizes(
    admin: Admin, old: ClusterSnapshot, now_s: float
) -> tuple[ViewPart[tuple[LogDir, ...]], Mapping[int, str]]:
    if old.log_dirs.value is not None and 0 <= now_s - old.log_dirs.at_s < SIZES_EVERY_S:
        return old.log_dirs, old.silent
    silent: dict[int, str] = {}

    def ask() -> tuple[LogDir, ...]:
        found: list[LogDir] = []
        for node in admin.describe_cluster().nodes:
            try:
                found += admin.describe_log_dirs([node.id])
            except UnsupportedRequestError:
                raise
            except (ClientError, BrokerError) as error:
                silent[node.id] = str(error)
        return tuple(found)

    return _part(old.log_dirs, now_s, ask), silent


def _rates(
    old: ViewPart[Mapping[TopicPartition, int]], new: ViewPart[Mapping[TopicPartition, int]]
) -> dict[TopicPartition, float] | None:
    """New messages per second of each partition since the last look; None without two looks."""
    if old.value is None or new.value is None or new.at_s - old.at_s <= 0:
        return None
    elapsed_s = new.at_s - old.at_s
    return {
        partition: max(0, end - old.value[partition]) / elapsed_s
        for partition, end in new.value.items()
        if partition in old.value
    }


def _samples(
    old: ClusterSnapshot,
    ends: ViewPart[Mapping[TopicPartition, int]],
    rates: Mapping[TopicPartition, float] | None,
) -> tuple[RateSample, ...]:
    if rates is None:
        return old.samples
    return (*old.samples[1 - SAMPLES_MAX :], RateSample(ends.at_s, sum(rates.values())))
