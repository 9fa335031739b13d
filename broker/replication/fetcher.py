"""Decides which fetches a follower sends to one leader: one for all partitions, repeated after each response.

This state machine uses no network or clock: callers send its requests and pass the responses and the time.
One fetch at a time waits at the leader, in a session (KIP-227), so that it names only changed partitions. A
new partition, or one whose pause after an error has ended, does not wait for that response: a separate fetch,
for which the leader does not wait, names it once; then it joins the session.

The offset of a fetch tells the leader which records the follower has, so that they may be acknowledged. With
`flush.before.ack` the follower fetches a partition again only after its earlier records are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from holdfast_log.broker.log.log import Log
from holdfast_log.broker.replication.fetcher_session import SESSION_ERRORS, FetcherSession, PartitionId
from holdfast_log.broker.replication.following import FetchOutcome, take, wanted
from holdfast_log.broker.replication.partition import Partition
from holdfast_log.broker.replication.settings import SETTINGS
from holdfast_log.broker.replication.throttle import Throttle
from holdfast_log.broker.setting_groups import settings_group
from holdfast_log.coordinator.clock import TimeOfDay
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from holdfast_log.protocol.topic_partition import TopicPartition

_FIRST_PAUSE_MS = 20
"""Pause in ms after a first refusal, doubled after each further one. The leader may not know its role yet."""
_PARTITIONS_PER_PAUSE_MS = 50
"""The first pause grows by 1 ms per this many refused partitions: retries must not delay a leader that is
starting very many roles."""


@settings_group(SETTINGS)
@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of a follower's fetches, in bytes and ms."""

    wait_ms_max: Annotated[int, "replica.fetch.wait.max.ms"] = 500
    bytes_min: Annotated[int, "replica.fetch.min.bytes"] = 1
    partition_bytes_max: Annotated[int, "replica.fetch.max.bytes"] = 1 << 20
    response_bytes_max: Annotated[int, "replica.fetch.response.max.bytes"] = 10 << 20
    backoff_ms: Annotated[int, "replica.fetch.backoff.ms"] = 1000

    def pause_ms(self, failures: int, partitions: int = 1) -> int:
        """Pause in ms after `failures` failures in a row, each of `partitions` partitions at once."""
        first_ms = max(_FIRST_PAUSE_MS, partitions // _PARTITIONS_PER_PAUSE_MS)
        return min(self.backoff_ms, first_ms << min(failures - 1, 16))


@dataclass(slots=True, eq=False)
class _Copy:
    """A partition that this broker copies from its leader in one leader epoch."""

    partition: Partition
    leader_epoch: int
    ready_ms: int
    is_asked: bool = False
    """Whether a separate fetch in flight names the partition, which is not in the session yet."""
    is_joined: bool = False
    """Whether the partition is in the session, because the leader has answered it without an error."""
    is_flushing: bool = False
    """Whether fetching waits until the replica's records are durable."""
    is_behind: bool = True
    """Whether the leader's last answer showed more committed records than the replica has."""
    failures: int = 0
    restarts: int = 0
    """How often the replica has deleted its log, and begun anew at the leader's log start."""

    @property
    def id(self) -> PartitionId:
        return self.partition.topic_id, self.partition.index

    @property
    def must_flush(self) -> bool:
        """Whether the replica has records that must be durable before the next fetch reports them."""
        log = self.partition.log
        return log.settings.flush_before_ack and log.recovery_point < log.log_end_offset

    def pause(self, limits: FetchLimits, partitions: int, now_ms: int) -> None:
        """Pause after the leader refused `partitions` partitions."""
        self.failures += 1
        self.ready_ms = now_ms + limits.pause_ms(self.failures, partitions)

    def start_over(self) -> bool:
        """Note that the log begins anew. Returns whether to pause first: not the first time."""
        self.restarts += 1
        self.failures = max(self.failures, self.restarts - 2)
        return self.restarts > 1

    def hold_back(self, limits: FetchLimits, now_ms: int) -> None:
        """Pause because of the throttle."""
        self.ready_ms = now_ms + limits.backoff_ms

    def is_ready(self, now_ms: int) -> bool:
        return self.ready_ms <= now_ms and not (self.is_asked or self.is_flushing)


_Asked: TypeAlias = tuple[_Copy, FetchPartition]


@dataclass(slots=True, eq=False)
class Asked:
    """A fetch in flight: the partitions that it names, and those of its session that it does not name."""

    request: FetchRequest
    named: dict[PartitionId, _Asked]
    unnamed: Mapping[PartitionId, _Asked]
    in_session: bool
    is_complete: bool
    """Whether the leader must answer for every named partition, not only for those with news."""


class ReplicaFetcher:
    """The partitions copied from one leader.

    `broker_epoch` is the epoch of this broker's registration. All fetchers of a broker share `throttle`.
    `taken` is called with a partition that has a higher high watermark than before, `moved` with one whose
    log starts later.
    """

    def __init__(
        self,
        local_id: int,
        limits: FetchLimits,
        broker_epoch: Callable[[], int],
        throttle: Throttle,
        date_ms: TimeOfDay,
        taken: Callable[[Partition], None] | None = None,
        moved: Callable[[Partition], None] | None = None,
    ) -> None:
        self._taken = taken
        self._start_moved = moved
        self._date_ms = date_ms
        self._throttle = throttle
        self._local_id = local_id
        self._limits = limits
        self._broker_epoch = broker_epoch
        self._copies: dict[TopicPartition, _Copy] = {}
        """The partitions in the order of the next fetch; those that returned records move to the end."""
        self._unjoined: dict[TopicPartition, _Copy] = {}
        self._moved: dict[_Copy, None] = {}
        """Partitions in the session whose position may differ from the one that the leader knows."""
        self._unflushed: dict[Partition, None] = {}
        self._session: FetcherSession[_Copy] = FetcherSession()
        self._under_way: dict[Asked, None] = {}
        self._failures = 0
        self._ready_ms = 0

    def __len__(self) -> int:
        """Number of partitions that are copied."""
        return len(self._copies)

    def follow(self, partition: Partition, now_ms: int) -> None:
        """Start to copy a partition in its present leader epoch."""
        self.forget(partition)
        copy = _Copy(partition, partition.leader_epoch, now_ms)
        self._copies[partition.key] = self._unjoined[partition.key] = copy
        if copy.must_flush:
            self._hold_back(copy)

    def forget(self, partition: Partition) -> None:
        """Stop copying a partition; later answers for it are ignored."""
        copy = self._copies.pop(partition.key, None)
        if copy is not None:
            self._unjoined.pop(partition.key, None)
            self._moved.pop(copy, None)
            self._unflushed.pop(partition, None)
            self._session.leave(copy.id)

    # -- asking ------------------------------------------------------------------------------------------

    def next_fetch(self, now_ms: int) -> Asked | None:
        """The fetch to send now, or None. Call it until it returns None."""
        if len(self._under_way) > 1 or self._ready_ms > now_ms:
            return None
        ready = [copy for copy in self._unjoined.values() if copy.is_ready(now_ms)]
        if self._throttle.is_over(now_ms):
            ready = [copy for copy in ready if not self._is_held_back(copy, now_ms)]
        if not ready and (self._under_way or len(self._unjoined) == len(self._copies)):
            return None
        fetch = self._ask_promptly(ready) if self._under_way else self._ask_in_session(ready)
        self._under_way[fetch] = None
        return fetch

    def next_fetch_ms(self) -> int | None:
        """Time in ms at which the next fetch is due; None if none is due before a response or `follow`."""
        if len(self._under_way) > 1:
            return None
        if not self._under_way and len(self._copies) > len(self._unjoined):
            return self._ready_ms
        pausing = [
            copy.ready_ms for copy in self._unjoined.values() if not (copy.is_asked or copy.is_flushing)
        ]
        return max(self._ready_ms, min(pausing)) if pausing else None

    def _ask_promptly(self, ready: Iterable[_Copy]) -> Asked:
        fetch = Asked(self._request(waits=False), {}, {}, in_session=False, is_complete=True)
        for copy in ready:
            copy.is_asked = True
            fetch.named[copy.id] = (copy, wanted(copy.partition, self._limits.partition_bytes_max))
        fetch.request.topics = _by_topic(fetch.named.values())
        return fetch

    def _ask_in_session(self, ready: list[_Copy]) -> Asked:
        session, request = self._session, self._request(waits=True)
        is_complete = session.is_new
        session.begin(request)
        copies: list[_Copy] = [*self._moved, *ready]
        if is_complete:
            goes = dict.fromkeys(ready)
            copies = [copy for copy in self._copies.values() if copy.is_joined or copy in goes]
        self._moved.clear()
        named: dict[PartitionId, _Asked] = {}
        for copy in copies:
            position = wanted(copy.partition, self._limits.partition_bytes_max)
            if session.must_name(copy.id, copy, position) or not copy.is_joined:
                named[copy.id] = (copy, position)
            copy.is_asked = not copy.is_joined
        request.topics = _by_topic(named.values())
        request.forgotten_topics_data = session.forgotten()
        return Asked(request, named, session.known, in_session=True, is_complete=is_complete)

    def _request(self, *, waits: bool) -> FetchRequest:
        limits = self._limits
        request = FetchRequest(
            max_wait_ms=limits.wait_ms_max if waits else 0,
            min_bytes=limits.bytes_min if waits else 0,
            max_bytes=limits.response_bytes_max,
            topics=[],
        )
        request.replica_state.replica_id = self._local_id
        request.replica_state.replica_epoch = self._broker_epoch()
        return request

    # -- answers -----------------------------------------------------------------------------------------

    def answered(self, fetch: Asked, response: FetchResponse, now_ms: int) -> None:
        """Apply the leader's response."""
        if response.error_code in SESSION_ERRORS and not fetch.is_complete:
            self._ended(fetch)
            self._session.end()
            return
        if response.error_code != ErrorCode.NONE:
            self.failed(fetch, now_ms)
            return
        self._ended(fetch)
        self._failures = 0
        date_ms = self._date_ms()
        unanswered = dict(fetch.named)
        refused: list[_Copy] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                asked = unanswered.pop(key, None) or fetch.unnamed.get(key)
                if asked is not None and self._is_current(*asked):
                    copy = asked[0]
                    known, start = copy.partition.high_watermark, copy.partition.log.log_start_offset
                    outcome = take(copy.partition, data, date_ms)
                    if self._taken is not None and copy.partition.high_watermark > known:
                        self._taken(copy.partition)
                    if self._start_moved is not None and copy.partition.log.log_start_offset > start:
                        self._start_moved(copy.partition)
                    copy.is_behind = copy.partition.log.log_end_offset < data.high_watermark
                    self._throttle.record(copy.partition, len(data.records or b""), now_ms)
                    if outcome is FetchOutcome.BACK_OFF or (
                        outcome is FetchOutcome.START_OVER and copy.start_over()
                    ):
                        refused.append(copy)
                    else:
                        self._settle(copy, outcome, bool(data.records), now_ms)
        for copy, position in unanswered.values():
            if self._is_current(copy, position):
                if fetch.is_complete:
                    refused.append(copy)
                else:
                    self._settle(copy, FetchOutcome.GO_ON, False, now_ms)
        for copy in refused:
            copy.pause(self._limits, len(refused), now_ms)
            self._part(copy)
        if fetch.in_session:
            self._session.answered(response.session_id)

    def failed(self, fetch: Asked, now_ms: int) -> None:
        """The fetch got no response: start a new session with all partitions, after a pause."""
        self._ended(fetch)
        if fetch.in_session:
            self._session.end()
        self._failures += 1
        self._ready_ms = now_ms + self._limits.pause_ms(self._failures)

    def _ended(self, fetch: Asked) -> None:
        self._under_way.pop(fetch, None)
        for copy, _ in fetch.named.values():
            copy.is_asked = False

    def _is_current(self, copy: _Copy, position: FetchPartition) -> bool:
        """Whether an answer still matches the replica's position and leader epoch."""
        partition = copy.partition
        return (
            self._copies.get(partition.key) is copy
            and partition.leader_epoch == copy.leader_epoch
            and partition.log.log_end_offset == position.fetch_offset
        )

    def _settle(self, copy: _Copy, outcome: FetchOutcome, had_records: bool, now_ms: int) -> None:
        key = copy.partition.key
        match outcome:
            case FetchOutcome.WAIT:
                self.forget(copy.partition)
            case FetchOutcome.GO_ON | FetchOutcome.START_OVER:
                copy.failures = 0
                if had_records:
                    # Partitions that got bytes move behind those that may have got none.
                    del self._copies[key]
                    self._copies[key] = copy
                if copy.must_flush:
                    self._hold_back(copy)
                    return
                if self._throttle.is_over(now_ms) and self._is_held_back(copy, now_ms):
                    self._part(copy)
                    return
                self._moved[copy] = None
                if not copy.is_joined:
                    copy.is_joined = True
                    del self._unjoined[key]

    def _part(self, copy: _Copy) -> None:
        """Remove a partition from the session until it joins again."""
        copy.is_joined = False
        self._unjoined[copy.partition.key] = copy
        self._moved.pop(copy, None)
        self._session.leave(copy.id)

    def _is_held_back(self, copy: _Copy, now_ms: int) -> bool:
        """Whether the throttle forbids fetching a partition now. If so, pauses the partition."""
        if not copy.is_behind or not self._throttle.covers(copy.partition):
            return False
        copy.hold_back(self._limits, now_ms)
        return True

    # -- records that must be durable before they are reported -------------------------------------------

    def take_unflushed(self) -> list[Partition]:
        """The partitions whose logs must be flushed now; call `flushed` for each afterwards."""
        unflushed = list(self._unflushed)
        self._unflushed.clear()
        return unflushed

    def flushed(self, partition: Partition) -> None:
        """A flush of the partition's log has ended, with or without success."""
        copy = self._copies.get(partition.key)
        # The partition may belong to a deleted topic: another one of the same name may be copied now.
        if copy is None or copy.partition is not partition or not copy.is_flushing:
            return
        copy.is_flushing = False
        if partition.is_offline:
            self.forget(partition)
        elif copy.must_flush:
            self._hold_back(copy)

    # -- log starts ---------------------------------------------------------------------------------------

    def start_durable(self, log: Log) -> None:
        """A later start of the log is durable: tell the leader by a separate fetch, since the one of the
        session may wait there."""
        copy = self._copies.get(log.topic_partition)
        if copy is not None and copy.partition.log is log and copy.is_joined:
            self._part(copy)

    def _hold_back(self, copy: _Copy) -> None:
        copy.is_flushing = True
        self._part(copy)
        self._unflushed[copy.partition] = None


def _by_topic(asked: Iterable[_Asked]) -> list[FetchTopic]:
    """Positions grouped by topic in the given order, so a topic may appear more than once."""
    topics: list[FetchTopic] = []
    topic: FetchTopic | None = None
    for copy, position in asked:
        partition = copy.partition
        if topic is None or topic.topic_id != partition.topic_id:
            topic = FetchTopic(topic=partition.topic, topic_id=partition.topic_id, partitions=[])
            topics.append(topic)
        topic.partitions.append(position)
    return topics
