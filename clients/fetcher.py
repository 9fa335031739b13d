"""What a consumer reads: for each partition where it stands, what has been fetched ahead, what to fetch next.

One fetch at a time is under way to each broker, for all of its partitions that have not enough in store, so
that the next answer is on its way while the application works. What has been fetched stays as it came, in
bytes; a batch is checked and decoded when it is taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from clients.errors import NoOffsetError
from clients.link import Call, Reply
from clients.message import TopicPartition
from clients.metadata import NO_NODE, Metadata
from clients.offsets import (
    EARLIEST,
    LATEST,
    OffsetAndTimestamp,
    by_leader,
    offsets_in,
    offsets_request,
)
from protocol.batches import BatchHeader, TimestampType, has_valid_crc, whole_batches
from protocol.errors import BrokerError, ErrorCode, error_for
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from protocol.messages.list_offsets import ListOffsetsResponse
from protocol.records import Columns, decode_columns
from protocol.schema import ZERO_UUID, received_records

_SHORT_WAIT_MS = 20
"""How long a broker may wait for data while we have some of its other partitions, and soon need more."""
_GENERATIONS_APART = 1 << 32


@dataclass(slots=True)
class Position:
    """Where a consumer stands in one partition."""

    topic: str
    partition: int
    offset: int | None = None
    """The offset of the next record to hand out; None until it is known."""
    reset_to: int | None = None
    """The time (or EARLIEST, LATEST) whose offset is to be looked up for a position."""
    is_paused: bool = False
    """By the application: nothing is fetched or handed out until it says otherwise."""
    is_held: bool = False
    """By the group: the same, while the partition is about to change hands."""
    is_pending: bool = False
    """Whether the position is yet to be what the group has committed: it is not reset meanwhile."""
    high_watermark: int | None = None
    """The offset after the last record that consumers may see, as of the last fetch."""
    log_start_offset: int | None = None
    fetch_offset: int = 0
    """The offset after what has been fetched."""
    store: deque[tuple[memoryview, BatchHeader]] = field(default_factory=deque)
    """Whole batches, fetched and not yet taken."""
    stored_bytes: int = 0
    generation: int = 0
    """Counts the times that the position was set: what was asked for before does not count any more."""
    not_before_ms: int = 0
    last_error: Exception | None = None
    """Why the last fetch or look-up brought nothing."""

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def is_silent(self) -> bool:
        """Whether nothing is fetched or handed out."""
        return self.is_paused or self.is_held

    def go_to(self, offset: int) -> None:
        """Continue at `offset`."""
        self._forget()
        self.offset = self.fetch_offset = offset
        self.reset_to = None

    def go_to_time(self, time: int) -> None:
        """Continue at the offset of `time`, which has to be looked up."""
        self._forget()
        self.offset = None
        self.reset_to = time

    def _forget(self) -> None:
        self.generation += 1
        self.is_pending = False
        self.store.clear()
        self.stored_bytes = 0
        self.not_before_ms = 0


@dataclass(slots=True)
class FetchedBatch:
    """The records of one batch, as columns. Those before the consumer's position are left out."""

    topic: str
    partition: int
    columns: Columns
    timestamp_type: TimestampType
    leader_epoch: int
    next_offset: int
    """Where to go on after this batch."""

    def __len__(self) -> int:
        return len(self.columns)


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What the fetcher needs to know of the settings."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_partition_bytes: int
    check_crcs: bool
    batch_max_bytes: int
    reset: str
    retry_backoff_ms: int


@dataclass(frozen=True, slots=True)
class _Asked:
    """The tag of a call: for which generation of which positions it was made."""

    generations: dict[TopicPartition, int]
    is_fetch: bool


