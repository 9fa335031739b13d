"""A log in memory that judges conditional appends as a broker does, and attempts that write to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast_log.pipeline.sink.chunks import LineIdentity, RowColumns, SinkRow, number_in
from holdfast_log.pipeline.sink.line import UNKNOWN_REACH, AppendChunk, ChunkLine, FoundChunk, ScanLog
from holdfast_log.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 0)
IDENTITY = LineIdentity("query", 7, 3)


@dataclass(frozen=True)
class Batch:
    """A batch in the log, with its first offset, and its append id if it has one."""

    first_offset: int
    rows: list[SinkRow]
    name: bytes | None

    @property
    def end(self) -> int:
        return self.first_offset + len(self.rows)


@dataclass
class MemoryLog:
    """A log that remembers `ids_max` append ids, and says so if `says_reach`. If it `compares_rows`, it
    refuses another content under a known id, as a broker does unless compaction has removed a part of the
    first."""

    ids_max: int = 1000
    says_reach: bool = True
    compares_rows: bool = True
    batches: list[Batch] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    @property
    def remembered(self) -> list[Batch]:
        return [batch for batch in self.batches if batch.name is not None][-self.ids_max :]

    @property
    def ids_from(self) -> int:
        if not self.says_reach:
            return UNKNOWN_REACH
        return self.remembered[0].first_offset if self.remembered else self.end

    def refuses(self, known: Batch, step: AppendChunk) -> bool:
        """Whether a chunk has another content than the batch with its id."""
        rows = list(step.rows)
        return len(known.rows) != len(rows) or (self.compares_rows and known.rows != rows)

    def append(self, rows: Iterable[SinkRow], name: bytes | None = None) -> Batch:
        batch = Batch(self.end, list(rows), name)
        self.batches.append(batch)
        return batch

    def rows_of(self, prefix: bytes) -> list[SinkRow]:
        """The rows of one line, in the order of the log."""
        return [row for batch in self.batches if (batch.name or b"")[:12] == prefix for row in batch.rows]


class Attempt:
    """One attempt of a task. `step` does one thing: what the line wants, or one more row."""

    def __init__(self, log: MemoryLog, rows: list[SinkRow], start: int = 0, rows_max: int = 2) -> None:
        self.log = log
        self.line = ChunkLine(IDENTITY, PARTITION, start, bytes_max=10_000, rows_max=rows_max)
        self.left = list(rows)
        self.has_finished = False

    @property
    def is_done(self) -> bool:
        return self.has_finished and self.line.is_done

    def feed(self) -> None:
        """Give the line the next row, or the end of the rows."""
        if self.left:
            self.line.add(RowColumns.of([self.left.pop(0)]))
        elif not self.has_finished:
            self.has_finished = True
            self.line.finish()

    def step(self, *, loses_answer: bool = False) -> None:
        step = self.line.next_step()
        match step:
            case None:
                self.feed()
            case ScanLog():
                self._scan(step)
            case AppendChunk():
                self._append(step, loses_answer)

    def _append(self, step: AppendChunk, loses_answer: bool) -> None:
        known = next((batch for batch in self.log.remembered if batch.name == step.name), None)
        if known is not None and self.log.refuses(known, step):
            if not loses_answer:
                self.line.contested()
        elif known is not None:
            if not loses_answer:
                self.line.repeated(known.first_offset)
        elif step.expected_offset != self.log.end:
            if not loses_answer:
                self.line.mismatched(self.log.end, self.log.ids_from)
        else:
            batch = self.log.append(step.rows, step.name)
            if not loses_answer:
                self.line.appended(batch.first_offset)

    def _scan(self, step: ScanLog) -> None:
        end = self.log.end if step.end is None else step.end
        found = []
        for batch in self.log.batches:
            number = None if batch.name is None else number_in(self.line.prefix, batch.name)
            if number is not None and batch.end > step.start and batch.first_offset < end:
                found.append(FoundChunk(number, batch.first_offset, batch.end, RowColumns.of(batch.rows)))
        self.line.scanned(found, end)

    def run(self, steps_max: int = 1000) -> None:
        """Run until all rows are in the log."""
        for _ in range(steps_max):
            if self.is_done:
                return
            self.step()
        raise AssertionError(f"not done after {steps_max} steps")
