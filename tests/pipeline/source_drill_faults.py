"""The source with faults: format("holdfast-unsteady") fails the first attempts of its tasks.

In turn, tasks fail before they read, lose their Python process (SIGKILL) amid their fetches, wait amid their
fetches until the leader of their partition was killed, and fail after everything was read. A folder, the
option faultDirectory, has a file for each fault that has struck; by it the drill and waiting tasks agree.
"""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from holdfast_log.clients.fetching.fetched import EncodedBatch
from holdfast_log.pipeline.cluster import open_consumer
from holdfast_log.pipeline.offsets import OffsetRange
from holdfast_log.pipeline.options import ReadOptions
from holdfast_log.pipeline.ranges import BatchConsumer, batches
from holdfast_log.pipeline.source import HoldfastDataSource, HoldfastReader
from holdfast_log.pipeline.stream_reader import HoldfastStreamReader
from holdfast_log.protocol.topic_partition import TopicPartition

NAME = "holdfast-unsteady"
RAISE_BEFORE, RAISE_AFTER, KILL, FAILOVER = "raise-before", "raise-after", "kill", "failover"
_NONE = "none"
_IN_TURN = (KILL, FAILOVER, RAISE_BEFORE, _NONE, RAISE_AFTER, _NONE)
_WAIT_S = 300.0
_LOOK_S = 0.01
_RELEASED = ".released"


class FaultError(Exception):
    """The fault that the drill asked for."""


# Files ------------------------------------------------------------------------------------------------


class FaultDirectory:
    """The files by which tasks and the drill agree."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, fault: str, attempt: str) -> Path:
        """Note that a fault strikes this attempt of a task."""
        path = self.path / f"{fault}@{attempt}"
        path.touch()
        return path

    def count(self, *faults: str) -> int:
        """How often these faults have struck."""
        return sum(path.name.partition("@")[0] in faults for path in self.path.iterdir())

    def await_failover(self, partition: int, attempt: str) -> None:
        """Wait until the drill has killed the leader of a partition, or says that it will not. Raises
        TimeoutError."""
        waiting = self.note(f"waiting-{partition}", attempt)
        deadline = time.monotonic() + _WAIT_S
        while not waiting.with_name(waiting.name + _RELEASED).exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the drill has not released the task for {_WAIT_S:.0f} s")
            time.sleep(_LOOK_S)

    def waiting(self) -> list[tuple[int, Path]]:
        """The tasks that wait, each by its partition and its file."""
        names = {path.name for path in self.path.iterdir()}
        return [
            (int(name.partition("@")[0].removeprefix("waiting-")), self.path / name)
            for name in sorted(names)
            if name.startswith("waiting-") and not name.endswith(_RELEASED) and name + _RELEASED not in names
        ]

    def release(self, waiting: Path) -> None:
        """Let a task continue."""
        waiting.with_name(waiting.name + _RELEASED).touch()


# Faults -----------------------------------------------------------------------------------------------


def fault_of(seed: int, batch: int, task: int, attempt: int) -> str:
    """The fault of an attempt: each kind in turn for first attempts, and a kill for one of four second
    attempts."""
    if attempt == 0:
        return _IN_TURN[(seed + batch + task) % len(_IN_TURN)]
    is_killed_again = attempt == 1 and zlib.crc32(f"{seed}:{batch}:{task}".encode()) % 4 == 0
    return KILL if is_killed_again else _NONE


class StruckConsumer:
    """A `BatchConsumer` that calls `strike` once, after the first fetched records."""

    def __init__(self, consumer: BatchConsumer, strike: Callable[[], None]) -> None:
        self._consumer = consumer
        self._strike: Callable[[], None] | None = strike

    def poll_encoded(self, timeout_ms: int = 0) -> Sequence[EncodedBatch]:
        found = self._consumer.poll_encoded(timeout_ms)
        if found and self._strike is not None:
            strike, self._strike = self._strike, None
            strike()
        return found

    def position(self, partition: TopicPartition) -> int:
        return self._consumer.position(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._consumer.seek(partition, offset)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._consumer.beginning_offsets(partitions)


def read_unsteadily(wanted: OffsetRange, options: ReadOptions, seed: int, folder: str) -> Iterator[Any]:
    """`pipeline.ranges.read_range` under the fault of this attempt of the task."""
    context = TaskContext.get()
    assert context is not None
    batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
    fault = fault_of(seed, batch, context.partitionId(), context.attemptNumber())
    attempt = f"{batch}-{context.partitionId()}-{context.attemptNumber()}-{os.getpid()}"
    directory = FaultDirectory(Path(folder))

    def strike() -> None:
        if fault == KILL:
            directory.note(fault, attempt)
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == FAILOVER:
            directory.await_failover(wanted.partition.partition, attempt)

    if fault == RAISE_BEFORE:
        directory.note(fault, attempt)
        raise FaultError("before anything was read")
    with open_consumer(options.client) as consumer:
        consumer.add_topic(*wanted.partition)
        yield from batches(StruckConsumer(consumer, strike), wanted, options, time.monotonic)
    if fault == RAISE_AFTER:
        directory.note(fault, attempt)
        raise FaultError("after everything was read")


# For Spark --------------------------------------------------------------------------------------------


class UnsteadyDataSource(HoldfastDataSource):
    """HoldfastDataSource with the options faultSeed and faultDirectory."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def _given(self) -> dict[str, str]:
        return {key: value for key, value in dict(self.options).items() if not key.startswith("fault")}

    def _fault(self) -> tuple[int, str]:
        return int(self.options["faultSeed"]), self.options["faultDirectory"]

    def reader(self, schema: StructType) -> DataSourceReader:
        return UnsteadyReader(self._given(), *self._fault())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return UnsteadyStreamReader(self._given(), *self._fault())


class UnsteadyReader(HoldfastReader):
    """HoldfastReader whose tasks fail."""

    def __init__(self, given: dict[str, str], seed: int, folder: str) -> None:
        super().__init__(given)
        self._seed = seed
        self._folder = folder

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_unsteadily(partition.value, self._options, self._seed, self._folder)


class UnsteadyStreamReader(HoldfastStreamReader):
    """HoldfastStreamReader whose tasks fail."""

    def __init__(self, given: dict[str, str], seed: int, folder: str) -> None:
        super().__init__(given)
        self._seed = seed
        self._folder = folder

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_unsteadily(partition.value, self._options.read, self._seed, self._folder)
