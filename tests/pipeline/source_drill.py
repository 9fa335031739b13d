"""The source of Spark under faults: python -P -m tests.pipeline.source_drill --records 1000000.

The drill fills a topic on three brokers, and reads it by spark.read and by a query with Trigger.AvailableNow.
Meanwhile tasks fail, Python workers are killed (SIGKILL), leaders of partitions are killed (SIGKILL) while a
task is reading from them, and the query is stopped and started again. Each record must be delivered once, as
it was written. The drill prints a line for each read, and one in the end; it ends with 1 if a record is
missing, there twice or changed, or if a fault did not strike.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from holdfast_log import Admin
from holdfast_log.broker.tools.broker_process import BackgroundBroker
from holdfast_log.broker.tools.local_cluster import LocalCluster
from tests.pipeline.local_session import warm_session
from tests.pipeline.patience import PATIENT
from tests.pipeline.source_drill_faults import (
    KILL,
    NAME,
    RAISE_AFTER,
    RAISE_BEFORE,
    FaultDirectory,
    UnsteadyDataSource,
)
from tests.pipeline.source_drill_rows import Delivery, ends_of, fill, judge, words_of

_T = TypeVar("_T")
_BROKERS = 3
_SESSION_MS = 4_000
"""Session timeout of the brokers in ZooKeeper: short, so that others soon lead the partitions of one that was
killed."""
_FAILOVER_S = 120.0
_NO_LEADER = -1
_LOOK_S, _LEADER_LOOK_S = 0.02, 0.1
_START_S = 1200.0
"""How long a query is started again and again whose Python process has not connected to Spark within 10 s."""


# Faults -----------------------------------------------------------------------------------------------


class Failovers:
    """Kills leaders on which tasks wait, `at_most` so many, and starts them again once others lead.

    `lose` kills a broker. All methods run in the thread that has started the brokers.
    """

    def __init__(
        self,
        brokers: Sequence[BackgroundBroker],
        topic: str,
        directory: FaultDirectory,
        at_most: int,
        lose: Callable[[BackgroundBroker], None],
    ) -> None:
        self.count = 0
        self._brokers = brokers
        self._bootstrap = ",".join(broker.address for broker in brokers)
        self._topic = topic
        self._directory = directory
        self._at_most = at_most
        self._lose = lose

    def step(self) -> None:
        """Kill the leader of a task that waits; let other tasks that wait continue."""
        waiting = self._directory.waiting()
        if waiting and self.count < self._at_most:
            partition, file = waiting.pop()
            self._fail_over(partition, file)
        for _, file in waiting:
            self._directory.release(file)

    def _fail_over(self, partition: int, waiting: Path) -> None:
        with Admin({"bootstrap.servers": self._bootstrap}) as admin:
            leader = self._await_leader(admin, partition, (_NO_LEADER,))
            broker = next(each for each in self._brokers if each.broker_id == leader)
            self._lose(broker)
            self._directory.release(waiting)
            self._await_leader(admin, partition, (leader, _NO_LEADER))
        self.count += 1
        broker.start()
        broker.wait_ready(len(self._brokers))

    def _await_leader(self, admin: Admin, partition: int, others: Collection[int]) -> int:
        """The broker that leads a partition, once it is none of `others`. Raises TimeoutError."""
        deadline = time.monotonic() + _FAILOVER_S
        while time.monotonic() < deadline:
            (topic,) = admin.describe_topics([self._topic])
            leader = topic.partitions[partition].leader
            if leader not in others:
                return leader
            time.sleep(_LEADER_LOOK_S)
        raise TimeoutError(f"nobody else leads {self._topic}-{partition} after {_FAILOVER_S:.0f} s")


# Reads ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """What is read, under which faults. `max_offsets` is the size of a micro-batch, `max_rows` of a task."""

    bootstrap: str
    topic: str
    ends: Sequence[int]
    directory: Path
    seed: int
    max_rows: int
    max_offsets: int

    def faults(self) -> FaultDirectory:
        """The folder of the faults of this read, made if need be."""
        folder = self.directory / "faults"
        folder.mkdir(parents=True, exist_ok=True)
        return FaultDirectory(folder)

    def options(self) -> dict[str, str]:
        """The options of both reads."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            "maxRecordsPerPartition": str(self.max_rows),
            # Small fetches: a task that fails amid them has not fetched everything.
            "kafka.max.partition.fetch.bytes": str(2**17),
            "faultSeed": str(self.seed),
            "faultDirectory": str(self.faults().path),
            **PATIENT,
        }


