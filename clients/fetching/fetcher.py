"""What a consumer reads: for each partition where it stands, what has been fetched ahead, what to fetch next.

One fetch at a time is under way to each broker, for all of its partitions that have not enough in store, so
that the next answer is on its way while the application works. What has been fetched stays as it came, in
bytes; a batch is checked and decoded when it is taken.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from clients.connection.link import Call, Reply
from clients.connection.metadata import NO_NODE, Metadata
from clients.errors import LogTruncatedError, NoOffsetError, UnsupportedRequestError
from clients.feedback.events import Events, PositionReset
from clients.fetching.fetched import FetchedBatch, take_first
from clients.fetching.isolation import Isolation, skipped
from clients.fetching.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndTimestamp,
    by_leader,
    offsets_in,
    offsets_request,
)
from clients.fetching.positions import Position
from clients.fetching.requests import fetch_request
from clients.fetching.settings import FetchSettings
from clients.fetching.truncation import ends_in, epochs_request
from protocol.batches import whole_batches
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.fetch import FetchResponse, PartitionData
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from protocol.schema import ZERO_UUID, received_records
from protocol.topic_partition import TopicPartition

_GENERATIONS_APART = 1 << 32


class _Purpose(enum.Enum):
    FETCH = enum.auto()
    LOOK_UP = enum.auto()
    CHECK = enum.auto()


@dataclass(frozen=True, slots=True)
class _Asked:
    """The tag of a call: what for, and for which generation of which positions."""

    purpose: _Purpose
    generations: dict[TopicPartition, int]


class Fetcher:
    """Positions, and the requests that move them on. Knows no connection: calls go out, replies come in."""

    def __init__(self, metadata: Metadata, settings: FetchSettings, events: Events) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self.fetches = 0
        """How many responses to fetches have come."""
        self.fetch_errors = 0
        """How many fetches, or partitions in them, brought an error."""
        self.fetched_bytes = 0
        self._events = events
        self._metadata = metadata
        self._settings = settings
        self._busy_nodes: dict[int, None] = {}
        self._looking_up: dict[TopicPartition, None] = {}
        self._checking: dict[TopicPartition, None] = {}
        self._problems: deque[Exception] = deque()
        self._additions = 0
        self._turn: deque[TopicPartition] = deque()

    def add(self, partition: TopicPartition) -> Position:
        """Take up a partition; its position is what `auto.offset.reset` says until it is set."""
        position = self.positions.get(partition)
        if position is None:
            # Generations rise from one addition to the next: a partition may come back while an answer for
            # its former stay is on the way.
            self._additions += _GENERATIONS_APART
            position = self.positions[partition] = Position(*partition, generation=self._additions)
            self._turn.append(partition)
            self._metadata.want(partition.topic)
        return position

    def remove(self, partition: TopicPartition) -> None:
        """Drop a partition and what was fetched of it."""
        del self.positions[partition]
        self._turn.remove(partition)

    # Out: calls ---------------------------------------------------------------------------------------

    def calls(self, now_ms: int) -> list[Call]:
        """The requests to send now."""
        self._reset_where_unset()
        return [*self._look_ups(now_ms), *self._checks(now_ms), *self._fetches(now_ms)]

    def _reset_where_unset(self) -> None:
        for position in self.positions.values():
            if position.offset is None and position.reset_to is None and not position.is_pending:
                self._reset(position, NoOffsetError(f"{position.key} has no position to read from"))

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
        """Ask new leaders whether they have what was read from those before."""
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
            node = NO_NODE if info is None else info.leader
            if info is None or node == NO_NODE:
                self._metadata.renew()
            elif node not in self._busy_nodes and not position.must_be_checked(info.leader_epoch):
                if position.stored_bytes >= self._settings.max_partition_bytes:
                    has_stores[node] = True
                elif position.not_before_ms <= now_ms:
                    wanted.setdefault(node, []).append(position)
        return [
            self._fetch(node, positions, has_stores.get(node, False)) for node, positions in wanted.items()
        ]

    def _fetch(self, node: int, positions: list[Position], has_stores: bool) -> Call:
        self._busy_nodes[node] = None
        for position in positions:
            self._is_checked(position)
        request = fetch_request(self._metadata, positions, self._settings, has_stores=has_stores)
        generations = {position.key: position.generation for position in positions}
        return Call(node, request, tag=_Asked(_Purpose.FETCH, generations))

    # In: replies --------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was one to `calls`."""
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
                self._is_checked(position)  # By a broker that cannot tell: read on, as if nobody had asked.
        elif reply.error is not None:
            for position in current.values():
                self._failed(position, reply.error, now_ms)
        elif isinstance(reply.response, OffsetForLeaderEpochResponse):
            self._handle_ends(reply.response, current, now_ms)
        elif isinstance(reply.response, FetchResponse):
            self._handle_fetch(reply.response, current, now_ms)
        elif isinstance(reply.response, ListOffsetsResponse):
            self._handle_offsets(reply.response, current, now_ms)
        return True

    def _failed(self, position: Position, error: Exception, now_ms: int) -> None:
        """Try again after a pause, or tell the application."""
        self.fetch_errors += 1
        position.last_error = error
        position.not_before_ms = now_ms + self._settings.retry_backoff_ms
        self._metadata.renew()
        if isinstance(error, BrokerError) and not error.retriable:
            self._problems.append(error)

    def _handle_offsets(
        self, response: ListOffsetsResponse, current: dict[TopicPartition, Position], now_ms: int
    ) -> None:
        for key, answer in offsets_in(response).items():
            waiting = current.get(key)
            if waiting is None:
                continue
            if isinstance(answer, OffsetAndTimestamp):
                if answer.offset >= 0:
                    waiting.go_to(answer.offset)
                else:
                    waiting.go_to_time(LATEST)  # Nothing is as late as the time asked for: what comes is.
            else:
                self._failed(waiting, answer, now_ms)

    def _handle_ends(
        self, response: OffsetForLeaderEpochResponse, current: dict[TopicPartition, Position], now_ms: int
    ) -> None:
        for key, answer in ends_in(response):
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
        """The leader's log ends, or goes on differently, at `end_offset`, before what was fetched."""
        assert position.offset is not None
        if end_offset >= position.offset:
            position.go_to(position.offset)  # The application has seen nothing of it yet.
            return
        error = LogTruncatedError(
            f"{position.key} was read up to offset {position.offset}, and has lost records since: its leader "
            f"has the same log only up to offset {max(end_offset, 0)}"
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
        self, response: FetchResponse, current: dict[TopicPartition, Position], now_ms: int
    ) -> None:
        self.fetches += 1
        if response.error_code:
            for position in current.values():
                self._failed(position, error_for(response.error_code), now_ms)
            return
        names = {info.id: name for name, info in self._metadata.topics.items() if info.id != ZERO_UUID}
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                fetched = current.get(TopicPartition(name, row.partition_index))
                if fetched is not None:
                    self._handle_partition(fetched, row, now_ms)

    def _handle_partition(self, position: Position, row: PartitionData, now_ms: int) -> None:
        if row.error_code == ErrorCode.NONE:
            position.last_error = None
            position.high_watermark = self._end_seen(row)
            position.log_start_offset = row.log_start_offset
            self._store(position, row, now_ms)
        elif row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not position.store:  # Else what is in store comes first, and the error again after it.
                error = error_for(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{position.key} does not hold offset {position.fetch_offset} (auto.offset.reset=none)",
                )
                self.fetch_errors += 1
                self._reset(position, error)
        else:
            if row.current_leader.leader_id != NO_NODE:
                leader = row.current_leader
                self._metadata.leader_moved(
                    position.topic, position.partition, leader.leader_id, leader.leader_epoch
                )
            error = error_for(row.error_code, row.error_message)
            if error.code is ErrorCode.OWNERSHIP_FENCED:
                self._fenced(position, error, now_ms)
            else:
                self._failed(position, error, now_ms)

    def _fenced(self, position: Position, error: Exception, now_ms: int) -> None:
        """Another reads the partition: this consumer's claim must be made again."""
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
                    f"a batch of {position.key} at offset {position.fetch_offset} does not come whole: "
                    "the broker keeps to max.partition.fetch.bytes, which is too small for it",
                )
            )
        is_committed = self._settings.isolation is Isolation.READ_COMMITTED
        aborted = row.aborted_transactions or () if is_committed else ()
        for header, is_skipped in zip(headers, skipped(records, headers, aborted), strict=True):
            position.keep(records, header, is_skipped)

    # What is in store ---------------------------------------------------------------------------------

    def next_event_ms(self, now_ms: int) -> int | None:
        """When a pause ends, so that `calls` has something new to say."""
        times = [position.not_before_ms for position in self.positions.values()]
        return min((time for time in times if time > now_ms), default=None)

    def raise_problem(self) -> None:
        """Raise what the application must be told, if there is something."""
        if self._problems:
            raise self._problems.popleft()

    def take(self) -> Iterator[FetchedBatch]:
        """Whole batches, from one partition after the other in turn, as long as there are any.

        Raises BrokerError (CORRUPT_MESSAGE) for a batch whose checksum or records are damaged; the position
        then stays before it. What was taken before comes first: then it is raised the next time.
        """
        has_given = False
        empty_in_a_row = 0
        while empty_in_a_row < len(self._turn):
            position = self.positions[self._turn[0]]
            empty_in_a_row += 1
            if position.store and not position.is_silent:
                try:
                    batch = take_first(
                        position,
                        check_crcs=self._settings.check_crcs,
                        limit=self._settings.batch_max_bytes,
                    )
                except BrokerError:
                    if has_given:
                        return
                    raise
                empty_in_a_row = 0
                if batch is not None:
                    has_given = True
                    self._turn.rotate(-1)
                    yield batch
                    continue
            self._turn.rotate(-1)
