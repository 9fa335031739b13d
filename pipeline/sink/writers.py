"""The writers that Spark calls: on the driver it makes one and pickles it for every task; for the commit it
makes another. So writers are plain data, and everything else travels in the tasks' messages.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from holdfast_log.pipeline.option_table import OptionError
from holdfast_log.pipeline.sink.chunks import LineIdentity
from holdfast_log.pipeline.sink.cluster import SinkCluster
from holdfast_log.pipeline.sink.line import LineCounts, SinkError
from holdfast_log.pipeline.sink.options import WriteOptions, write_options
from holdfast_log.pipeline.sink.rows import check_columns
from holdfast_log.pipeline.sink.state import QueryState, Run, TaskReport, committed, job_record_name
from holdfast_log.pipeline.sink.store import QueryStore
from holdfast_log.pipeline.sink.task import SinkTask
from holdfast_log.protocol.one_line import one_line

logger = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_RUN_ID = "spark.jobGroup.id"

_connections: dict[tuple[int, tuple[tuple[str, str], ...]], tuple[SinkCluster, QueryStore]] = {}
"""The connections of this process, by its id and the properties: Spark reuses Python workers."""


class TaskMessage(WriterCommitMessage):
    """What a task tells the driver; None from a task that wrote at least once."""

    def __init__(self, report: TaskReport | None) -> None:
        self.report = report


def connected(client: Mapping[str, str]) -> tuple[SinkCluster, QueryStore]:
    """The connection of this process with these properties, and the records of queries there."""
    key = os.getpid(), tuple(sorted(client.items()))
    if key not in _connections:
        cluster = SinkCluster(client)
        _connections[key] = cluster, QueryStore(cluster, client)
    return _connections[key]


class _Writer:
    """What batch and stream writers share."""

    def __init__(
        self, given: Mapping[str, str], schema: StructType, *, is_overwrite: bool, is_streaming: bool
    ) -> None:
        if is_overwrite:
            raise OptionError(
                'a topic cannot be overwritten, although Spark offers it: use .mode("append")'
                if not is_streaming
                else 'a topic cannot be overwritten: use .outputMode("append") or "update"'
            )
        self.options: WriteOptions = write_options(given, is_streaming=is_streaming)
        check_columns(schema, self.options.topic)
        # Here, on the driver, it fails once; in the tasks it would fail in each attempt of each task.
        connected(self.options.client)[0].check_reachable()

    def _write(self, batches: Iterator[Any], identity: LineIdentity, run_id: str) -> TaskMessage:
        if not self.options.is_exactly_once:
            from holdfast_log.pipeline.sink.plain import write_plainly

            cluster, _ = connected(self.options.client)
            turn = identity.batch + identity.task
            write_plainly(batches, self.options, lambda topic: len(cluster.topic(topic).partitions), turn)
            return TaskMessage(None)
        cluster, store = connected(self.options.client)
        run = Run(run_id, socket.gethostname(), cluster.wall_ms())
        try:
            return TaskMessage(self._task(cluster, store, identity, run).write(batches))
        except BaseException:
            # Whatever the task was doing, the next one of this process begins with a new connection.
            _forget(self.options.client)
            raise

    def _task(self, cluster: SinkCluster, store: QueryStore, identity: LineIdentity, run: Run) -> SinkTask:
        return SinkTask(cluster, store, self.options, identity, run)

    def _commit(
        self, messages: Sequence[WriterCommitMessage | None], batch: int, *, is_last: bool = False
    ) -> None:
        reports = [
            message.report
            for message in messages
            if isinstance(message, TaskMessage) and message.report is not None
        ]
        if not self.options.is_exactly_once or not any(
            report.ends or report.is_committed for report in reports
        ):
            return
        cluster, store = connected(self.options.client)
        store.expect_topic()
        topics = {topic for report in reports for topic, _ in report.ends}
        counts = {topic: len(cluster.topic(topic).partitions) for topic in topics}

        def change(state: QueryState | None) -> QueryState | None:
            if state is None:
                raise SinkError(f"the record of {reports[0].query} was removed while the query wrote")
            return committed(state, batch, reports, counts, is_last=is_last)

        store.change(reports[0].query, change)
        self._log(reports, batch)

    def _log(self, reports: Sequence[TaskReport], batch: int) -> None:
        query = reports[0].query
        if all(report.is_committed for report in reports):
            logger.warning(
                "%s: micro-batch %d was committed before; nothing was written", one_line(query), batch
            )
            return
        total = LineCounts()
        for report in reports:
            total.add(report.counts)
        logger.info("%s: micro-batch %d committed: %s", one_line(query), batch, total)


class StreamSink(_Writer, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a streaming query."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, is_overwrite: bool) -> None:
        super().__init__(given, schema, is_overwrite=is_overwrite, is_streaming=True)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        query, batch = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query is None or batch is None:
            raise SinkError("Spark does not say which streaming query and micro-batch this task belongs to")
        identity = LineIdentity(query, int(batch), context.partitionId())
        return self._write(iterator, identity, context.getLocalProperty(_RUN_ID) or query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is undone: the micro-batch is repeated, and finds what this attempt has written."""


class BatchSink(_Writer, DataSourceArrowWriter):
    """Writes a data frame. `run_id` is new for every job, `key` is the job key or as new."""

    def __init__(self, given: Mapping[str, str], schema: StructType, *, is_overwrite: bool) -> None:
        super().__init__(given, schema, is_overwrite=is_overwrite, is_streaming=False)
        self.run_id = str(uuid.uuid4())
        self.query = job_record_name(self.options.job_key or self.run_id)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        return self._write(iterator, LineIdentity(self.query, 0, context.partitionId()), self.run_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages, 0, is_last=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is undone: a job with the same key completes what is there."""


def _forget(client: Mapping[str, str]) -> None:
    found = _connections.pop((os.getpid(), tuple(sorted(client.items()))), None)
    if found is not None:
        found[0].close()