@dataclass(slots=True)
class Verdict:
    """What a read has delivered, and the faults that have struck meanwhile."""

    name: str
    delivery: Delivery
    batches: int
    kills: int
    failures: int
    failovers: int
    restarts: int = 0
    seconds: float = 0.0

    def problem(self, failovers: int) -> str:
        """What is wrong; empty if nothing is. So many failovers should have been."""
        if not self.delivery.is_exact:
            return "the rows are not the records"
        if not (self.kills and self.failures and self.failovers >= failovers):
            return "a fault did not strike"
        return ""

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.delivery}; batches {self.batches}, worker kills {self.kills}, "
            f"task failures {self.failures}, failovers {self.failovers}, restarts {self.restarts}; "
            f"{self.seconds:.0f} s"
        )


def _verdict(name: str, job: Job, words: Sequence[Any], failovers: Failovers, restarts: int = 0) -> Verdict:
    faults = job.faults()
    return Verdict(
        name,
        judge(words, job.ends),
        len(words),
        faults.count(KILL),
        faults.count(RAISE_BEFORE, RAISE_AFTER),
        failovers.count,
        restarts,
    )


def _under_failovers(call: Callable[[], _T], failovers: Failovers) -> _T:
    """The result of a call that is made in another thread, while leaders are killed in this one."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(call)
        while not result.done():
            failovers.step()
            time.sleep(_LOOK_S)
    return result.result()


def read_batch(spark: SparkSession, job: Job, failovers: Failovers) -> Verdict:
    """Read the topic once by spark.read."""
    rows = spark.read.format(NAME).options(**job.options()).load()
    words = _under_failovers(lambda: words_of(rows).toArrow(), failovers)
    return _verdict("batch", job, [words], failovers)


def read_stream(spark: SparkSession, job: Job, failovers: Failovers, stops: int) -> Verdict:
    """Read the topic once by spark.readStream with Trigger.AvailableNow. The query is stopped `stops` times
    in the midst of a micro-batch, and started again with its checkpoint.

    What a micro-batch has delivered counts once, whatever earlier attempts of it have delivered, and only if
    Spark has committed it.
    """
    words: dict[int, Any] = {}
    checkpoint = job.directory / "checkpoint"

    def deliver(rows: DataFrame, batch: int) -> None:
        words[batch] = words_of(rows).toArrow()

    def start() -> StreamingQuery:
        rows = spark.readStream.format(NAME).options(**job.options())
        writer = rows.option("maxOffsetsPerTrigger", str(job.max_offsets)).load().writeStream
        writer = writer.foreachBatch(deliver).option("checkpointLocation", str(checkpoint))
        return writer.trigger(availableNow=True).start()

    query, restarts, deadline = start(), 0, time.monotonic() + _START_S
    while True:
        failovers.step()
        if not query.isActive:
            if not was_too_slow_to_start(query) or time.monotonic() > deadline:
                break
            query = start()
        elif (
            restarts < stops
            and _numbered(checkpoint / "offsets") > _numbered(checkpoint / "commits") > restarts
        ):
            # The micro-batch that runs may end only after tasks that wait were released.
            _under_failovers(query.stop, failovers)
            query, restarts, deadline = start(), restarts + 1, time.monotonic() + _START_S
        time.sleep(_LOOK_S)
    query.awaitTermination()
    committed = [words[batch] for batch in sorted(words) if (checkpoint / "commits" / str(batch)).exists()]
    return _verdict("stream", job, committed, failovers, restarts)


def _numbered(folder: Path) -> int:
    """How many micro-batches have a file in a folder of the checkpoint."""
    return sum(each.name.isdecimal() for each in folder.iterdir()) if folder.exists() else 0


def was_too_slow_to_start(query: StreamingQuery) -> bool:
    """Whether Spark has given the query's Python process up: it waits 10 s, and no setting changes that."""
    return "failed to connect back" in str(query.exception())


