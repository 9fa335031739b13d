"""Writes the rows of one task exactly once.

It feeds a `ChunkLine` for each topic partition, and carries out what the lines decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from holdfast_log.pipeline.sink.chunks import LineIdentity, RowColumns
from holdfast_log.pipeline.sink.cluster import (
    AlreadyThere,
    Appended,
    AppendOutcome,
    Contested,
    Mismatched,
    SinkCluster,
)
from holdfast_log.pipeline.sink.line import AppendChunk, ChunkLine, LineCounts, ScanLog
from holdfast_log.pipeline.sink.options import WriteOptions
from holdfast_log.pipeline.sink.rows import RowSplitter
from holdfast_log.pipeline.sink.state import (
    QueryState,
    QueryTakenOverError,
    Run,
    TaskReport,
    TopicState,
    admit,
    check_run,
    with_topic,
)
from holdfast_log.pipeline.sink.store import QueryStore
from holdfast_log.protocol.topic_partition import TopicPartition

_CHUNK_ROWS = 50_000
"""Most rows in a chunk, so that its records' offsets stay small numbers in memory and in the batch."""
_BACKLOG = 2.0
"""Chunks that may wait for one partition before the task stops reading rows."""
_POLL_MS = 100
_CHECK_MS = 1_000
"""How long a task relies on the record of its query when another writer gets in its way."""


