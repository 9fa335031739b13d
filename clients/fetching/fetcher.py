"""Fetches ahead: keeps a consumer's positions and stored batches, and makes the next requests.

One fetch at a time is in flight to each broker, for all of its partitions that have not enough stored, so
that the next answer arrives while the application works. Fetched batches are stored as bytes, and are checked
and decoded when they are taken.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from holdfast_log.clients.connection.backoff import Backoff
from holdfast_log.clients.connection.cluster_view import NO_NODE, Metadata
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import (
    ConnectionFailedError,
    LogTruncatedError,
    NoOffsetError,
    UnsupportedRequestError,
)
from holdfast_log.clients.feedback.connection_log import warn
from holdfast_log.clients.feedback.events import Events, PositionReset
from holdfast_log.clients.fence import FENCES_FEATURE
from holdfast_log.clients.fetching.isolation import Isolation, skipped
from holdfast_log.clients.fetching.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndTimestamp,
    by_leader,
    offsets_in,
    offsets_request,
)
from holdfast_log.clients.fetching.positions import Position
from holdfast_log.clients.fetching.requests import fetch_request
from holdfast_log.clients.fetching.settings import FetchSettings
from holdfast_log.clients.fetching.stored_batches import StoredBatches
from holdfast_log.clients.fetching.truncation import ends_in, epochs_request
from holdfast_log.protocol.batches import BatchHeader, whole_batches
from holdfast_log.protocol.errors import BrokerError, ErrorCode, error_for
from holdfast_log.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from holdfast_log.protocol.messages.list_offsets import ListOffsetsResponse
from holdfast_log.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from holdfast_log.protocol.schema import ZERO_UUID, received_records
from holdfast_log.protocol.topic_partition import TopicPartition

_GENERATIONS_APART = 1 << 32


class _Purpose(enum.Enum):
    FETCH = enum.auto()
    LOOK_UP = enum.auto()
    CHECK = enum.auto()


_EARLY_ANSWERS = 5
"""How many empty answers in a row may come before `fetch.max.wait.ms` and are followed by the next request at
once."""
_MAX_OFFSET = 2**63 - 1
_FAR_MS = 30_000
"""How long a consumer reads from the leader after a follower has failed: by then the leader does not count a
dead one as in sync any more."""


def _has_offsets(header: BatchHeader) -> bool:
    """Whether the offsets of a batch can exist in a log."""
    return 0 <= header.base_offset <= header.last_offset < _MAX_OFFSET


@dataclass(frozen=True, slots=True)
class _Asked:
    """The tag of a call: its purpose, and the generation of each position that it is for."""

    purpose: _Purpose
    generations: dict[TopicPartition, int]


class Fetcher:
    """Positions, and the requests that advance them. Sans-IO: calls go out, replies come in."""

    def __init__(
        self,
        metadata: Metadata,
        settings: FetchSettings,
        events: Events,
        backoff: Backoff,
        log_name: str,
        now_ms: Callable[[], int],
    ) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self.fetches = 0
        """Number of fetch responses."""
        self.fetch_errors = 0
        """Number of errors of fetches, or of partitions in them."""
        self.fetched_bytes = 0
        self._events = events
        self._metadata = metadata
        self._settings = settings
        self._backoff = backoff
        self._log_name = log_name
        self._now_ms = now_ms
        self._busy_nodes: dict[int, None] = {}
        self._looking_up: dict[TopicPartition, None] = {}
        self._checking: dict[TopicPartition, None] = {}
        self._problems: deque[Exception] = deque()
        self._additions = 0
        self.stored = StoredBatches(self.positions, settings, events, log_name, now_ms)

    def add(self, partition: TopicPartition) -> Position:
        """Begin to read a partition; `auto.offset.reset` gives its position until it is set.

        Raises ValueError for a partition that the reader's fence does not cover.
        """
        position = self.positions.get(partition)
        if position is None:
            if self._settings.fence is not None:
                self._settings.fence.token(partition)
            # Generations rise with every addition: a partition may be added again while an answer for
            # its earlier position is in flight.
            self._additions += _GENERATIONS_APART
            position = self.positions[partition] = Position(*partition, generation=self._additions)
            self.stored.add(partition)
            self._metadata.want(partition.topic)
        return position

    def remove(self, partition: TopicPartition) -> None:
        """Stop reading a partition, and drop its stored batches."""
        del self.positions[partition]
        self.stored.remove(partition)

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        self._reset_where_unset()
        return [*self._look_ups(now_ms), *self._checks(now_ms), *self._fetches(now_ms)]

    def _reset_where_unset(self) -> None:
        for position in self.positions.values():
            if position.offset is None and position.reset_to is None and not position.is_pending:
                self._reset(
                    position,
                    NoOffsetError(
                        f"{position.key} has no offset to start at: seek(), or change auto.offset.reset=none"
                    ),
                )

    def _reset(self, position: Position, error: Exception) -> None:
        if self._settings.reset == "none":
            self._problems.append(error)
        else:
            if position.offset is not None:
                self._events.note(PositionReset(*position.key, position.offset, error))
            position.go_to_time(EARLIEST if self._settings.reset == "earliest" else LATEST)

    def _look_ups(self, now_ms: int) -> list[Call]:
        times = {
            key: position.reset_to
            for key, position in self.positions.items()
            if position.reset_to is not None
            and key not in self._looking_up
            and position.not_before_ms <= now_ms
        }
        calls = []
        for node, asked in by_leader(self._metadata, times).items():
            generations = {key: self.positions[key].generation for key in asked}
            request = offsets_request(self._metadata, asked, self._settings.isolation)
            calls.append(Call(node, request, tag=_Asked(_Purpose.LOOK_UP, generations)))
            self._looking_up |= dict.fromkeys(asked)
        return calls

    def _checks(self, now_ms: int) -> list[Call]:
        """Ask new leaders whether their logs have the records read from earlier leaders."""
        wanted: dict[int, list[Position]] = {}
        for key, position in self.positions.items():
            info = self._metadata.partition(*key)
            if (
                info is not None
                and info.leader != NO_NODE
                and position.must_be_checked(info.leader_epoch)
                and key not in self._checking
                and position.not_before_ms <= now_ms
            ):
                wanted.setdefault(info.leader, []).append(position)
        calls = []
        for node, positions in wanted.items():
            generations = {position.key: position.generation for position in positions}
            request = epochs_request(self._metadata, positions)
            calls.append(Call(node, request, tag=_Asked(_Purpose.CHECK, generations)))
            self._checking |= dict.fromkeys(generations)
        return calls

    def _fetches(self, now_ms: int) -> list[Call]:
        if sum(position.stored_bytes for position in self.positions.values()) >= self._settings.max_bytes:
            return []
        wanted: dict[int, list[Position]] = {}
        has_stores: dict[int, bool] = {}
        for position in self.positions.values():
            if position.offset is None or position.is_silent:
                continue
            info = self._metadata.partition(position.topic, position.partition)
            node = NO_NODE if info is None else position.source(info.leader, now_ms, self._busy_nodes)
            if info is None or node == NO_NODE:
                self._metadata.renew()
            elif node not in self._busy_nodes and not position.must_be_checked(info.leader_epoch):
                if position.stored_bytes >= self._settings.max_partition_bytes:
                    has_stores[node] = True
                elif position.not_before_ms <= now_ms:
                    wanted.setdefault(node, []).append(position)
        return [
            self._fetch(node, positions, now_ms, has_stores=has_stores.get(node, False))
            for node, positions in wanted.items()
        ]

    def _fetch(self, node: int, positions: list[Position], now_ms: int, *, has_stores: bool) -> Call:
        self._busy_nodes[node] = None
        for position in positions:
            self._is_checked(position)
        request = fetch_request(self._metadata, positions, self._settings, now_ms, has_stores=has_stores)
        generations = {position.key: position.generation for position in positions}
        needs = None if self._settings.fence is None else FENCES_FEATURE
        return Call(node, request, tag=_Asked(_Purpose.FETCH, generations), needs=needs)

    # In: replies --------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Process a reply; returns whether it answered one of these calls."""
        asked = reply.call.tag
        if not isinstance(asked, _Asked):
            return False
        if asked.purpose is _Purpose.FETCH:
            self._busy_nodes.pop(reply.call.node, None)
        else:
            under_way = self._checking if asked.purpose is _Purpose.CHECK else self._looking_up
            for key in asked.generations:
                under_way.pop(key, None)
        current = {
            key: position
            for key, generation in asked.generations.items()
            if (position := self.positions.get(key)) is not None and position.generation == generation
        }
        if asked.purpose is _Purpose.CHECK and isinstance(reply.error, UnsupportedRequestError):
            for position in current.values():
                self._is_checked(position)  # The broker lacks this API: read on unchecked.
        elif reply.error is not None:
            for position in current.values():
                self._failed(position, reply.error, now_ms)
            if self._settings.fence is not None and isinstance(reply.error, UnsupportedRequestError):
                self._problems.append(reply.error)
        elif isinstance(reply.response, OffsetForLeaderEpochResponse):
            self._handle_ends(reply.response, current, now_ms)
        elif isinstance(reply.response, FetchResponse):
            assert isinstance(reply.call.request, FetchRequest)
            is_early = reply.call.request.min_bytes > 0 and reply.latency_ms < reply.call.request.max_wait_ms
            self._handle_fetch(reply.response, current, now_ms, is_early=is_early)
        elif isinstance(reply.response, ListOffsetsResponse):
            self._handle_offsets(reply.response, current, now_ms)
        return True

    def _failed(self, position: Position, error: Exception, now_ms: int) -> None:
        """Retry later, as `retry.backoff.ms` says; an error that is not retriable goes to the application."""
        self.fetch_errors += 1
        position.last_error = error
        self._leave_follower(position, now_ms)
        self._back_off(position, now_ms)
        self._metadata.renew()
        if isinstance(error, BrokerError) and not error.retriable:
            self._problems.append(error)

    def _back_off(self, position: Position, now_ms: int) -> None:
        position.failures += 1
        position.not_before_ms = now_ms + self._backoff.after(position.failures)

    def _misled(self, position: Position, what: str, now_ms: int) -> None:
        """The answer is well-formed, and nothing that this partition can use. Told once in a row."""
        error = ConnectionFailedError(f"{position.key}: the leader's answer {what}")
        if position.failures == 0:
            warn(self._log_name, f"{error}. The client asks again, less and less often.")
        self._failed(position, error, now_ms)

    def _handle_unanswered(
        self, current: dict[TopicPartition, Position], answered: Iterable[TopicPartition], now_ms: int
    ) -> None:
        for key in current.keys() - set(answered):
            self._misled(current[key], "leaves the partition out", now_ms)

    def _handle_offsets(
        self, response: ListOffsetsResponse, current: dict[TopicPartition, Position], now_ms: int
    ) -> None:
        found = offsets_in(response)
        self._handle_unanswered(current, found, now_ms)
        for key, answer in found.items():
            waiting = current.get(key)
            if waiting is None:
                continue
            if isinstance(answer, OffsetAndTimestamp):
                if answer.offset >= 0:
                    waiting.go_to(answer.offset)
                else:
                    waiting.go_to_time(LATEST)  # No record is as late as the requested time: read new ones.
            else:
                self._failed(waiting, answer, now_ms)

    def _handle_ends(
        self, response: OffsetForLeaderEpochResponse, current: dict[TopicPartition, Position], now_ms: int
    ) -> None:
        found = [*ends_in(response)]
        self._handle_unanswered(current, [key for key, _ in found], now_ms)
        for key, answer in found:
            position = current.get(key)
            if position is None:
                continue
            if isinstance(answer, BrokerError):
                self._failed(position, answer, now_ms)
            elif answer.offset >= position.fetch_offset:
                self._is_checked(position)
            else:
                self._cut(position, answer.offset, now_ms)

    def _is_checked(self, position: Position) -> None:
        info = self._metadata.partition(position.topic, position.partition)
        position.checked_epoch = max(position.checked_epoch, -1 if info is None else info.leader_epoch)

    def _cut(self, position: Position, end_offset: int, now_ms: int) -> None:
        """The leader's log differs from what was fetched, from `end_offset` on."""
        assert position.offset is not None
        if end_offset >= position.offset:
            position.go_to(position.offset)  # The application has got none of the lost records.
            return
        error = LogTruncatedError(
            f"{position.key} was read up to offset {position.offset}, but its new leader has the same "
            f"records only up to offset {max(end_offset, 0)}: the records in between are lost"
        )
        if self._settings.reset == "none":
            self._problems.append(error)
            position.not_before_ms = now_ms + self._settings.retry_backoff_ms
        elif end_offset < 0:
            self._reset(position, error)
        else:
            self._events.note(PositionReset(*position.key, position.offset, error))
            position.go_to(end_offset)
        position.last_error = error

    def _handle_fetch(
        self,
        response: FetchResponse,
        current: dict[TopicPartition, Position],
        now_ms: int,
        *,
        is_early: bool,
    ) -> None:
        self.fetches += 1
        if response.error_code:
            for position in current.values():
                self._failed(position, error_for(response.error_code), now_ms)
            return
        names = {info.id: name for name, info in self._metadata.topics.items() if info.id != ZERO_UUID}
        answered: set[TopicPartition] = set()
        has_news = not is_early
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                key = TopicPartition(name, row.partition_index)
                answered.add(key)
                has_news = has_news or row.error_code != ErrorCode.NONE or bool(row.records)
                fetched = current.get(key)
                if fetched is not None:
                    has_news = has_news or self._is_sent_near(fetched, row, now_ms)
                    self._handle_partition(fetched, row, now_ms)
        if len(answered) < len(current):
            self._handle_unanswered(current, answered, now_ms)
        elif not has_news and current:
            # Once is usual, when the leader changes for example. Again and again it is a busy loop.
            for position in current.values():
                self._back_off(position, now_ms)
                position.not_before_ms = 0 if position.failures <= _EARLY_ANSWERS else position.not_before_ms

    def _handle_partition(self, position: Position, row: PartitionData, now_ms: int) -> None:
        if row.error_code == ErrorCode.NONE:
            position.last_error = None
            position.high_watermark = self._end_seen(row)
            position.log_start_offset = row.log_start_offset
            self._store(position, row, now_ms)
            if self._is_sent_near(position, row, now_ms):
                self._send_near(position, row.preferred_read_replica, now_ms)
        elif row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and position.near is not None:
            self._leave_follower(position, now_ms)  # It may be behind its leader, which knows.
        elif row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not position.store:  # Otherwise the stored batches come first, then the error again.
                error = error_for(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{position.key} does not have offset {position.fetch_offset}: seek() elsewhere, or set "
                    "auto.offset.reset to earliest or latest",
                )
                self.fetch_errors += 1
                self._reset(position, error)
        else:
            leader = row.current_leader
            if leader.leader_id != NO_NODE and position.near is None:
                self._metadata.leader_moved(
                    position.topic, position.partition, leader.leader_id, leader.leader_epoch
                )
            error = error_for(row.error_code, row.error_message)
            if self._settings.fence is not None and error.code is ErrorCode.OWNERSHIP_DETACHED:
                # The owner may resume: to be fetched again.
                self._failed(position, ConnectionFailedError(str(error)), now_ms)
            elif self._settings.fence is None and error.code is ErrorCode.OWNERSHIP_FENCED:
                self._fenced(position, error, now_ms)
            else:
                self._failed(position, error, now_ms)

    def _is_sent_near(self, position: Position, row: PartitionData, now_ms: int) -> bool:
        """Whether the leader names a follower in the consumer's rack instead of sending records (KIP-392)."""
        is_named = bool(self._settings.rack) and row.preferred_read_replica != NO_NODE
        return is_named and position.may_be_sent(now_ms)

    def _send_near(self, position: Position, node: int, now_ms: int) -> None:
        if node in self._metadata.nodes:
            position.read_from(node, now_ms + self._settings.near_ms)
        else:
            position.read_from_leader(now_ms + _FAR_MS)
            self._metadata.renew()

    def _leave_follower(self, position: Position, now_ms: int) -> None:
        """Read from the leader, which may not know yet that the follower has failed."""
        if position.near is not None:
            position.read_from_leader(now_ms + _FAR_MS)

    def _fenced(self, position: Position, error: Exception, now_ms: int) -> None:
        """The leader does not accept this consumer as the reader: its claim or attachment must be renewed."""
        self.fetch_errors += 1
        position.is_unowned = True
        position.last_error = error
        position.not_before_ms = now_ms + self._settings.retry_backoff_ms

    def _end_seen(self, row: PartitionData) -> int:
        """The offset after the last record that this consumer may see."""
        is_committed = self._settings.isolation is Isolation.READ_COMMITTED
        return row.last_stable_offset if is_committed and row.last_stable_offset >= 0 else row.high_watermark

    def _store(self, position: Position, row: PartitionData, now_ms: int) -> None:
        records = received_records(row.records)
        self.fetched_bytes += len(records)
        try:
            headers = whole_batches(records)
        except BrokerError as error:
            self._failed(position, error, now_ms)
            self._problems.append(error)
            return
        if len(records) and not headers:
            self._problems.append(
                error_for(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"the batch of {position.key} at offset {position.fetch_offset} is larger than "
                    "max.partition.fetch.bytes: raise that setting",
                )
            )
        is_committed = self._settings.isolation is Isolation.READ_COMMITTED
        aborted = row.aborted_transactions or () if is_committed else ()
        before = position.fetch_offset
        for header, is_skipped in zip(headers, skipped(records, headers, aborted), strict=True):
            if not _has_offsets(header):
                self._misled(
                    position,
                    f"has a batch of offsets {header.base_offset} to {header.last_offset} "
                    f"where {position.fetch_offset} was asked for",
                    now_ms,
                )
                return
            position.keep(records, header, is_skipped)
        if headers and position.fetch_offset == before:
            self._misled(position, f"has only batches before the asked offset {before}", now_ms)
        elif headers:
            position.failures = 0

    # What the application asks -------------------------------------------------------------------------

    def next_event_ms(self, now_ms: int) -> int | None:
        """When the next retry is due; None if none is."""
        times = [position.not_before_ms for position in self.positions.values()]
        return min((time for time in times if time > now_ms), default=None)

    def report(self, error: Exception) -> None:
        """Keep an error for the application."""
        self._problems.append(error)

    def raise_problem(self) -> None:
        """Raise the next error for the application, if there is one."""
        if self._problems:
            raise self._problems.popleft()
