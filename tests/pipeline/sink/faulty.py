"""The sink with faults: format("holdfast-faulty") fails tasks in their first attempt, as its options say."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pipeline.sink.chunks import LineIdentity
from pipeline.sink.cluster import AppendOutcome, SinkCluster
from pipeline.sink.line import ChunkLine, SinkError
from pipeline.sink.state import Run
from pipeline.sink.store import QueryStore
from pipeline.sink.task import SinkTask
from pipeline.sink.writers import StreamSink
from pipeline.source import HoldfastDataSource

HOME = Path(__file__).parents[3]
NO_FAULT = "none"
TASK_FAULTS = ("raise-before", "raise-amid", "raise-after", "kill-amid", "kill-after", "zombie")
SLOW, VERY_SLOW, STALLED = "slow", "very-slow", "stalled"
"""Every task takes its time, so that what stops queries meets running writers."""
_ZOMBIE_S = 3.0
_PAUSES_S = {SLOW: 0.05, VERY_SLOW: 0.5, STALLED: 3.0}


class FaultError(Exception):
    """The fault that a test asked for."""


class FaultyDataSource(HoldfastDataSource):
    """HoldfastDataSource with the options fault, and faultDirectory: where zombies report how they ended."""

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
        if fault not in _PAUSES_S and (context.attemptNumber() or (batch + context.partitionId()) % 3 == 2):
            fault = NO_FAULT
        self.fault = fault
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
        return message

    def _task(self, cluster: SinkCluster, store: QueryStore, identity: LineIdentity, run: Run) -> SinkTask:
        return FaultyTask(cluster, store, self.options, identity, run, self.fault)

    def _leave_zombie(self, batches: list[Any]) -> None:
        """Begin to write in another process, which continues once a successor has had time to finish."""
        context = TaskContext.get()
        assert context is not None
        query = context.getLocalProperty("sql.streaming.queryId") or ""
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        identity = LineIdentity(query, batch, context.partitionId())
        run = Run(context.getLocalProperty("spark.jobGroup.id") or query, "zombie", 0)
        report = Path(self.directory) / f"{batch}-{context.partitionId()}-{os.getpid()}"
        given = pickle.dumps((self.options, identity, run, str(report), batches))
        # A process of its own: Spark ends the worker of a task that has failed.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tests.pipeline.sink.faulty"],
            cwd=HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(given)
        process.stdin.close()
        process.stdout.readline()  # It has written its first chunk, or all.


def live_on() -> None:
    """The zombie: write the rows from standard input, with a long pause, and report how that ended."""
    options, identity, run, report, batches = pickle.load(sys.stdin.buffer)
    cluster = SinkCluster(options.client)
    store = QueryStore(cluster, options.client)
    try:
        counts = FaultyTask(cluster, store, options, identity, run, "zombie").write(batches).counts
        said = f"wrote {counts.rows} rows"
    except SinkError as error:
        said = f"refused {type(error).__name__}: {error}"
    Path(report).write_text(said)


class FaultyTask(SinkTask):
    """SinkTask that meets its fault when its first chunk is in the log."""

    def __init__(
        self,
        cluster: SinkCluster,
        store: QueryStore,
        options: Any,
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
            case "zombie":
                print("begun", flush=True)
                time.sleep(_ZOMBIE_S)


if __name__ == "__main__":
    live_on()
