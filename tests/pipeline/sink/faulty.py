"""The sink with faults: format("holdfast-faulty") fails tasks in their first attempt, as its options say."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pipeline.sink.chunks import LineIdentity
from pipeline.sink.cluster import AppendOutcome, SinkCluster
from pipeline.sink.line import ChunkLine, SinkError
from pipeline.sink.options import WriteOptions
from pipeline.sink.state import Run
from pipeline.sink.store import QueryStore
from pipeline.sink.task import SinkTask
from pipeline.sink.writers import StreamSink
from pipeline.source import HoldfastDataSource

NO_FAULT = "none"
TASK_FAULTS = ("raise-before", "raise-amid", "raise-after", "kill-amid", "kill-after", "zombie")
SLOW, STALLED = "slow", "stalled"
"""Every task takes its time, so that what stops queries meets running writers."""
STRIKES, FINISHED, ZOMBIES = "strikes", "finished", "zombies"
"""Folders in the fault directory. A file for each attempt that was made to fail; for each task that has
written its rows; for each zombie that has ended, with how."""
_PAUSES_S = {SLOW: 0.05, STALLED: 3.0}
_ZOMBIE_S = 60.0
"""A zombie wakes at the latest after this time, if no successor finishes."""
_LOOK_S = 0.05
_AFTER_COMMIT_S = 1.2
"""Longer than a task relies on the record of its query."""


class FaultError(Exception):
    """The fault that a test asked for."""


class FaultyDataSource(HoldfastDataSource):
    """HoldfastDataSource with the options fault, and faultDirectory: where the query has its checkpoint and
    the folders of `STRIKES`, `FINISHED` and `ZOMBIES`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast-faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        given = {key: value for key, value in dict(self.options).items() if not key.startswith("fault")}
        options = dict(self.options)
        return FaultyStreamSink(
            given,
            schema,
            is_overwrite=overwrite,
            fault=options.get("fault", NO_FAULT),
            directory=options.get("faultdirectory", ""),
        )


class FaultyStreamSink(StreamSink):
    """StreamSink whose tasks fail in their first attempt, in two of three micro-batches."""

    def __init__(
        self, given: dict[str, str], schema: StructType, *, is_overwrite: bool, fault: str, directory: str
    ) -> None:
        super().__init__(given, schema, is_overwrite=is_overwrite)
        self.fault = fault
        self.directory = directory

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        fault = self.fault
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        task = f"{batch}-{context.partitionId()}"
        if fault not in _PAUSES_S and (context.attemptNumber() or (batch + context.partitionId()) % 3 == 2):
            fault = NO_FAULT
        self.fault = fault
        if fault in TASK_FAULTS:
            (Path(self.directory) / STRIKES / f"{task}-{os.getpid()}").touch()
        if fault == "raise-before":
            raise FaultError("before anything was written")
        if fault == "zombie":
            self._leave_zombie(list(iterator))
            raise FaultError("Spark takes this task for dead, and it is not")
        message = super().write(iterator)
        if fault in ("raise-after", "raise-amid"):
            raise FaultError("after everything was written")
        if fault in ("kill-after", "kill-amid"):
            os.kill(os.getpid(), signal.SIGKILL)
        (Path(self.directory) / FINISHED / task).touch()
        return message

    def _task(self, cluster: SinkCluster, store: QueryStore, identity: LineIdentity, run: Run) -> SinkTask:
        return FaultyTask(cluster, store, self.options, identity, run, self.fault)

    def _leave_zombie(self, batches: list[Any]) -> None:
        """Begin to write in another process, which continues once a successor has finished."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        identity = LineIdentity(query, batch, context.partitionId())
        run = Run(context.getLocalProperty("spark.jobGroup.id") or query, "zombie", 0)
        begun, begins = os.pipe()
        # A process of its own, which Spark does not know: it ends the worker of a task that has failed.
        if os.fork() == 0:
            try:
                os.setsid()
                _give_up_files(begins)
                live_on(self.options, identity, run, batches, Path(self.directory), begins)
            finally:
                os._exit(0)
        os.close(begins)
        os.read(begun, 1)  # It has written its first chunk, or all.
        os.close(begun)


def _give_up_files(kept: int) -> None:
    """Point all files of this process but one and the standard ones to nowhere. Their numbers stay in use:
    objects that this process inherited would close files opened under them."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in [int(name) for name in os.listdir("/proc/self/fd")]:
        if number > 2 and number not in (kept, nowhere):
            with suppress(OSError):  # The file by which the numbers were listed.
                os.fstat(number)
                os.dup2(nowhere, number)


def live_on(
    options: WriteOptions,
    identity: LineIdentity,
    run: Run,
    batches: list[Any],
    directory: Path,
    begins: int,
) -> None:
    """The zombie: write a chunk or more, tell so through `begins`, wait until a successor has finished, write
    the rest, and report how that ended."""
    said = "failed"
    try:
        cluster = SinkCluster(options.client)
        store = QueryStore(cluster, options.client)
        task = ZombieTask(cluster, store, options, identity, run, directory, begins)
        said = f"wrote {task.write(batches).counts.rows} rows"
    except SinkError as error:
        said = f"refused {type(error).__name__}: {error}"
    except Exception as error:
        said = f"failed {type(error).__name__}: {error}"
    finally:
        report = directory / ZOMBIES / f"{identity.batch}-{identity.task}-{os.getpid()}"
        report.with_suffix(".part").write_text(said)
        report.with_suffix(".part").rename(report.with_suffix(".txt"))


class FaultyTask(SinkTask):
    """SinkTask that meets its fault when its first chunk is in the log."""

    def __init__(
        self,
        cluster: SinkCluster,
        store: QueryStore,
        options: WriteOptions,
        identity: LineIdentity,
        run: Run,
        fault: str,
    ) -> None:
        super().__init__(cluster, store, options, identity, run)
        self._fault = fault
        self._first_outcomes = 1 + zlib.crc32(identity.prefix) % 3

    def _take(self, line: ChunkLine, outcome: AppendOutcome) -> None:
        super()._take(line, outcome)
        self._first_outcomes -= 1
        time.sleep(_PAUSES_S.get(self._fault, 0))
        if self._first_outcomes != 0:
            return
        match self._fault:
            case "raise-amid":
                raise FaultError("amid the chunks")
            case "kill-amid":
                os.kill(os.getpid(), signal.SIGKILL)


class ZombieTask(FaultyTask):
    """SinkTask that pauses when its first chunk is in the log: in every other micro-batch until a successor
    has committed the micro-batch, otherwise until a successor has written its rows."""

    def __init__(
        self,
        cluster: SinkCluster,
        store: QueryStore,
        options: WriteOptions,
        identity: LineIdentity,
        run: Run,
        directory: Path,
        begins: int,
    ) -> None:
        super().__init__(cluster, store, options, identity, run, "zombie")
        self._begins = begins
        self._finished = directory / FINISHED / f"{identity.batch}-{identity.task}"
        self._rest_s = 0.0
        if identity.batch % 2:
            self._finished = directory / "checkpoint" / "commits" / str(identity.batch)
            self._rest_s = _AFTER_COMMIT_S

    def _take(self, line: ChunkLine, outcome: AppendOutcome) -> None:
        super()._take(line, outcome)
        if self._first_outcomes != 0:
            return
        os.write(self._begins, b"1")
        until = time.monotonic() + _ZOMBIE_S
        while not self._finished.exists() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        time.sleep(self._rest_s)
