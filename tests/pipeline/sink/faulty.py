"""The sink with faults: format("holdfast-faulty") fails tasks in their first attempt, as its options say."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast_log.pipeline.sink.chunks import LineIdentity
from holdfast_log.pipeline.sink.cluster import AppendOutcome, SinkCluster
from holdfast_log.pipeline.sink.line import ChunkLine, SinkError
from holdfast_log.pipeline.sink.options import WriteOptions
from holdfast_log.pipeline.sink.plain import write_plainly
from holdfast_log.pipeline.sink.state import Run
from holdfast_log.pipeline.sink.store import QueryStore
from holdfast_log.pipeline.sink.task import SinkTask
from holdfast_log.pipeline.sink.writers import StreamSink, TaskMessage
from holdfast_log.pipeline.source import HoldfastDataSource

NO_FAULT = "none"
TASK_FAULTS = ("raise-before", "raise-amid", "raise-after", "kill-amid", "kill-after", "zombie")
SLOW, STALLED = "slow", "stalled"
"""Every task takes its time, so that what stops queries meets running writers: it pauses after each chunk, or
waits for the file `RELEASED` once its first chunk is in the log. A slow task does that too in the micro-batch
that the file `LAST` names. After the file `RELEASED` no task takes its time."""
STRIKES, FINISHED, ZOMBIES = "strikes", "finished", "zombies"
"""Folders in the fault directory. A file for each attempt that was made to fail or to wait; for each task
that has written its rows; for each zombie that has ended, with how."""
RELEASED = "released"
"""A file in the fault directory, which ends what `SLOW` and `STALLED` do."""
LAST = "last"
"""A file in the fault directory with the number of the last micro-batch, in which slow tasks wait: the query
does not end before it is stopped, however late that is."""
_PAUSE_S = 0.05
_PLAIN_PAUSE_S = 0.3
"""With at-least-once, a slow task pauses once, amid its rows."""
_RELEASE_S = 600.0
"""A stalled task continues at the latest after this time."""
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
    """StreamSink whose tasks fail in their first attempt, in two of three micro-batches.

    With at-least-once, amid its rows is a task when the first half of them is acknowledged.
    """

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
        if fault not in (SLOW, STALLED) and (
            context.attemptNumber() or (batch + context.partitionId()) % 3 == 2
        ):
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

    def _write(self, batches: Iterator[Any], identity: LineIdentity, run_id: str) -> TaskMessage:
        if self.options.is_exactly_once:
            return super()._write(batches, identity, run_id)
        begin, rest = _halves(list(batches))
        super()._write(iter(begin), identity, run_id)
        take_time(self.fault, Path(self.directory), identity, _PLAIN_PAUSE_S, is_first=True)
        meet(self.fault)
        return super()._write(iter(rest), identity, run_id)

    def _task(self, cluster: SinkCluster, store: QueryStore, identity: LineIdentity, run: Run) -> SinkTask:
        return FaultyTask(cluster, store, self.options, identity, run, self.fault, Path(self.directory))

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


def _halves(batches: list[Any]) -> tuple[list[Any], list[Any]]:
    """The first half of the rows of each record batch, and the others."""
    middles = [(batch, batch.num_rows // 2) for batch in batches]
    return [batch.slice(0, middle) for batch, middle in middles], [
        batch.slice(middle) for batch, middle in middles
    ]


def take_time(fault: str, directory: Path, identity: LineIdentity, pause_s: float, *, is_first: bool) -> None:
    """Pause a slow task; have a stalled one wait, once its first rows are in the log."""
    released = directory / RELEASED
    waits = fault == STALLED and is_first
    if waits:
        (directory / STRIKES / f"{identity.batch}-{identity.task}-{os.getpid()}").touch()
    elif fault == SLOW and not released.exists():
        time.sleep(pause_s)
        last = directory / LAST
        waits = is_first and last.exists() and int(last.read_text()) == identity.batch
    if waits:
        until = time.monotonic() + _RELEASE_S
        while not released.exists() and time.monotonic() < until:
            time.sleep(_LOOK_S)


def meet(fault: str) -> None:
    """Fail here, if the fault strikes amid the rows of a task."""
    match fault:
        case "raise-amid":
            raise FaultError("amid the rows")
        case "kill-amid":
            os.kill(os.getpid(), signal.SIGKILL)


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
    rest = Rest.of(identity, directory, begins)
    try:
        cluster = SinkCluster(options.client)
        if options.is_exactly_once:
            store = QueryStore(cluster, options.client)
            task = ZombieTask(cluster, store, options, identity, run, directory, rest)
            said = f"wrote {task.write(batches).counts.rows} rows"
        else:
            turn = identity.batch + identity.task
            begin, end = _halves(batches)
            write_plainly(begin, options, lambda topic: len(cluster.topic(topic).partitions), turn)
            rest.take()
            write_plainly(end, options, lambda topic: len(cluster.topic(topic).partitions), turn)
            said = f"wrote {sum(batch.num_rows for batch in batches)} rows"
    except SinkError as error:
        said = f"refused {type(error).__name__}: {error}"
    except Exception as error:
        said = f"failed {type(error).__name__}: {error}"
    finally:
        report = directory / ZOMBIES / f"{identity.batch}-{identity.task}-{os.getpid()}"
        report.with_suffix(".part").write_text(said)
        report.with_suffix(".part").rename(report.with_suffix(".txt"))


@dataclass(frozen=True, slots=True)
class Rest:
    """How long a zombie rests when its first rows are in the log: in every other micro-batch until Spark has
    committed the micro-batch, otherwise until a successor has written its rows."""

    begins: int
    finished: Path
    longer_s: float

    @classmethod
    def of(cls, identity: LineIdentity, directory: Path, begins: int) -> Rest:
        if identity.batch % 2:
            return cls(begins, directory / "checkpoint" / "commits" / str(identity.batch), _AFTER_COMMIT_S)
        return cls(begins, directory / FINISHED / f"{identity.batch}-{identity.task}", 0.0)

    def take(self) -> None:
        """Say through `begins` that rows are in the log, and rest."""
        os.write(self.begins, b"1")
        until = time.monotonic() + _ZOMBIE_S
        while not self.finished.exists() and time.monotonic() < until:
            time.sleep(_LOOK_S)
        time.sleep(self.longer_s)


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
        directory: Path,
    ) -> None:
        super().__init__(cluster, store, options, identity, run)
        self._fault = fault
        self._directory = directory
        self._outcomes = 0
        self._fault_outcome = 1 + zlib.crc32(identity.prefix) % 3

    def _take(self, line: ChunkLine, outcome: AppendOutcome) -> None:
        super()._take(line, outcome)
        self._outcomes += 1
        take_time(self._fault, self._directory, self._identity, _PAUSE_S, is_first=self._outcomes == 1)
        if self._outcomes == self._fault_outcome:
            self._strike()

    def _strike(self) -> None:
        meet(self._fault)


class ZombieTask(FaultyTask):
    """SinkTask that rests when its first chunk is in the log."""

    def __init__(
        self,
        cluster: SinkCluster,
        store: QueryStore,
        options: WriteOptions,
        identity: LineIdentity,
        run: Run,
        directory: Path,
        rest: Rest,
    ) -> None:
        super().__init__(cluster, store, options, identity, run, "zombie", directory)
        self._rest = rest

    def _strike(self) -> None:
        self._rest.take()
