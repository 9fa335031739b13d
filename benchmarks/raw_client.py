"""A load that costs the sender almost nothing: python -m benchmarks.raw_client JOB.

Requests are encoded before the clock starts and written to a plain socket, several in flight; when half of
them have been answered, as many follow in one system call. Responses are counted by their size and not
decoded. So the broker is the limit, not the client. The result is checked afterwards: the log must have grown
by exactly the records sent.

JOB is the JSON of a `RawJob`. The last line printed is the JSON of a `Result`.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from benchmarks.load_error import LoadError
from benchmarks.results import Result, percentiles, to_json
from holdfast_log.protocol.api import Request, Response
from holdfast_log.protocol.batches import Compression
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.frames import SIZE, join_parts
from holdfast_log.protocol.headers import decode_response, encode_request
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.records import BatchBuilder

PRODUCE_VERSION = 8
FETCH_VERSION = 11
LIST_OFFSETS_VERSION = 5
RECORD_BYTES = 1000
FETCHED_BATCHES = 64
"""Number of batches that a raw fetch cycles through: cached ones, to measure the broker, not the disk."""
_LATEST = -1
_CONNECT_TIMEOUT_S = 10.0
_SILENCE_S = 30.0
"""Seconds of silence after which the load gives up on a broker."""
_RECEIVE_BYTES = 1024 * 1024

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class RawJob:
    """What to do: `kind` is produce or fetch, with `window` requests in flight."""

    kind: str
    host: str
    port: int
    topic: str
    partitions: int
    batch_bytes: int
    window: int
    seconds: float


def main(text: str) -> None:
    """Run the job and print its result."""
    job = RawJob(**json.loads(text))
    with socket.create_connection((job.host, job.port), timeout=_CONNECT_TIMEOUT_S) as connection:
        connection.settimeout(_SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        result = {"produce": produce, "fetch": fetch}[job.kind](connection, job)
    print(to_json(result), flush=True)


def job_json(job: RawJob) -> str:
    """The argument that runs `job`."""
    return json.dumps(asdict(job))


def build_batch(batch_bytes: int, codec: Compression = Compression.NONE) -> tuple[bytes, int]:
    """A batch of at most `batch_bytes` bytes before it is compressed, and its number of records."""
    overhead = 16
    records = max(1, (batch_bytes - 61) // (RECORD_BYTES + overhead))
    batch = batch_of(records, RECORD_BYTES, codec)
    assert len(batch) <= batch_bytes
    return batch, records


def batch_of(records: int, record_bytes: int, codec: Compression = Compression.NONE) -> bytes:
    """A batch of records whose values, all the same, have `record_bytes` incompressible bytes."""
    value = os.urandom(record_bytes)
    builder = BatchBuilder(codec)
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, value)
    return bytes(builder.build())


def produce(connection: socket.socket, job: RawJob) -> Result:
    """Send batches to the partitions in turn, acks=1."""
    batch, records = build_batch(job.batch_bytes)
    frames = [produce_frame(job.topic, number, batch) for number in range(job.partitions)]
    for number, frame in enumerate(frames):
        connection.sendall(frame)
        check_produced(_read(connection, ProduceRequest, PRODUCE_VERSION), number)
    connection.sendall(frames[0])
    answer_bytes = len(read_frame(connection)) + SIZE.size
    before = _end_offsets(connection, job)

    sent, seconds, latencies_ms = load(connection, job, frames, answer_bytes)
    grown = _end_offsets(connection, job) - before
    if grown != sent * records:
        raise LoadError(f"{sent * records} records were sent, and the log grew by {grown}")
    return Result(grown, sent * len(batch), seconds, percentiles(latencies_ms))


def fetch(connection: socket.socket, job: RawJob) -> Result:
    """Read batches that are in the page cache, one for each request."""
    batch, records = build_batch(job.batch_bytes)
    frame = produce_frame(job.topic, 0, batch)
    for _ in range(FETCHED_BATCHES):
        connection.sendall(frame)
        check_produced(_read(connection, ProduceRequest, PRODUCE_VERSION), 0)
    frames = [fetch_frame(job.topic, number * records, len(batch)) for number in range(FETCHED_BATCHES)]
    connection.sendall(frames[0])
    answer = read_frame(connection)
    _check_fetched(decode_response(FetchRequest, FETCH_VERSION, answer), batch)
    received, seconds, latencies_ms = load(connection, job, frames, len(answer) + SIZE.size)
    # Another size would put later responses out of step with their requests.
    connection.sendall(frames[0])
    _check_fetched(_read(connection, FetchRequest, FETCH_VERSION), batch)
    return Result(received * records, received * len(batch), seconds, percentiles(latencies_ms))


def load(
    connection: socket.socket, job: RawJob, frames: list[bytes], answer_bytes: int
) -> tuple[int, float, list[float]]:
    """Send the frames in a cycle for the time of the job. Returns the number of answered requests, the
    seconds taken, and the latency of each request in ms."""
    buffer = bytearray(_RECEIVE_BYTES)
    turn = itertools.cycle(frames)
    in_flight: deque[float] = deque()
    latencies_ms: list[float] = []
    sent = received = 0
    now = started = time.perf_counter()
    deadline = started + job.seconds
    while in_flight or now < deadline:
        free = job.window - len(in_flight)
        if now < deadline and free >= (job.window + 1) // 2:
            _send_all(connection, list(itertools.islice(turn, free)))
            in_flight.extend([now] * free)
            sent += free
        count = connection.recv_into(buffer)
        if not count:
            raise LoadError("the broker closed the connection")
        received += count
        now = time.perf_counter()
        answered = len(in_flight) - (sent - received // answer_bytes)
        latencies_ms += [(now - in_flight.popleft()) * 1000 for _ in range(answered)]
    return sent, now - started, latencies_ms


def _send_all(connection: socket.socket, frames: list[bytes]) -> None:
    """Send frames in one system call if possible, without joining them first."""
    left = connection.sendmsg(frames)
    for frame in frames:
        if left < len(frame):
            connection.sendall(memoryview(frame)[left:])
        left = max(0, left - len(frame))


def produce_frame(
    topic: str, partition: int, batch: bytes, client_id: str = "raw", *, acks: int = 1
) -> bytes:
    """The bytes of a Produce request with one batch; `acks` is 1 or -1 (all)."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[data])
    return join_parts(encode_request(request, PRODUCE_VERSION, 0, client_id))