# The command ------------------------------------------------------------------------------------------


def prepare(spark: SparkSession) -> None:
    """Make the source with faults known to a session."""
    spark.dataSource.register(UnsteadyDataSource)


def _session() -> SparkSession:
    spark = warm_session("source drill", "local[2,8]", {"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    prepare(spark)
    return spark


@click.command(context_settings={"show_default": True, "help_option_names": ["-h", "--help"]})
@click.option("--records", default=20_000_000, type=click.IntRange(1000), help="Records of the topic.")
@click.option("--partitions", default=12, type=click.IntRange(1), help="Partitions of the topic.")
@click.option("--passes", default=1, type=click.IntRange(1), help="How often both reads are made.")
@click.option("--failovers", default=3, type=click.IntRange(0), help="How many leaders die in each read.")
@click.option("--batches", default=10, type=click.IntRange(1), help="Micro-batches of the query.")
@click.option("--stops", default=2, type=click.IntRange(0), help="How often the query is stopped.")
@click.option("--compression", default="none", help="Codec of the topic's batches.")
@click.option("--seed", default=1, help="Of the tasks that fail.")
@click.option(
    "--directory", type=click.Path(path_type=Path), show_default="the system's", help="For temporary files."
)
def main(
    records: int,
    partitions: int,
    passes: int,
    failovers: int,
    batches: int,
    stops: int,
    compression: str,
    seed: int,
    directory: Path | None,
) -> None:
    """Read a topic by Spark under faults, and check that each record is delivered once."""
    ends = ends_of(records, partitions)
    verdicts: list[Verdict] = []
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(
            prefix="source-drill-", dir=directory, ignore_cleanup_errors=True
        ) as name,
        LocalCluster(
            Path(name) / "cluster",
            brokers=_BROKERS,
            properties={"zookeeper.session.timeout.ms": str(_SESSION_MS)},
        ) as cluster,
    ):
        fill(cluster.bootstrap, "drill", ends, _BROKERS, compression)
        print(f"filled with {records} records in {time.monotonic() - began:.0f} s", flush=True)
        spark = _session()
        for number in range(2 * passes):
            job = Job(
                cluster.bootstrap,
                "drill",
                ends,
                Path(name) / f"read-{number}",
                seed + number,
                max_rows=max(1, max(ends) // 4),
                max_offsets=max(1, -(-records // batches)),
            )
            leaders = Failovers(cluster.brokers, job.topic, job.faults(), failovers, BackgroundBroker.kill)
            read_began = time.monotonic()
            verdict = (
                read_stream(spark, job, leaders, stops) if number % 2 else read_batch(spark, job, leaders)
            )
            verdict.seconds = time.monotonic() - read_began
            print(verdict, flush=True)
            verdicts.append(verdict)
        spark.stop()
    problems = [f"{verdict.name}: {found}" for verdict in verdicts if (found := verdict.problem(failovers))]
    total = sum((verdict.delivery for verdict in verdicts), Delivery())
    print(
        f"{'VIOLATION: ' + '; '.join(problems) if problems else 'no violation'}: reads {len(verdicts)} of "
        f"{records} records, {total}; worker kills {sum(v.kills for v in verdicts)}, "
        f"task failures {sum(v.failures for v in verdicts)}, "
        f"failovers {sum(v.failovers for v in verdicts)}, restarts {sum(v.restarts for v in verdicts)}; "
        f"{time.monotonic() - began:.0f} s"
    )
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
