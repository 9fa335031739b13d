"""Well-behaved neighbours of a hostile client: how long a broker makes them wait.

    python -m tests.hostile.neighbour FILE PORT KIND PID

A neighbour is a process of its own, so that what the hostile client does in its process does not slow it. It
takes rounds until it is ended, and notes in FILE when each began, how long it took, and how much processor
time the broker, whose process is PID, spent meanwhile. Where others use the processors too, the former grows
with what they do; the latter is what the broker itself did before it had served the neighbour.
"""

from __future__ import annotations

import math
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from holdfast_log.coordinator.parent_process import die_with_parent
from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from holdfast_log.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast_log.protocol.messages.update_metadata import UpdateMetadataRequest
from tests.integration.raw_socket import RawSocket
from tests.models.batches import batch

TOPIC = "neighbour"
_ROUND_S = 0.01
"""A round begins so long after the last one began, or at once where that one took longer."""
_SAMPLE = struct.Struct("<dddd")
_WAIT_S = 120.0
_POLL_S = 0.01


class Kind(StrEnum):
    """What a neighbour does in a round."""

    CLIENT = "client"
    """Produces a record with acks=all, and fetches it."""
    CONTROLLER = "controller"
    """Sends an order to the listener of brokers: one for an earlier registration, which changes nothing."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long rounds took. `failed` rounds had an error, or lost the connection."""

    rounds: int
    failed: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    work_p50_ms: float = 0.0
    """Processor time of the broker in a round."""
    work_p99_ms: float = 0.0


def pace_of(times_ms: Sequence[float], work_ms: Sequence[float] = (0.0,)) -> Pace:
    """`times_ms` are infinite for rounds that failed; `work_ms` is the broker's processor time in each."""
    ordered, work = sorted(times_ms), sorted(work_ms)
    return Pace(
        len(ordered),
        sum(map(math.isinf, ordered)),
        percentile(ordered, 0.5),
        percentile(ordered, 0.99),
        ordered[-1],
        percentile(work, 0.5),
        percentile(work, 0.99),
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that is not exceeded by this share of the values."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _pace(rounds: Sequence[tuple[float, ...]]) -> Pace:
    return pace_of([took_ms for *_, took_ms, _ in rounds], [work_ms for *_, work_ms in rounds])


class Neighbour:
    """A running neighbour."""

    def __init__(self, process: subprocess.Popen[bytes], path: Path) -> None:
        self._process = process
        self._path = path
        self._read_bytes = 0
        # When each began and ended, by the monotonic clock; ms, without end if it failed; work in ms.
        self._rounds: list[tuple[float, ...]] = []

    def pace(self, began_s: float, ended_s: float, wait_s: float = _WAIT_S) -> Pace:
        """The rounds that fell into this time, wholly or in part. The last one is waited for: one that the
        broker has not answered after `wait_s` counts as failed."""
        waits_until_s = time.monotonic() + wait_s
        while not (self._read() and self._rounds[-1][0] >= ended_s):
            if self._process.poll() is not None:
                raise ChildProcessError("the neighbour has ended; its message is above")
            if time.monotonic() > waits_until_s:
                return _pace([*self._within(began_s, ended_s), (0.0, 0.0, math.inf, 0.0)])
            time.sleep(_POLL_S)
        # A short time may lie between two rounds.
        return _pace(list(self._within(began_s, ended_s)) or self._rounds[-1:])

    def _within(self, began_s: float, ended_s: float) -> Iterator[tuple[float, ...]]:
        for each in self._rounds:
            at_s, until_s, *_ = each
            if at_s <= ended_s and until_s >= began_s:
                yield each

    def _read(self) -> bool:
        """Read what is new. Returns whether there is any round."""
        with open(self._path, "rb") as file:
            file.seek(self._read_bytes)
            data = file.read()
        data = data[: len(data) // _SAMPLE.size * _SAMPLE.size]
        self._read_bytes += len(data)
        self._rounds += _SAMPLE.iter_unpack(data)
        return bool(self._rounds)


@contextmanager
def running_neighbour(directory: Path, port: int, kind: Kind, pid: int = 0) -> Iterator[Neighbour]:
    """A neighbour that takes rounds until the block ends. `pid` is the process of the broker; 0: its work is
    of no interest."""
    path = directory / f"rounds-{kind}"
    path.write_bytes(b"")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(path), str(port), kind, str(pid)], preexec_fn=die_with_parent
    )
    try:
        yield Neighbour(process, path)
    finally:
        process.terminate()
        process.wait()


# -- in the neighbour's process ------------------------------------------------------------------------------


def order(socket: RawSocket) -> None:
    """Send an order of a controller for an earlier registration of the broker."""
    request = UpdateMetadataRequest(
        controller_id=1, controller_epoch=0, broker_epoch=0, topic_states=[], live_brokers=[]
    )
    refusal = socket.call(request).error_code
    assert refusal == ErrorCode.STALE_BROKER_EPOCH, f"the order was answered by error {refusal}"


def produce_and_fetch(socket: RawSocket) -> None:
    """Append a record, and read it."""
    # Records of long ago would soon be too old for the topic, and be deleted before they are read.
    records = batch(b"x" * 100, timestamp=int(time.time() * 1000))
    produced = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[produced])]
    )
    (appended,) = socket.call(request, 9).responses[0].partition_responses
    assert not appended.error_code, f"produce was answered by error {appended.error_code}"
    wanted = FetchPartition(partition=0, fetch_offset=appended.base_offset, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
    (fetched,) = (
        socket.call(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=topics), 11).responses[0].partitions
    )
    assert not fetched.error_code, f"fetch was answered by error {fetched.error_code}"
    assert fetched.records, "the fetch has not returned the record"


def create_topic(port: int) -> None:
    """Create the topic of the neighbour, unless it exists."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with RawSocket(port) as socket:
        socket.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
        while True:
            try:
                return produce_and_fetch(socket)
            except AssertionError:  # Its leader has not taken it over yet.
                time.sleep(_POLL_S)


def take_rounds(path: Path, port: int, act: Callable[[RawSocket], None], work_s: Callable[[], float]) -> None:
    """Take rounds on one connection, and on a new one after each failure, without an end. `work_s` is the
    processor time of the broker."""
    with open(path, "ab", buffering=0) as file:
        while True:
            with RawSocket(port, client_id=TOPIC) as socket:
                is_open = True
                while is_open:
                    began_s, work_before_s = time.monotonic(), work_s()
                    try:
                        act(socket)
                        took_s = time.monotonic() - began_s
                    except (OSError, AssertionError) as error:
                        print(f"neighbour: {error!r}", file=sys.stderr, flush=True)
                        is_open, took_s = False, math.inf
                    worked_s = work_s() - work_before_s
                    file.write(_SAMPLE.pack(began_s, time.monotonic(), took_s * 1000, worked_s * 1000))
                    time.sleep(max(0.0, began_s + _ROUND_S - time.monotonic()))


def processor_time(pid: int) -> Callable[[], float]:
    """Tells the processor time of a process, in s."""
    clock = ~pid << 3 | 2  # As clock_getcpuclockid makes it.
    return lambda: time.clock_gettime(clock)


def main() -> None:
    path, port, kind, pid = Path(sys.argv[1]), int(sys.argv[2]), Kind(sys.argv[3]), int(sys.argv[4])
    if kind is Kind.CLIENT:
        create_topic(port)
    act = produce_and_fetch if kind is Kind.CLIENT else order
    take_rounds(path, port, act, processor_time(pid) if pid else float)


if __name__ == "__main__":
    main()
