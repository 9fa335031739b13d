"""The query that the drill runs, and the verdict on the topic that it wrote.

Each micro-batch is two files of numbered rows, copied by two tasks into three partitions. Both tasks write to
all partitions, in several chunks, so their appends conflict also without a fault.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from holdfast_log import Admin, Consumer, NewTopic, TopicPartition
from holdfast_log.pipeline.sink.line import LineCounts
from holdfast_log.pipeline.sink.options import EXACTLY_ONCE
from holdfast_log.pipeline.sink.report import query_record
from tests.pipeline.local_session import warm_session
from tests.pipeline.patience import PATIENT
from tests.pipeline.sink.faulty import FINISHED, NO_FAULT, STRIKES, ZOMBIES, FaultyDataSource

PARTITIONS = 3
ROWS_PER_FILE = 60
FILES_PER_BATCH = 2
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a query runs: what it reads, where it writes, and its checkpoint."""

    bootstrap: str
    topic: str
    directory: Path
    delivery: str = EXACTLY_ONCE

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    @property
    def input(self) -> Path:
        return self.directory / "in"

    def begun(self) -> int:
        """How many micro-batches the query has planned."""
        return _numbered(self.checkpoint / "offsets")

    def committed(self) -> int:
        """How many micro-batches Spark has committed."""
        return _numbered(self.checkpoint / "commits")

    def strikes(self) -> int:
        """How many attempts of tasks were made to fail."""
        return len(list((self.directory / STRIKES).iterdir()))


def _numbered(folder: Path) -> int:
    """The number of entries ever made. They are numbered from 0, and Spark removes old ones."""
    if not folder.exists():
        return 0
    return max((int(each.name) + 1 for each in folder.iterdir() if each.name.isdecimal()), default=0)


@dataclass(slots=True)
class Verdict:
    """What a topic has, beside what it should have. `disordered` counts rows behind a later row of the same
    file, task and partition; `recoveries` the faults after which the query continued."""

    fault: str
    delivery: str
    batches: int
    rows: int
    duplicates: int
    missing: int
    disordered: int
    totals: LineCounts
    recoveries: int = 0
    seconds: float = 0.0
    note: str = ""

    @property
    def is_exact(self) -> bool:
        return not (self.duplicates or self.missing or self.disordered)

    def __str__(self) -> str:
        totals = self.totals
        counts = f"duplicates {self.duplicates}, lost {self.missing}"
        if self.delivery == EXACTLY_ONCE:
            counts += (
                f", out of order {self.disordered}; conflicts {totals.conflicts}, repeats {totals.repeats}, "
                f"rows found {totals.rows_found}"
            )
        return (
            f"{self.fault:14} {self.delivery}: batches {self.batches}, rows {self.rows}, {counts}, "
            f"recoveries {self.recoveries}; {self.seconds:.0f} s{self.note}"
        )


def fill(place: Place, batches: int) -> list[str]:
    """Write the input of so many micro-batches, and create the topic; returns the rows."""
    place.input.mkdir(parents=True)
    make_folders(place)
    rows = []
    for number in range(batches * FILES_PER_BATCH):
        lines = [f"{number}:{row}" for row in range(ROWS_PER_FILE)]
        (place.input / f"{number:06}.txt").write_text("\n".join(lines) + "\n")
        rows += lines
    with Admin({"bootstrap.servers": place.bootstrap}) as admin:
        replicas = min(3, len(place.bootstrap.split(",")))
        admin.create_topics([NewTopic(place.topic, PARTITIONS, replicas)])
    return rows


def make_folders(place: Place) -> None:
    """Make the folders in which faulty tasks note what they did."""
    for name in (STRIKES, FINISHED, ZOMBIES):
        (place.directory / name).mkdir()


def start(spark: SparkSession, place: Place, fault: str = NO_FAULT) -> StreamingQuery:
    """Start the query; it ends when all input is copied."""
    source = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", str(FILES_PER_BATCH))
    number = "CAST(SPLIT(value, ':')[1] AS INT)"
    rows = source.text(str(place.input)).selectExpr(
        f"CAST({number} % 7 AS STRING) AS key", "value", f"{number} % {PARTITIONS} AS partition"
    )
    return (
        rows.repartition(2, "key")
        .writeStream.format("holdfast-faulty")
        .option("kafka.bootstrap.servers", place.bootstrap)
        .option("topic", place.topic)
        .option("delivery", place.delivery)
        .option("chunkBytes", "250")
        .option("fault", fault)
        .option("faultDirectory", str(place.directory))
        .option("checkpointLocation", str(place.checkpoint))
        .options(**PATIENT)
        .trigger(availableNow=True)
        .start()
    )


def finish(query: StreamingQuery, timeout_s: float = TIMEOUT_S) -> None:
    """Wait until the query has copied all input. Raises its error, and TimeoutError if it has ended no
    micro-batch for `timeout_s` seconds."""
    last, deadline = None, time.monotonic() + timeout_s
    while not query.awaitTermination(1):
        progress = query.lastProgress
        number = None if progress is None else progress["batchId"]
        if number != last:
            last, deadline = number, time.monotonic() + timeout_s
        if time.monotonic() > deadline:
            query.stop()
            raise TimeoutError(
                f"the query has ended no micro-batch for {timeout_s:.0f} s after number {last}"
            )


def judge(place: Place, fault: str, wanted: Sequence[str], *, recoveries: int = 0, note: str = "") -> Verdict:
    """Compare the topic with the rows that it should have."""
    found = _rows_of(place)
    counts = Counter(value for _, value, _ in found)
    totals = LineCounts()
    if place.delivery == EXACTLY_ONCE:
        record = query_record(place.bootstrap, query_id(place))
        totals = LineCounts() if record is None else record.totals
    return Verdict(
        fault,
        place.delivery,
        place.committed(),
        len(found),
        sum(number - 1 for number in counts.values()),
        len(set(wanted) - set(counts)),
        _disordered(found) if place.delivery == EXACTLY_ONCE else 0,
        totals,
        recoveries,
        note=note,
    )


def _rows_of(place: Place) -> list[tuple[int, str, bytes]]:
    """The partition, value and key of each record of the topic, in the order of the log."""
    found: list[tuple[int, str, bytes]] = []
    with Consumer({"bootstrap.servers": place.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        partitions = [TopicPartition(place.topic, number) for number in range(PARTITIONS)]
        for partition in partitions:
            consumer.add_topic(*partition)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for record in consumer.poll(500):
                assert record.value is not None
                found.append((record.partition, record.value.decode(), record.key or b""))
    return found


def _disordered(found: Sequence[tuple[int, str, bytes]]) -> int:
    """How many rows are behind a later row of their file, in one partition and of one task (by the key)."""
    count = 0
    last: dict[tuple[int, str, bytes], int] = {}
    for partition, value, key in found:
        file, number = value.split(":")
        line = partition, file, key
        count += int(number) <= last.get(line, -1)
        last[line] = max(last.get(line, -1), int(number))
    return count


def query_id(place: Place) -> str:
    """The id of the query, from its checkpoint."""
    found: str = json.loads((place.checkpoint / "metadata").read_text())["id"]
    return found


def session() -> SparkSession:
    """A session with two cores in which a task may fail three times."""
    spark = warm_session("sink drill", "local[2,4]", {"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    prepare(spark)
    return spark


def prepare(spark: SparkSession) -> None:
    """Make the faulty sink known to a session."""
    spark.dataSource.register(FaultyDataSource)