def fetch_frame(
    topic: str,
    offset: int,
    max_bytes: int,
    client_id: str = "raw",
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
) -> bytes:
    """The bytes of a Fetch request without a session, answered at once unless `max_wait_ms` is given."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        session_id=0,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return join_parts(encode_request(request, FETCH_VERSION, 0, client_id))


def check_produced(answer: Any, partition: int) -> None:
    """Raise LoadError if a Produce response has an error."""
    (written,) = answer.responses[0].partition_responses
    if written.error_code != ErrorCode.NONE:
        raise LoadError(f"produce to partition {partition}: {ErrorCode(written.error_code).name}")


def _check_fetched(answer: Any, batch: bytes) -> None:
    (read,) = answer.responses[0].partitions
    if read.error_code != ErrorCode.NONE:
        raise LoadError(f"fetch: {ErrorCode(read.error_code).name}")
    # The broker sets the fields before the checksum (base offset, leader epoch).
    if bytes(read.records)[17:] != batch[17:]:
        raise LoadError("fetch returned something other than the batch written there")


def _end_offsets(connection: socket.socket, job: RawJob) -> int:
    """The sum of the partitions' log end offsets."""
    wanted = [ListOffsetsPartition(partition_index=n, timestamp=_LATEST) for n in range(job.partitions)]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[ListOffsetsTopic(name=job.topic, partitions=wanted)]
    )
    connection.sendall(join_parts(encode_request(request, LIST_OFFSETS_VERSION, 0, "raw")))
    answer = _read(connection, ListOffsetsRequest, LIST_OFFSETS_VERSION)
    return sum(partition.offset for partition in answer.topics[0].partitions)


def _read(connection: socket.socket, request: type[Request[R]], version: int) -> R:
    return decode_response(request, version, read_frame(connection))


def read_frame(connection: socket.socket) -> bytes:
    """The next response, without its size. Raises `LoadError` if the broker closes the connection."""
    (size,) = SIZE.unpack(_read_exactly(connection, SIZE.size))
    return _read_exactly(connection, size)


def _read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    filled = 0
    while filled < size:
        count = connection.recv_into(memoryview(data)[filled:])
        if not count:
            raise LoadError("the broker closed the connection")
        filled += count
    return bytes(data)


if __name__ == "__main__":
    main(sys.argv[1])
