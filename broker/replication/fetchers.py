"""Copies from all leaders: runs one or more `ReplicaFetcher`s per leader, and sends their requests."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Sequence
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.fetcher import Asked, FetchLimits, ReplicaFetcher
from holdfast_log.broker.replication.partition import NO_LEADER, Partition
from holdfast_log.broker.replication.throttle import follower_throttle
from holdfast_log.coordinator.alarm import Alarm
from holdfast_log.coordinator.clock import Clock, TimeOfDay, now_ms
from holdfast_log.coordinator.raised import raised
from holdfast_log.protocol.errors import BrokerError
from holdfast_log.protocol.messages.fetch import FetchRequest, FetchResponse
from holdfast_log.protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class SendFetch(Protocol):
    """Sends fetches to leaders on connections of their own, because a fetch waits at the leader."""

    def __call__(self, broker_id: int, request: FetchRequest) -> Deferred[FetchResponse]:
        """The leader's response. Fails with any error; the caller may then send another fetch."""
        ...


class MakeDurable(Protocol):
    """Makes a log durable."""

    def __call__(self, log: Log) -> Deferred[None]:
        """Fires when all records now in the log are durable. Fails with BrokerError."""
        ...


class Fetchers:
    """Copies partitions, each from its present leader.

    Each of `sends` is a lane with its own fetch open to each leader (`num.replica.fetchers`). `flush` is
    called for partitions whose records must be durable before they are acknowledged (`flush.before.ack`).
    """

    def __init__(
        self,
        local_id: int,
        clock: Clock,
        sends: Sequence[SendFetch],
        limits: FetchLimits,
        broker_epoch: Callable[[], int],
        flush: MakeDurable,
        date_ms: TimeOfDay,
    ) -> None:
        self._date_ms = date_ms
        self.throttle = follower_throttle(local_id)
        """Limits the rate of fetches for replicas that are behind."""
        self._flush = flush
        self._local_id = local_id
        self._clock = clock
        self._sends = sends
        self._limits = limits
        self._broker_epoch = broker_epoch
        self._loops: dict[tuple[int, int], _Loop] = {}
        self._followed: dict[TopicPartition, _Loop] = {}
        self._is_stopped = False
        self.high_watermark_taken: Callable[[Partition], None] | None = None
        """Called with a partition that has a higher high watermark from its leader; None: no call."""
        self.start_moved: Callable[[Partition], None] | None = None
        """Called with a partition whose log starts later, as its leader's does; None: no call."""

    def follow(self, partition: Partition) -> None:
        """Start to copy a partition from its leader, in its leader epoch."""
        self.forget(partition)
        if self._is_stopped or partition.leader == NO_LEADER:
            return
        key = (partition.leader, self._lane(partition))
        loop = self._loops.get(key)
        if loop is None:
            fetcher = ReplicaFetcher(
                self._local_id,
                self._limits,
                self._broker_epoch,
                self.throttle,
                self._date_ms,
                self.high_watermark_taken,
                self.start_moved,
            )
            loop = self._loops[key] = _Loop(key[0], fetcher, self._clock, self._sends[key[1]], self._flush)
        self._followed[partition.key] = loop
        loop.follow(partition)

    def forget(self, partition: Partition) -> None:
        """Stop copying a partition."""
        loop = self._followed.pop(partition.key, None)
        if loop is not None:
            loop.forget(partition)

    def start_durable(self, log: Log) -> None:
        """Tell the leader soon that a later start of the log is durable, if the log is a follower's."""
        loop = self._followed.get(log.topic_partition)
        if loop is not None:
            loop.start_durable(log)

    def stop(self) -> None:
        """Stop copying all partitions, for good."""
        self._is_stopped = True
        for loop in self._loops.values():
            loop.stop()
        self._followed.clear()

    def _lane(self, partition: Partition) -> int:
        return (zlib.crc32(partition.topic.encode()) + partition.index) % len(self._sends)


class _Loop:
    """Sends the fetches of one fetcher, and passes the responses to it."""

    def __init__(
        self,
        leader: int,
        fetcher: ReplicaFetcher,
        clock: Clock,
        send: SendFetch,
        flush: MakeDurable,
    ) -> None:
        self._flush = flush
        self._leader = leader
        self._fetcher = fetcher
        self._clock = clock
        self._send = send
        self._alarm = Alarm(clock, self._go_on)
        """Set for the next fetch."""
        self._is_stopped = False
        self._is_failing = False

    def follow(self, partition: Partition) -> None:
        self._fetcher.follow(partition, self._now_ms())
        self._begin_flushes()
        self._wake_in_this_turn()

    def _wake_in_this_turn(self) -> None:
        # One reactor turn may add thousands of partitions: set the alarm once.
        due_s = self._alarm.due_s
        if due_s is None or due_s > self._clock.seconds():
            self._wake()

    def forget(self, partition: Partition) -> None:
        self._fetcher.forget(partition)

    def start_durable(self, log: Log) -> None:
        self._fetcher.start_durable(log)
        self._wake_in_this_turn()

    def stop(self) -> None:
        self._is_stopped = True
        self._alarm.cancel()

    def _now_ms(self) -> int:
        return now_ms(self._clock)

    def _wake(self) -> None:
        """Set the alarm for the next fetch; one that is due is sent after this reactor turn."""
        due_ms = self._fetcher.next_fetch_ms()
        if due_ms is None:
            self._alarm.cancel()
        else:
            self._alarm.set(max(0, due_ms - self._now_ms()) / 1000)

    def _go_on(self) -> None:
        while not self._is_stopped:
            fetch = self._fetcher.next_fetch(self._now_ms())
            if fetch is None:
                self._wake()
                return
            answer = self._send(self._leader, fetch.request)
            answer.addCallbacks(self._answered, self._failed, callbackArgs=(fetch,), errbackArgs=(fetch,))
            answer.addErrback(self._broken, fetch)

    def _answered(self, response: FetchResponse, fetch: Asked) -> None:
        if self._is_stopped:
            return
        self._is_failing = False
        self._fetcher.answered(fetch, response, self._now_ms())
        self._begin_flushes()
        self._go_on()

    def _begin_flushes(self) -> None:
        for partition in self._fetcher.take_unflushed():
            flushed = self._flush(partition.log)
            # BrokerError: the log is offline. A log truncated meanwhile is checked again by `flushed`.
            flushed.addErrback(lambda failure: failure.trap(BrokerError) and None)
            flushed.addCallback(self._flushed, partition)

    def _flushed(self, _: None, partition: Partition) -> None:
        if not self._is_stopped:
            self._fetcher.flushed(partition)
            self._begin_flushes()
            self._wake_in_this_turn()

    def _failed(self, failure: Failure, fetch: Asked) -> None:
        if self._is_stopped:
            return
        if not self._is_failing:
            self._is_failing = True
            _log.info(
                "Fetching from leader %d failed; retrying after a pause: %s", self._leader, failure.value
            )
        self._fetcher.failed(fetch, self._now_ms())
        self._wake()

    def _broken(self, failure: Failure, fetch: Asked) -> None:
        """Retry after an unexpected error in this broker, so that other partitions are still copied."""
        _log.error(
            "Could not apply the fetch response of leader %d; fetching again after a pause",
            self._leader,
            exc_info=raised(failure),
        )
        self._fetcher.failed(fetch, self._now_ms())
        self._wake()
