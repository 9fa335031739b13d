"""A cluster that was started as a user does, for attacks on plain sockets, and how they say what happened."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from holdfast_log.protocol.errors import ErrorCode
from holdfast_log.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast_log.protocol.messages.find_coordinator import FindCoordinatorRequest
from holdfast_log.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast_log.protocol.messages.metadata import MetadataRequest
from holdfast_log.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.hostile.neighbour import Kind, Neighbour, processor_time, running_neighbour
from tests.integration.raw_socket import RawSocket
from tests.integration.waiting import DEADLINE_S, until
from tests.models.batches import batch

T = TypeVar("T")
TOPIC = "walked"
_LATEST = -1


@dataclass(frozen=True, slots=True)
class Scene:
    """The cluster that is attacked."""

    port: int
    pid: int
    log: Path
    idle: int
    """Number of connections of `idle_connections`."""
    neighbour: Neighbour
    work_s: Callable[[], float]
    """Tells the processor time of the broker, which does not depend on what else the machine does."""

    def socket(self, name: str = "stranger", timeout_s: float = 60.0) -> RawSocket:
        return RawSocket(self.port, client_id=name, timeout_s=timeout_s)

    def ask(self, request: Any, version: int | None = None) -> Any:
        """The answer on a connection of its own; None if the broker closed it."""
        with self.socket() as connection:
            return connection.ask(request, version)


class NotHeld(Exception):
    """What the attack has done."""


def held(condition: bool, text: str) -> str:
    if not condition:
        raise NotHeld(text)
    return text


def names(codes: Counter[int]) -> str:
    return ", ".join(f"{count} times {ErrorCode(code).name}" for code, count in codes.items())


def create(
    scene: Scene, name: str, partitions: int = 1, *, only_validate: bool = False, **config: str
) -> Any:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=each) for key, each in config.items()]
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000, validate_only=only_validate)
    created = scene.ask(request).topics[0]
    if not created.error_code and not only_validate:
        # Its leader may not have taken it over yet, or clients may not be told of it yet.
        until(lambda: not _end_of(scene, name).error_code and all_are_led(scene))
    return created


def all_are_led(scene: Scene) -> bool:
    """Whether the metadata name a leader of every partition."""
    topics = scene.ask(MetadataRequest(topics=None), 12).topics
    return all(partition.leader_id >= 0 for topic in topics for partition in topic.partitions)


def _end_of(scene: Scene, topic: str) -> Any:
    """Where partition 0 of a topic ends, or the error of a broker that does not lead it."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=_LATEST)
    wanted = ListOffsetsTopic(name=topic, partitions=[partition])
    return scene.ask(ListOffsetsRequest(replica_id=-1, topics=[wanted]), 5).topics[0].partitions[0]


GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
LOADING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""Answers of a coordinator that has not read what it needs yet, or has not ended what was before."""


def await_coordinator(scene: Scene, key: str, kind: int) -> None:
    """Have the topic of the coordinators created, and wait for the coordinator."""
    until(lambda: not scene.ask(FindCoordinatorRequest(key=key, key_type=kind), 3).error_code)


def once_loaded(ask: Callable[[], T], codes: Callable[[T], Iterable[int]]) -> T:
    """Ask a coordinator until none of the `codes` of its answer says that it is not ready yet."""
    until_s = time.monotonic() + DEADLINE_S
    while True:
        answer = ask()
        if LOADING.isdisjoint(codes(answer)) or time.monotonic() > until_s:
            return answer
        time.sleep(0.1)


def produced(connection: RawSocket, records: bytes, topic: str = TOPIC) -> Any:
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return connection.call(request, 9).responses[0].partition_responses[0]


def work_of_produce_ms(scene: Scene, count: int) -> float:
    """The broker's processor time for a produce of another client, the mean of so many."""
    began_s = scene.work_s()
    with scene.socket("honest") as client:
        for _ in range(count):
            produced(client, batch(b"x"))
    return (scene.work_s() - began_s) / count * 1000


def longest_work_of_produce_ms(scene: Scene, seconds: float) -> float:
    """The broker's most processor time while another client waited for a produce, in so many seconds."""
    longest_s, ends_s = 0.0, time.monotonic() + seconds
    with scene.socket("honest") as client:
        while time.monotonic() < ends_s:
            began_s = scene.work_s()
            produced(client, batch(b"x"))
            longest_s = max(longest_s, scene.work_s() - began_s)
    return longest_s * 1000


def sizes(paths: Iterable[Path]) -> int:
    """The bytes of these files, without those that the broker removes meanwhile."""
    total = 0
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


def files_below(directory: Path) -> Iterator[Path]:
    """The directory and what is below it. What the broker removes meanwhile may be left out."""
    for folder, _, names in os.walk(directory):
        yield Path(folder)
        yield from (Path(folder, name) for name in names)


@contextmanager
def scene_of(port: int, directory: Path, idle: int) -> Iterator[Scene]:
    pid = next(each for each in broker_pids(directory))
    (log, *_) = sorted(directory.rglob("*broker*1*.log")) or sorted(directory.rglob("*.log"))
    with (
        tempfile.TemporaryDirectory() as text,
        running_neighbour(Path(text), port, Kind.CLIENT, pid) as neighbour,
    ):
        neighbour.pace(0, time.monotonic())
        yield Scene(port, pid, log, idle, neighbour, processor_time(pid))


def broker_pids(directory: Path) -> Iterator[int]:
    """The processes of brokers whose properties are in the directory."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"holdfast_log.broker" in words and any(os.fsencode(directory) in each for each in words):
                yield int(path.parent.name)
