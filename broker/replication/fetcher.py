"""What this broker copies from one leader: one fetch for all partitions, answered, and asked again.

A machine without network and clock: it makes requests, is told their answers and the time. One fetch waits at
the leader at a time. A partition that comes meanwhile, or has paused after an error, does not wait for that
one's answer: it goes in a fetch of its own that waits for nothing, and joins the others with the next.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from broker.replication.following import Outcome, take, wanted
from broker.replication.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

_FIRST_PAUSE_MS = 20
"""A leader that has not yet heard that it is one will have soon; the pause doubles from here."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Values of the settings `replica.fetch.*`."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    partition_bytes_max: int = 1 << 20
    response_bytes_max: int = 10 << 20
    backoff_ms: int = 1000

    def pause_ms(self, failures: int) -> int:
        """How long to pause after so many failures in a row."""
        return min(self.backoff_ms, _FIRST_PAUSE_MS << min(failures - 1, 16))

    def is_over(self, pause_end_ms: int, now_ms: int) -> bool:
        """Whether a pause is over: also where it seems longer than any is, since the clock was set back."""
        return not 0 < pause_end_ms - now_ms <= self.backoff_ms


@dataclass(slots=True, eq=False)
class _Copy:
    """A partition that is copied, in one leader epoch."""

    partition: Partition
    leader_epoch: int
    ready_ms: int
    is_asked: bool = False
    """Whether a fetch that is under way names it."""
    is_joined: bool = False
    """Whether it goes with the others: it does once the leader has answered for it without an error."""
    failures: int = 0

    def pause(self, limits: FetchLimits, now_ms: int) -> None:
        self.failures += 1
        self.is_joined = False
        self.ready_ms = now_ms + limits.pause_ms(self.failures)


@dataclass(slots=True, eq=False)
class Asked:
    """A fetch that is on its way."""

    request: FetchRequest
    copies: dict[tuple[uuid.UUID, int], tuple[_Copy, FetchPartition]]


class Fetcher:
    """The partitions copied from one leader. `broker_epoch` is that of this broker's registration."""

    def __init__(self, local_id: int, limits: FetchLimits, broker_epoch: Callable[[], int]) -> None:
        self._local_id = local_id
        self._limits = limits
        self._broker_epoch = broker_epoch
        self._copies: dict[tuple[str, int], _Copy] = {}
        """In the order in which they are asked for: those that gave something go to the end."""
        self._unjoined: dict[tuple[str, int], _Copy] = {}
        self._under_way: dict[Asked, None] = {}
        self._failures = 0
        self._ready_ms = 0

    def __len__(self) -> int:
        """How many partitions are copied."""
        return len(self._copies)

    def follow(self, partition: Partition, now_ms: int) -> None:
        """Copy a partition from now on, in the leader epoch that it is in now."""
        self.forget(partition)
        copy = _Copy(partition, partition.leader_epoch, now_ms)
        self._copies[partition.key] = self._unjoined[partition.key] = copy

    def forget(self, partition: Partition) -> None:
        """Copy a partition no more; what is still answered for it is left aside."""
        self._copies.pop(partition.key, None)
        self._unjoined.pop(partition.key, None)

    def next_fetch(self, now_ms: int) -> Asked | None:
        """The fetch to send now, if there is one: to be asked for until there is none."""
        is_over = self._limits.is_over
        if len(self._under_way) > 1 or not is_over(self._ready_ms, now_ms):
            return None
        candidates = self._unjoined if self._under_way else self._copies
        copies = [
            copy
            for copy in candidates.values()
            if not copy.is_asked and (copy.is_joined or is_over(copy.ready_ms, now_ms))
        ]
        if not copies:
            return None
        fetch = self._ask(copies, waits=not self._under_way)
        self._under_way[fetch] = None
        return fetch

    def next_fetch_ms(self) -> int | None:
        """When a fetch may be due that is not yet; None: only an answer or another partition leads to one."""
        if len(self._under_way) > 1:
            return None
        if not self._under_way and len(self._copies) > len(self._unjoined):
            return self._ready_ms
        pausing = [copy.ready_ms for copy in self._unjoined.values() if not copy.is_asked]
        return max(self._ready_ms, min(pausing)) if pausing else None

    def _ask(self, copies: Iterable[_Copy], *, waits: bool) -> Asked:
        limits = self._limits
        request = FetchRequest(
            max_wait_ms=limits.wait_ms_max if waits else 0,
            min_bytes=limits.bytes_min if waits else 0,
            max_bytes=limits.response_bytes_max,
            topics=[],
        )
        request.replica_state.replica_id = self._local_id
        request.replica_state.replica_epoch = self._broker_epoch()
        fetch = Asked(request, {})
        topic: FetchTopic | None = None
        for copy in copies:
            partition = copy.partition
            # Partitions keep their order, so a topic may come more than once.
            if topic is None or topic.topic_id != partition.topic_id:
                topic = FetchTopic(topic=partition.topic, topic_id=partition.topic_id, partitions=[])
                request.topics.append(topic)
            copy.is_asked = True
            position = wanted(partition, limits.partition_bytes_max)
            topic.partitions.append(position)
            fetch.copies[partition.topic_id, partition.index] = (copy, position)
        return fetch

    def answered(self, fetch: Asked, response: FetchResponse, now_ms: int) -> None:
        """Take what the leader sent."""
        if response.error_code != ErrorCode.NONE:
            self.failed(fetch, now_ms)
            return
        self._ended(fetch)
        self._failures = 0
        for topic in response.responses:
            for data in topic.partitions:
                asked = fetch.copies.pop((topic.topic_id, data.partition_index), None)
                if asked is not None and self._is_current(*asked):
                    copy = asked[0]
                    self._settle(copy, take(copy.partition, data, now_ms), bool(data.records), now_ms)
        for copy, position in fetch.copies.values():
            if self._is_current(copy, position):
                self._settle(copy, Outcome.BACK_OFF, False, now_ms)

    def failed(self, fetch: Asked, now_ms: int) -> None:
        """There will be no answer: ask for everything anew, after a pause."""
        self._ended(fetch)
        self._failures += 1
        self._ready_ms = now_ms + self._limits.pause_ms(self._failures)

    def _ended(self, fetch: Asked) -> None:
        self._under_way.pop(fetch, None)
        for copy, _ in fetch.copies.values():
            copy.is_asked = False

    def _is_current(self, copy: _Copy, position: FetchPartition) -> bool:
        """Whether an answer is still about what the replica would ask for."""
        partition = copy.partition
        return (
            self._copies.get(partition.key) is copy
            and partition.leader_epoch == copy.leader_epoch
            and partition.log.log_end_offset == position.fetch_offset
        )

    def _settle(self, copy: _Copy, outcome: Outcome, had_records: bool, now_ms: int) -> None:
        key = copy.partition.key
        match outcome:
            case Outcome.WAIT:
                self.forget(copy.partition)
            case Outcome.BACK_OFF:
                copy.pause(self._limits, now_ms)
                self._unjoined[key] = copy
            case Outcome.GO_ON:
                copy.failures = 0
                if not copy.is_joined:
                    copy.is_joined = True
                    del self._unjoined[key]
                if had_records:
                    # Whoever got something stands behind those who may not have had their turn.
                    del self._copies[key]
                    self._copies[key] = copy
