"""The sink's connection to the brokers: conditional appends, reading back, and compare-and-set of a key.

An append whose answer is lost is sent again as it is: its append id lets the broker recognise it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from holdfast_log.clients.config import producer_settings
from holdfast_log.clients.connection.cluster_view import NO_NODE, TopicInfo
from holdfast_log.clients.connection.connection import Connection
from holdfast_log.clients.connection.link import Call, Reply
from holdfast_log.clients.errors import (
    ConfigError,
    RequestTimeoutError,
    UnsupportedRequestError,
    is_retriable,
)
from holdfast_log.clients.fetching.offsets import LATEST, look_up_offsets, wait_for_metadata
from holdfast_log.clients.sending.conditions import APPEND_IDS_FEATURE, KEY_VERSIONS_FEATURE, refusal
from holdfast_log.pipeline.option_table import CLIENT_PREFIX, OptionError
from holdfast_log.pipeline.sink.chunks import RowColumns, encode_chunk, number_in
from holdfast_log.pipeline.sink.line import AppendChunk, FoundChunk, ScanLog
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.batches import whole_batches
from holdfast_log.protocol.compression import codec_named
from holdfast_log.protocol.errors import (
    BrokerError,
    ErrorCode,
    KeyVersionMismatchError,
    OffsetMismatchError,
    error_for,
)
from holdfast_log.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from holdfast_log.protocol.messages.produce import (
    KeyVersion,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from holdfast_log.protocol.records import APPEND_ID_HEADER, BatchBuilder, Headers, decode_columns, iterate
from holdfast_log.protocol.schema import received_records
from holdfast_log.protocol.topic_partition import TopicPartition

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_DEFAULTS = {"client.id": "holdfast-spark", "bootstrap.timeout.ms": "8000"}
_TOPIC_MS = 10_000
"""How long a topic that does not exist is waited for: the broker may be creating it."""
_FETCH_BYTES = 8 * 2**20
_ONE_RECORD_BYTES = 4096
"""Bytes to fetch for one record; a larger batch is answered whole."""
_FETCH_WAIT_MS = 500
_ACKS_ALL = -1


@dataclass(frozen=True, slots=True)
class Appended:
    """The chunk was written."""

    first_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class AlreadyThere:
    """The log had a chunk with this id already."""

    first_offset: int


@dataclass(frozen=True, slots=True)
class Contested:
    """The log had a chunk with this id and another number of rows."""


@dataclass(frozen=True, slots=True)
class Mismatched:
    """Nothing was written: the log ends elsewhere. `ids_from`: see `ChunkLine.mismatched`."""

    end_offset: int
    ids_from: int


AppendOutcome = Appended | AlreadyThere | Contested | Mismatched


@dataclass(slots=True, eq=False)
class _Flight:
    """An append that has no outcome yet."""

    partition: TopicPartition
    topic_id: UUID
    step: AppendChunk
    batch: bytearray
    deadline_ms: int
    due_ms: int
    is_sent: bool = False
    error: Exception | None = None


class SinkCluster:
    """What tasks and commits need of the brokers. All methods raise the errors of the clients.

    `client` are properties of a producer. Not for several threads.
    """

    def __init__(self, client: Mapping[str, str]) -> None:
        try:
            self.settings = producer_settings({**_DEFAULTS, **client})
        except ConfigError as error:
            raise OptionError(f"{CLIENT_PREFIX}…: {error}") from None
        self.connection = Connection(
            self.settings["bootstrap.servers"],
            self.settings,
            allow_auto_topic_creation=True,
            kind="spark-sink",
        )
        self._metadata = self.connection.metadata
        self._now_ms = self.connection.network.now_ms
        self._delivery_ms: int = self.settings["delivery.timeout.ms"]
        self._backoff_ms: int = self.settings["retry.backoff.ms"]
        self._codec = codec_named(self.settings["compression.type"])
        self._flights: dict[TopicPartition, _Flight] = {}

    def now_ms(self) -> int:
        """The time in ms by a clock that nobody sets."""
        return self._now_ms()

    def wall_ms(self) -> int:
        """The time in ms since 1970."""
        return self.connection.network.wall_ms()

    def close(self) -> None:
        self.connection.close()

    def forget_appends(self) -> None:
        """Ignore the outcomes of appends that are under way, of a task that has failed."""
        self._flights.clear()

    # Topics -------------------------------------------------------------------------------------------

    def check_reachable(self) -> None:
        """Raise UnreachableError, with the cause of each address, unless a broker answers."""
        deadline_ms = self._now_ms() + self.settings["bootstrap.timeout.ms"] + _FETCH_WAIT_MS
        while not self._metadata.update_count and self._now_ms() < deadline_ms:
            wait_for_metadata(self.connection, _FETCH_WAIT_MS)

    def topic(self, name: str) -> TopicInfo:
        """A topic as it is known. Raises UnknownTopicOrPartitionError for one that does not exist."""
        self._metadata.want(name)
        deadline_ms = self._now_ms() + _TOPIC_MS
        while name not in self._metadata.topics:
            error = self._metadata.topic_error(name)
            if error is not None and not error.retriable:
                raise error_for(error.code, f"topic {name}: {error.message}")
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                said = "" if error is None else f": {error.message}"
                raise error_for(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"there is no topic {name}{said}. Create it before the query starts: "
                    f"scripts/topics.sh --create --topic {name}",
                )
            wait_for_metadata(self.connection, left_ms)
        return self._metadata.topics[name]

    def ends(self, topic: str, count: int) -> list[int]:
        """Where the committed part of each partition's log ends."""
        partitions = [TopicPartition(topic, number) for number in range(count)]
        found = look_up_offsets(self.connection, dict.fromkeys(partitions, LATEST), self._delivery_ms)
        return [found[partition].offset for partition in partitions]

    # Appends ------------------------------------------------------------------------------------------

    def is_busy(self, partition: TopicPartition) -> bool:
        """Whether an append to this partition is under way."""
        return partition in self._flights

    def start_append(
        self, partition: TopicPartition, topic_id: UUID, step: AppendChunk, batch: bytearray | None = None
    ) -> bytearray:
        """Begin an append; `poll` returns its outcome. Returns the encoded batch, to be given again if the
        same rows are appended elsewhere."""
        if batch is None:
            batch = encode_chunk(step.rows, step.name, self.wall_ms(), self._codec)
        now_ms = self._now_ms()
        self._flights[partition] = _Flight(
            partition, topic_id, step, batch, now_ms + self._delivery_ms, now_ms
        )
        return batch

    def poll(self, timeout_ms: int) -> list[tuple[TopicPartition, AppendOutcome]]:
        """The outcomes of appends that have arrived. Raises the error of an append that cannot be made."""
        now_ms = self._now_ms()
        calls = []
        for flight in self._flights.values():
            if flight.is_sent or flight.due_ms > now_ms:
                continue
            call = self._append_call(flight, now_ms)
            if call is not None:
                calls.append(call)
        waits = [flight.due_ms - now_ms for flight in self._flights.values() if not flight.is_sent]
        replies = self.connection.poll(max(0, min([timeout_ms, *waits])), *calls)
        outcomes = []
        for reply in replies:
            flight = reply.call.tag
            if isinstance(flight, _Flight) and self._flights.get(flight.partition) is flight:
                outcome = self._outcome(flight, reply)
                if outcome is not None:
                    del self._flights[flight.partition]
                    outcomes.append((flight.partition, outcome))
        return outcomes

    def _append_call(self, flight: _Flight, now_ms: int) -> Call | None:
        """The call of an append; None while the leader is unknown. Raises the last error after
        `delivery.timeout.ms`."""
        topic, number = flight.partition
        left_ms = flight.deadline_ms - now_ms
        if left_ms <= 0:
            raise flight.error or RequestTimeoutError(
                f"{flight.partition} has no leader: nothing was acknowledged within {self._delivery_ms} ms"
            )
        leader = self._metadata.leader(topic, number)
        if leader == NO_NODE:
            self._metadata.want(topic)
            self._metadata.renew()
            flight.due_ms = now_ms + self._backoff_ms
            return None
        data = PartitionProduceData(
            index=number,
            records=flight.batch,
            expected_offset=flight.step.expected_offset,
            expected_topic_id=flight.topic_id,
            append_id=flight.step.name,
        )
        flight.is_sent = True
        request = self._produce(topic, data)
        return Call(leader, request, min(left_ms, self._answer_ms), flight, needs=APPEND_IDS_FEATURE)

    @property
    def _answer_ms(self) -> int:
        return int(self.settings["request.timeout.ms"])

    def _produce(self, topic: str, data: PartitionProduceData) -> ProduceRequest:
        return ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=self._answer_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

    def _outcome(self, flight: _Flight, reply: Reply) -> AppendOutcome | None:
        """What an answer says; None if the append is to be sent again."""
        error = reply.error
        if error is None:
            row = _produced(reply.response)
            if row.error_code == ErrorCode.NONE and row.is_repeat:
                return AlreadyThere(row.base_offset)
            if row.error_code == ErrorCode.NONE:
                return Appended(row.base_offset, len(flight.batch))
            error = refusal(row)
            if isinstance(error, OffsetMismatchError):
                return Mismatched(row.next_offset, row.append_ids_from)
            if error.code is ErrorCode.INVALID_REQUEST:
                return Contested()
        if isinstance(error, UnsupportedRequestError):
            raise unsupported(error)
        is_renewed = isinstance(error, BrokerError) and error.code is ErrorCode.INCONSISTENT_TOPIC_ID
        if not is_retriable(error) and not (is_renewed and flight.error is None):
            raise error
        self._metadata.renew()
        flight.error = error
        flight.is_sent = False
        flight.due_ms = self._now_ms() + self._backoff_ms
        return None

    # Reading back -------------------------------------------------------------------------------------

    def scan(self, partition: TopicPartition, scan: ScanLog, prefix: bytes) -> tuple[list[FoundChunk], int]:
        """The chunks whose append ids begin with `prefix`, in the wanted part of a log, and where it ends."""
        end = scan.end
        if end is None:
            found = look_up_offsets(self.connection, {partition: LATEST}, self._delivery_ms)
            end = max(scan.start, found[partition].offset)
        chunks: list[FoundChunk] = []
        position = scan.start
        while position < end:
            position = self._scan_from(partition, position, prefix, chunks)
        return chunks, max(end, position if scan.end is None else end)

    def _scan_from(
        self, partition: TopicPartition, position: int, prefix: bytes, chunks: list[FoundChunk]
    ) -> int:
        """Add the chunks of one fetch, and return the offset after it."""
        row = self._fetch(partition, position)
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = row.log_start_offset
            if first <= position:
                raise error_for(row.error_code, f"{partition}: the log ends before offset {position}")
            return first
        data = received_records(row.records)
        for header in whole_batches(data):
            position = max(position, header.next_offset)
            if not header.has_append_id:
                continue
            columns = decode_columns(data, header)
            first_headers = list(columns.headers[0]) if columns.headers else []
            name = dict(first_headers).get(APPEND_ID_HEADER)
            number = None if name is None else number_in(prefix, name)
            if number is None:
                continue
            rows: RowColumns | None = None
            if len(columns) == header.last_offset_delta + 1:
                assert columns.headers is not None
                own = tuple(pair for pair in first_headers if pair[0] != APPEND_ID_HEADER)
                all_headers: list[Headers] = [own, *(tuple(of_row or ()) for of_row in columns.headers[1:])]
                rows = RowColumns(columns.keys, columns.values, all_headers if any(all_headers) else None)
            chunks.append(FoundChunk(number, header.base_offset, header.next_offset, rows))
        return position

    def _fetch(
        self, partition: TopicPartition, position: int, bytes_max: int = _FETCH_BYTES
    ) -> PartitionData:
        """The answer to a fetch, which has records unless nothing is there or the position is wrong."""
        topic, number = partition

        def request() -> FetchRequest:
            wanted = FetchPartition(partition=number, fetch_offset=position, partition_max_bytes=bytes_max)
            topics = [FetchTopic(topic=topic, topic_id=self._metadata.topic_id(topic), partitions=[wanted])]
            return FetchRequest(
                max_wait_ms=_FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=bytes_max,
                topics=topics,
                forgotten_topics_data=[],
            )

        def row_in(response: FetchResponse) -> PartitionData:
            if response.error_code:
                raise error_for(response.error_code)
            row = response.responses[0].partitions[0]
            if row.error_code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise error_for(row.error_code, row.error_message)
            return row

        return self._ask_leader(partition, request, row_in)

    # Compare-and-set ----------------------------------------------------------------------------------

    def put(self, partition: TopicPartition, key: bytes, value: bytes | None, version: int) -> int:
        """Write a record if the last one with its key is at offset `version` (-1: there is none).

        Returns its offset. Raises KeyVersionMismatchError, which has the present version; also if an answer
        was lost and the record of this very call is the present one.
        """
        builder = BatchBuilder()
        builder.append(self.wall_ms(), key, value)
        records = builder.build()

        def request() -> ProduceRequest:
            expected = [KeyVersion(record=0, version=version)]
            data = PartitionProduceData(
                index=partition.partition, records=bytearray(records), expected_versions=expected
            )
            return self._produce(partition.topic, data)

        def offset_in(response: ProduceResponse) -> int:
            row = _produced(response)
            if row.error_code:
                raise refusal(row)
            return row.base_offset

        return self._ask_leader(partition, request, offset_in, needs=KEY_VERSIONS_FEATURE)

    def value_at(self, partition: TopicPartition, offset: int) -> bytes | None:
        """The value of the record at an offset. Raises KeyError if it has been removed."""
        row = self._fetch(partition, offset, _ONE_RECORD_BYTES)
        data = received_records(row.records)
        for header in whole_batches(data):
            for record in iterate(data, header):
                if record.offset == offset:
                    return record.value
        raise KeyError(offset)

    def _ask_leader(
        self,
        partition: TopicPartition,
        request: Callable[[], Request[R]],
        read: Callable[[R], T],
        needs: str | None = None,
    ) -> T:
        """What `read` makes of the answer of a partition's leader. Asks again after retriable errors."""
        deadline_ms = self._now_ms() + self._delivery_ms
        self.topic(partition.topic)
        error: Exception | None = None
        while True:
            leader = self._metadata.leader(*partition)
            left_ms = deadline_ms - self._now_ms()
            if left_ms <= 0:
                raise error or RequestTimeoutError(
                    f"{partition} has no leader: no answer within {self._delivery_ms} ms"
                )
            if leader != NO_NODE:
                try:
                    return read(self._ask(leader, request(), min(left_ms, self._answer_ms), needs))
                except Exception as failure:
                    if isinstance(failure, UnsupportedRequestError):
                        raise unsupported(failure) from None
                    if isinstance(failure, KeyVersionMismatchError) or not is_retriable(failure):
                        raise
                    error = failure
            wait_for_metadata(self.connection, min(self._backoff_ms, left_ms))

    def _ask(self, node: int, request: Request[R], timeout_ms: int, needs: str | None) -> R:
        call = Call(node, request, timeout_ms, needs=needs)
        calls, kept = [call], []
        deadline_ms = self._now_ms() + timeout_ms + self._backoff_ms
        while True:
            replies = self.connection.poll(max(1, deadline_ms - self._now_ms()), *calls)
            calls = []
            mine = next((reply for reply in replies if reply.call is call), None)
            kept += [reply for reply in replies if reply is not mine]
            if mine is None:
                continue
            self.connection.keep(kept)
            if mine.error is not None:
                raise mine.error
            response: R = mine.response  # type: ignore[assignment]
            return response


def _produced(response: Response | None) -> PartitionProduceResponse:
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0]


def unsupported(error: UnsupportedRequestError) -> Exception:
    """The error of a broker that cannot write exactly once, with what to do."""
    return UnsupportedRequestError(
        f"{error}. delivery=exactly-once needs conditional appends, which only Holdfast's brokers have: "
        "update the brokers, or write with delivery=at-least-once"
    )