class Fetcher:
    """Positions, and the requests that move them on. Knows no connection: calls go out, replies come in."""

    def __init__(self, metadata: Metadata, settings: FetchSettings) -> None:
        self.positions: dict[TopicPartition, Position] = {}
        self._metadata = metadata
        self._settings = settings
        self._busy_nodes: dict[int, None] = {}
        self._looking_up: dict[TopicPartition, None] = {}
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
        return [*self._look_ups(now_ms), *self._fetches(now_ms)]

    def _reset_where_unset(self) -> None:
        for position in self.positions.values():
            if position.offset is None and position.reset_to is None and not position.is_pending:
                self._reset(position, NoOffsetError(f"{position.key} has no position to read from"))

    def _reset(self, position: Position, error: Exception) -> None:
        if self._settings.reset == "none":
            self._problems.append(error)
        else:
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
            calls.append(
                Call(node, offsets_request(self._metadata, asked), tag=_Asked(generations, is_fetch=False))
            )
            self._looking_up |= dict.fromkeys(asked)
        return calls

    def _fetches(self, now_ms: int) -> list[Call]:
        if sum(position.stored_bytes for position in self.positions.values()) >= self._settings.max_bytes:
            return []
        wanted: dict[int, list[Position]] = {}
        has_stores: dict[int, bool] = {}
        for position in self.positions.values():
            if position.offset is None or position.is_silent:
                continue
            node = self._metadata.leader(position.topic, position.partition)
            if node == NO_NODE:
                self._metadata.renew()
            elif node not in self._busy_nodes:
                if position.stored_bytes >= self._settings.max_partition_bytes:
                    has_stores[node] = True
                elif position.not_before_ms <= now_ms:
                    wanted.setdefault(node, []).append(position)
        return [
            self._fetch(node, positions, has_stores.get(node, False)) for node, positions in wanted.items()
        ]

    def _fetch(self, node: int, positions: list[Position], has_stores: bool) -> Call:
        self._busy_nodes[node] = None
        topics: dict[str, FetchTopic] = {}
        for position in positions:
            info = self._metadata.topics[position.topic]
            topic = topics.setdefault(
                position.topic, FetchTopic(topic=position.topic, topic_id=info.id, partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=position.partition,
                    current_leader_epoch=info.partitions[position.partition].leader_epoch,
                    fetch_offset=position.fetch_offset,
                    partition_max_bytes=self._settings.max_partition_bytes,
                )
            )
        max_wait_ms = self._settings.max_wait_ms
        request = FetchRequest(
            max_wait_ms=min(max_wait_ms, _SHORT_WAIT_MS) if has_stores else max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            topics=list(topics.values()),
            forgotten_topics_data=[],
        )
        generations = {position.key: position.generation for position in positions}
        return Call(node, request, tag=_Asked(generations, is_fetch=True))

    # In: replies --------------------------------------------------------------------------------------

    def handle(self, reply: Reply, now_ms: int) -> bool:
        """Take in a reply; whether it was one to `calls`."""
        asked = reply.call.tag
        if not isinstance(asked, _Asked):
            return False
        if asked.is_fetch:
            self._busy_nodes.pop(reply.call.node, None)
        else:
            for key in asked.generations:
                self._looking_up.pop(key, None)
        current = {
            key: position
            for key, generation in asked.generations.items()
            if (position := self.positions.get(key)) is not None and position.generation == generation
        }
        if reply.error is not None:
            for position in current.values():
                self._failed(position, reply.error, now_ms)
        elif isinstance(reply.response, FetchResponse):
            self._handle_fetch(reply.response, current, now_ms)
        elif isinstance(reply.response, ListOffsetsResponse):
            self._handle_offsets(reply.response, current, now_ms)
        return True

    def _failed(self, position: Position, error: Exception, now_ms: int) -> None:
        """Try again after a pause, or tell the application."""
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

    def _handle_fetch(
        self, response: FetchResponse, current: dict[TopicPartition, Position], now_ms: int
    ) -> None:
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
            position.high_watermark = row.high_watermark
            position.log_start_offset = row.log_start_offset
            self._store(position, received_records(row.records), now_ms)
        elif row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not position.store:  # Else what is in store comes first, and the error again after it.
                error = error_for(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{position.key} does not hold offset {position.fetch_offset} (auto.offset.reset=none)",
                )
                self._reset(position, error)
        else:
            if row.current_leader.leader_id != NO_NODE:
                leader = row.current_leader
                self._metadata.leader_moved(
                    position.topic, position.partition, leader.leader_id, leader.leader_epoch
                )
            self._failed(position, error_for(row.error_code), now_ms)

    def _store(self, position: Position, records: memoryview, now_ms: int) -> None:
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
        for header in headers:
            if header.last_offset >= position.fetch_offset:
                position.store.append((records, header))
                position.stored_bytes += header.size
                position.fetch_offset = header.next_offset

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
                    batch = self._take_from(position)
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

    def _take_from(self, position: Position) -> FetchedBatch | None:
        """The next batch in store, from the position on; None where nothing of it counts."""
        records, header = position.store[0]
        assert position.offset is not None
        columns = None if header.is_control else self._decode(position, records, header)
        position.store.popleft()
        position.stored_bytes -= header.size
        start = position.offset
        position.offset = header.next_offset
        if columns is None:
            return None
        if header.base_offset < start:
            columns = _from_offset(columns, start)
        if not len(columns):
            return None
        return FetchedBatch(
            position.topic,
            position.partition,
            columns,
            header.timestamp_type,
            header.leader_epoch,
            header.next_offset,
        )

    def _decode(self, position: Position, records: memoryview, header: BatchHeader) -> Columns:
        where = f"{position.key}, batch at offset {header.base_offset}"
        if self._settings.check_crcs and not has_valid_crc(records, header):
            raise error_for(ErrorCode.CORRUPT_MESSAGE, f"{where}: its checksum does not fit its bytes")
        try:
            return decode_columns(records, header, limit=self._settings.batch_max_bytes)
        except BrokerError as error:
            raise error_for(error.code, f"{where}: {error.message}") from None


def _from_offset(columns: Columns, offset: int) -> Columns:
    """The rows from `offset` on."""
    first = next((index for index, each in enumerate(columns.offsets) if each >= offset), len(columns))
    return Columns(
        columns.offsets[first:],
        columns.timestamps[first:],
        columns.keys[first:],
        columns.values[first:],
        None if columns.headers is None else columns.headers[first:],
    )
