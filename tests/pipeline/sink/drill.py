"""A streaming query under faults: python -P -m tests.pipeline.sink.drill --batches 200.

For each fault a query copies numbered rows into a topic of three partitions, by two tasks for each
micro-batch, which write to all partitions in several chunks. The drill then reads the topic: each row must be
there once, and rows that one task wrote to one partition in their order. It prints a line for each fault, and
ends with 1 if a row is missing, there twice or out of order.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import pipeline
from broker.tools.local_cluster import LocalCluster
from coordinator.tools.zookeeper_process import die_with_parent
from holdfast import Admin, Consumer, NewTopic, TopicPartition
from pipeline.sink.line import LineCounts
from pipeline.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE
from pipeline.sink.report import query_record
from tests.pipeline.sink.faulty import NO_FAULT, SLOW, STALLED, TASK_FAULTS, VERY_SLOW, FaultyDataSource

HOME = Path(__file__).parents[3]
PARTITIONS = 3
ROWS_PER_FILE = 60
FILES_PER_BATCH = 2
_TIMEOUT_S = 300.0
_ZOMBIES_S = 30.0


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


@dataclass(slots=True)
class Verdict:
    """What a topic has, beside what it should have. `disordered` counts rows behind a later row of the same
    file, task and partition."""

    fault: str
    delivery: str
    rows: int
    duplicates: int
    missing: int
    disordered: int
    totals: LineCounts
    note: str = ""

    @property
    def is_exact(self) -> bool:
        return not (self.duplicates or self.missing or self.disordered)

    def __str__(self) -> str:
        totals = self.totals
        return (
            f"{self.fault:15} {self.delivery:13} rows {self.rows}, duplicates {self.duplicates}, "
            f"missing {self.missing}, out of order {self.disordered}; conflicts {totals.conflicts}, "
            f"repeats {totals.repeats}, scans {totals.scans}, found {totals.rows_found}, "
            f"reorders {totals.reorders}{self.note}"
        )


def fill(place: Place, batches: int) -> list[str]:
    """Write the input of so many micro-batches; returns the rows."""
    place.input.mkdir(parents=True)
    (place.directory / "zombies").mkdir()
    rows = []
    for number in range(batches * FILES_PER_BATCH):
        lines = [f"{number}:{row}" for row in range(ROWS_PER_FILE)]
        (place.input / f"{number:06}.txt").write_text("\n".join(lines) + "\n")
        rows += lines
    with Admin({"bootstrap.servers": place.bootstrap}) as admin:
        replicas = min(3, len(place.bootstrap.split(",")))
        admin.create_topics([NewTopic(place.topic, PARTITIONS, replicas)])
    return rows


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
        .option("faultDirectory", str(place.directory / "zombies"))
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def finish(query: StreamingQuery, timeout_s: float = _TIMEOUT_S) -> str:
    """Wait until the query has copied all input; returns a note on its slowest micro-batch. Raises its
    error."""
    deadline = time.monotonic() + timeout_s
    while not query.awaitTermination(1):
        if time.monotonic() > deadline:
            query.stop()
            raise TimeoutError(f"the query has not ended within {timeout_s:.0f} s")
    slowest = max((progress.durationMs["triggerExecution"] for progress in query.recentProgress), default=0)
    return f"; slowest micro-batch {slowest} ms"


def query_id(place: Place) -> str:
    """The id of the query, from its checkpoint."""
    found: str = json.loads((place.checkpoint / "metadata").read_text())["id"]
    return found


def judge(place: Place, fault: str, wanted: Sequence[str], note: str = "") -> Verdict:
    """Compare the topic with the rows that it should have."""
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
    counts = Counter(value for _, value, _ in found)
    disordered = 0
    last: dict[tuple[int, str, bytes], int] = {}
    for partition_number, value, key in found:
        file, number = value.split(":")
        line = partition_number, file, key
        disordered += int(number) <= last.get(line, -1)
        last[line] = max(last.get(line, -1), int(number))
    totals = LineCounts()
    if place.delivery == EXACTLY_ONCE:
        record = query_record(place.bootstrap, query_id(place))
        totals = LineCounts() if record is None else record.totals
    return Verdict(
        fault,
        place.delivery,
        len(found),
        sum(number - 1 for number in counts.values()),
        len(set(wanted) - set(counts)),
        disordered if place.delivery == EXACTLY_ONCE else 0,
        totals,
        note,
    )


# Faults -----------------------------------------------------------------------------------------------


def under_task_faults(spark: SparkSession, place: Place, batches: int, fault: str) -> Verdict:
    """The first attempts of tasks fail, in two of three micro-batches."""
    wanted = fill(place, batches)
    note = finish(start(spark, place, fault))
    if fault == "zombie" and place.delivery == EXACTLY_ONCE:
        reports = _reports_of_zombies(place)
        refused = sum(report.startswith("refused") for report in reports)
        note += f"; zombies {len(reports)}, of these refused {refused}"
    return judge(place, fault, wanted, note)


def _reports_of_zombies(place: Place) -> list[str]:
    """What the zombies reported, once none has reported for a while."""
    directory = place.directory / "zombies"
    deadline, seen, quiet_since = time.monotonic() + _ZOMBIES_S, -1, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - quiet_since < 4:
        count = len(list(directory.iterdir()))
        if count != seen:
            seen, quiet_since = count, time.monotonic()
        time.sleep(0.2)
    return [report.read_text() for report in directory.iterdir()]


def under_stops(spark: SparkSession, place: Place, batches: int, chance: random.Random) -> Verdict:
    """The query is stopped with writers running, and started again with its checkpoint."""
    wanted = fill(place, batches)
    stops = 0
    for _ in range(2 + batches // 4):
        query = start(spark, place, SLOW)
        _await_writers(place, chance)
        stops += query.isActive
        query.stop()
    finish(start(spark, place))
    return judge(place, "query.stop", wanted, f"; stops {stops}")


def _await_writers(place: Place, chance: random.Random) -> None:
    """Wait until the next micro-batch has begun, and for a moment at random."""
    offsets = place.checkpoint / "offsets"
    before, deadline = len(list(offsets.glob("[0-9]*"))), time.monotonic() + _TIMEOUT_S
    committed = place.checkpoint / "commits"
    while time.monotonic() < deadline:
        begun = len(list(offsets.glob("[0-9]*")))
        if begun > max(before - 1, len(list(committed.glob("[0-9]*")))):
            break
        time.sleep(0.02)
    time.sleep(chance.uniform(0.2, 1.5))


def under_driver_kills(
    spark: SparkSession, place: Place, batches: int, kills: int, chance: random.Random
) -> Verdict:
    """The driver is killed (SIGKILL, with its JVM), and started again with its checkpoint; at last here."""
    wanted = fill(place, batches)
    killed = 0
    for _ in range(kills):
        with driver(place, VERY_SLOW) as process:
            _await_batches(place, process, chance.randrange(1, 1 + max(1, batches // (kills + 1))))
            if process.poll() is None:
                killed += 1
    finish(start(spark, place))
    return judge(place, "driver kill -9", wanted, f"; kills {killed}")


def _await_batches(place: Place, process: subprocess.Popen[bytes], count: int) -> None:
    """Wait until the driver has begun so many micro-batches more, or has ended."""
    offsets = place.checkpoint / "offsets"

    def begun() -> int:
        return len([each for each in offsets.glob("*") if each.name.isdecimal()]) if offsets.exists() else 0

    aim, deadline = begun() + count, time.monotonic() + _TIMEOUT_S
    while begun() < aim and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)


@contextmanager
def driver(place: Place, fault: str) -> Iterator[subprocess.Popen[bytes]]:
    """The query in a driver of its own, which is killed at the end of the block with all its processes."""
    arguments = [place.bootstrap, place.topic, str(place.directory), place.delivery, fault]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tests.pipeline.sink.driver", *arguments],
        cwd=HOME,
        start_new_session=True,
        preexec_fn=die_with_parent,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill_group(process.pid)
        process.wait(30)


def _kill_group(group: int) -> None:
    """Kill the driver and its JVM, which are one process group."""
    os.killpg(group, signal.SIGKILL)


def under_two_instances(spark: SparkSession, place: Place, batches: int) -> Verdict:
    """Two drivers run the query at once, with copies of one checkpoint."""
    wanted = fill(place, batches)
    # The id of the query comes from the checkpoint, which must exist before it can be copied.
    first = start(spark, place, SLOW)
    while not place.checkpoint.joinpath("metadata").exists():
        time.sleep(0.02)
    first.stop()
    other = Place(place.bootstrap, place.topic, place.directory / "other", place.delivery)
    shutil.copytree(place.checkpoint, other.checkpoint)
    shutil.copytree(place.input, other.input)
    (other.directory / "zombies").mkdir()
    before = _run_of(place)
    with driver(other, STALLED) as process:
        deadline = time.monotonic() + _TIMEOUT_S
        while _run_of(place) == before and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        error = slowest = ""
        try:
            slowest = finish(start(spark, place, SLOW))
        except Exception as failure:
            error = str(failure)
        assert process.stderr is not None
        _, said = process.communicate(timeout=_TIMEOUT_S)
        error += said.decode(errors="replace")
    named = "has taken over" in error
    note = f"; one instance was refused with the other's name: {'yes' if named else 'NO'}{slowest}"
    # The one that was refused is started again: it finds what the other one has written.
    finish(start(spark, place))
    return judge(place, "two instances", wanted, note)


def _run_of(place: Place) -> str:
    """The id of the run that writes the query; empty if none has written yet."""
    record = query_record(place.bootstrap, query_id(place))
    return "" if record is None else record.run.id


def under_broker_kills(
    spark: SparkSession, place: Place, batches: int, cluster: LocalCluster, chance: random.Random
) -> Verdict:
    """Brokers are killed (SIGKILL) one after the other and started again, while the query writes."""
    wanted = fill(place, batches)
    query = start(spark, place, SLOW)
    kills = 0
    while not query.awaitTermination(chance.uniform(1.0, 4.0)):
        broker = chance.choice(cluster.brokers)
        broker.kill()
        kills += 1
        time.sleep(chance.uniform(0.5, 3.0))
        broker.start()
        cluster.wait_ready()
    return judge(place, "broker kill -9", wanted, f"; kills {kills}")


# The command ------------------------------------------------------------------------------------------


def session() -> SparkSession:
    """A session with two cores in which a task may fail three times."""
    spark = (
        SparkSession.builder.appName("sink drill")
        .master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    prepare(spark)
    return spark


def prepare(spark: SparkSession) -> None:
    """Make the faulty sink known to a session."""
    pipeline.register(spark)
    spark.dataSource.register(FaultyDataSource)


FAULTS = (
    NO_FAULT,
    *TASK_FAULTS,
    "query-stop",
    "driver-kill",
    "two-instances",
    "broker-kill",
)


@click.command(context_settings={"show_default": True})
@click.option("--batches", default=200, help="Micro-batches for each fault.")
@click.option("--fault", "faults", multiple=True, type=click.Choice(FAULTS), help="Only this; repeatable.")
@click.option("--kills", default=5, help="How often the driver is killed.")
@click.option(
    "--delivery", default=EXACTLY_ONCE, type=click.Choice([EXACTLY_ONCE, AT_LEAST_ONCE]), help="Of the sink."
)
@click.option("--brokers", default=1, help="3 replicates the topic, so that a broker may be killed.")
@click.option("--seed", default=1, help="Of the moments of stops and kills.")
def main(batches: int, faults: tuple[str, ...], kills: int, delivery: str, brokers: int, seed: int) -> None:
    """Run a streaming query into the Spark sink under faults, and compare the topic with its input."""
    chance = random.Random(seed)
    violations = 0
    with (
        tempfile.TemporaryDirectory(prefix="sink-drill-") as folder,
        LocalCluster(Path(folder) / "cluster", brokers=brokers) as cluster,
    ):
        spark = session()
        for number, fault in enumerate(faults or FAULTS):
            if fault == "broker-kill" and brokers < 2:
                continue
            at = Path(folder) / f"{number}-{fault}"
            place = Place(cluster.bootstrap, f"drill-{number}", at, delivery)
            verdict = _scenario(spark, place, batches, fault, kills, cluster, chance)()
            is_violation = not verdict.is_exact or "NO" in verdict.note
            if delivery == AT_LEAST_ONCE:
                is_violation = verdict.missing > 0
            violations += is_violation
            print(verdict, flush=True)
        spark.stop()
    print("no violation" if not violations else f"{violations} faults with a VIOLATION")
    sys.exit(1 if violations else 0)


def _scenario(
    spark: SparkSession,
    place: Place,
    batches: int,
    fault: str,
    kills: int,
    cluster: LocalCluster,
    chance: random.Random,
) -> Callable[[], Verdict]:
    match fault:
        case "query-stop":
            return lambda: under_stops(spark, place, batches, chance)
        case "driver-kill":
            return lambda: under_driver_kills(spark, place, batches, kills, chance)
        case "two-instances":
            return lambda: under_two_instances(spark, place, batches)
        case "broker-kill":
            return lambda: under_broker_kills(spark, place, batches, cluster, chance)
    return lambda: under_task_faults(spark, place, batches, fault)


if __name__ == "__main__":
    main()