class SinkTask:
    """One attempt of a task. `identity` is the same for all attempts, `run` for all tasks of a run."""

    def __init__(
        self,
        cluster: SinkCluster,
        store: QueryStore,
        options: WriteOptions,
        identity: LineIdentity,
        run: Run,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._options = options
        self._identity = identity
        self._run = run
        self._lines: dict[TopicPartition, ChunkLine] = {}
        self._encoded: dict[TopicPartition, tuple[RowColumns, bytes, bytearray]] = {}
        self._topic_ids: dict[str, UUID] = {}
        self._state: QueryState | None = None
        self._checked_ms = 0
        self._splitter = RowSplitter(options.topic, self._counts, identity.batch + identity.task)

    def write(self, batches: Iterable[Any]) -> TaskReport:
        """Write the rows of all record batches; returns when they are in the log.

        Raises QueryTakenOverError if another run writes this query, other SinkErrors, and the errors of the
        clients.
        """
        self._cluster.forget_appends()
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return self._report()
        if self._enter():
            for _ in rows:
                pass  # Spark uses a worker again only if it has read all its input.
            return self._report(is_committed=True)
        try:
            for batch in _chain(first, rows):
                for partition, of_partition in self._splitter.split(batch).items():
                    self._line(partition).add(of_partition)
                self._work(0)
                while any(line.backlog > _BACKLOG for line in self._lines.values()):
                    self._work(_POLL_MS)
            for line in self._lines.values():
                line.finish()
            while not all(line.is_done for line in self._lines.values()):
                self._work(_POLL_MS)
        finally:
            self._cluster.forget_appends()
        return self._report()

    def _enter(self) -> bool:
        """Enter this run and micro-batch in the query's record. Returns whether it is committed already."""
        is_committed = False

        def change(state: QueryState | None) -> QueryState | None:
            nonlocal is_committed
            admission = admit(state, self._identity.query, self._identity.batch, self._run)
            is_committed = admission.is_committed
            return admission.state if admission.is_new else None

        self._state = self._store.change(self._identity.query, change)
        self._checked_ms = self._cluster.now_ms()
        return is_committed

    # Topics -------------------------------------------------------------------------------------------

    def _counts(self, topic: str) -> tuple[int, int]:
        return self._topic(topic).count, len(self._cluster.topic(topic).partitions)

    def _topic(self, name: str) -> TopicState:
        """What the query's record says of a topic; enters it if it is new there."""
        info = self._cluster.topic(name)
        topic_id = self._topic_ids.setdefault(name, info.id)
        assert self._state is not None
        known = self._state.topics.get(name)
        if known is not None and known.id == topic_id.hex:
            return known
        # The first chunk may be written once the record says from where on it can be found.
        count = len(info.partitions)
        starts = self._cluster.ends(name, count) if known is None else [0] * count
        entry = TopicState(topic_id.hex, count, tuple(starts))

        def change(state: QueryState | None) -> QueryState | None:
            admission = admit(state, self._identity.query, self._identity.batch, self._run)
            if admission.is_committed:
                raise self._too_late()
            present = admission.state.topics.get(name)
            if present is not None and present.id == topic_id.hex:
                return None
            return with_topic(admission.state, name, entry)

        self._state = self._store.change(self._identity.query, change)
        assert self._state is not None
        return self._state.topics[name]

    def _line(self, partition: TopicPartition) -> ChunkLine:
        line = self._lines.get(partition)
        if line is None:
            start = self._topic(partition.topic).start(partition.partition)
            line = self._lines[partition] = ChunkLine(
                self._identity, partition, start, bytes_max=self._options.chunk_bytes, rows_max=_CHUNK_ROWS
            )
        return line

    # Work ---------------------------------------------------------------------------------------------

    def _work(self, timeout_ms: int) -> None:
        """Carry out what the lines want, and wait up to `timeout_ms` for an outcome."""
        for partition, line in self._lines.items():
            while not self._cluster.is_busy(partition):
                step = line.next_step()
                if isinstance(step, ScanLog):
                    self._check_run()
                    line.scanned(*self._cluster.scan(partition, step, line.prefix))
                    continue
                if step is not None:
                    self._start(partition, step)
                break
        is_waiting = any(self._cluster.is_busy(partition) for partition in self._lines)
        for partition, outcome in self._cluster.poll(timeout_ms if is_waiting else 0):
            self._take(self._lines[partition], outcome)

    def _start(self, partition: TopicPartition, step: AppendChunk) -> None:
        rows, name, batch = self._encoded.get(partition, (None, b"", None))
        if rows is not step.rows or name != step.name:
            batch = None
        batch = self._cluster.start_append(partition, self._topic_ids[partition.topic], step, batch)
        self._encoded[partition] = step.rows, step.name, batch

    def _take(self, line: ChunkLine, outcome: AppendOutcome) -> None:
        match outcome:
            case Appended(first_offset, size):
                line.appended(first_offset, size)
            case AlreadyThere(first_offset):
                self._check_run()
                line.repeated(first_offset)
            case Contested():
                self._check_run()
                line.contested()
            case Mismatched(end_offset, ids_from):
                self._check_run()
                line.mismatched(end_offset, ids_from)

    def _check_run(self) -> None:
        """Raise QueryTakenOverError if this task is one of a run, or of a micro-batch, that has ended.

        Asked when something else has written to the log. What this task would write is safe without it: the
        lines see to that. It ends a task that nobody waits for, and says why.
        """
        now_ms = self._cluster.now_ms()
        if now_ms - self._checked_ms < _CHECK_MS:
            return
        self._checked_ms = now_ms
        state = self._store.read(self._identity.query)
        if state is None:
            return
        check_run(state, self._run.id)
        if state.batch >= self._identity.batch:
            raise self._too_late()

    def _too_late(self) -> QueryTakenOverError:
        return QueryTakenOverError(
            f"{self._identity.query}: micro-batch {self._identity.batch} was committed meanwhile, so this "
            "attempt of a task of it ends: another attempt has written its rows"
        )

    def _report(self, *, is_committed: bool = False) -> TaskReport:
        counts = LineCounts()
        for line in self._lines.values():
            counts.add(line.counts)
        ends = {
            (partition.topic, partition.partition): line.end_offset for partition, line in self._lines.items()
        }
        return TaskReport(
            self._identity.query, self._identity.batch, self._run.id, counts, ends, is_committed
        )


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
