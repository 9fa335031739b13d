"""The tour of scripts/quickstart.sh: write real data, read it, copy it with Spark, and check every count.

It takes the brokers' addresses from HOLDFAST_BOOTSTRAP, which
`python -m holdfast_log.broker.tools.local_cluster` sets.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer as StockConsumer
from confluent_kafka import KafkaException, TopicPartition
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from holdfast_log import Admin, Consumer, Message, NewTopic, Producer
from holdfast_log import TopicPartition as HoldfastPartition
from holdfast_log.pipeline.examples.flights import COUNT, flights

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC, COPY = "flights", "flights-copy"
PARTITIONS = 6
QUIET_S = 30.0
"""Time in s without a record after which a reader fails, and the tour with it."""

_NEXT = """\
[bold]What to try next[/bold]
  scripts/local-cluster.sh                   a cluster to play with, until Ctrl-C; it prints its address
  scripts/topics.sh --bootstrap-server HOST:PORT --create --topic first --partitions 3
  scripts/console-producer.sh --bootstrap-server HOST:PORT --topic first
  scripts/console-consumer.sh --bootstrap-server HOST:PORT --topic first --from-beginning
  README.md                                  the same from Python, and from Spark
"""


class QuickstartError(Exception):
    """A step saw a wrong number of flights."""


def main() -> None:
    """Run the tour; if a count is wrong, print one line and exit with status 1."""
    console = Console(highlight=False)
    bootstrap = os.environ.get("HOLDFAST_BOOTSTRAP")
    if not bootstrap:
        sys.exit("HOLDFAST_BOOTSTRAP is not set: start this with scripts/quickstart.sh")
    try:
        tour(console, bootstrap, Path(os.environ.get("HOLDFAST_HOME", ".")) / "var" / "quickstart")
    except QuickstartError as error:
        console.print(f"[red]{error}[/red]")
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        sys.exit(130)


def tour(console: Console, bootstrap: str, output: Path) -> None:
    """Run all steps. Raises `QuickstartError` if a step does not see every flight."""
    started = time.monotonic()
    _step(console, "written by our producer", partial(write, bootstrap))
    _step(console, "read by our consumer", partial(read, bootstrap))
    _step(console, "read by a stock client (librdkafka)", partial(read_with_stock_client, bootstrap))
    own_seconds = time.monotonic() - started
    spark_jobs(console, bootstrap, output)
    console.print(
        f"\n[green]✓[/green] Every count was {COUNT:,}. Writing and reading took {own_seconds:.0f} s, "
        f"with Spark {time.monotonic() - started:.0f} s.\n"
    )
    console.print(_NEXT, end="", soft_wrap=True)


def write(bootstrap: str, advance: Callable[[int], None]) -> int:
    """Create the topic, write all flights keyed by carrier, and return the number acknowledged."""
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])
    settings = {"bootstrap.servers": bootstrap, "compression.type": "lz4", "batch.size": 65_536}
    with Producer(settings) as producer:
        responses = []
        for number, flight in enumerate(flights(), start=1):
            responses.append(producer.send(Message(TOPIC, flight.carrier, flight.value)))
            if number % 1000 == 0:
                advance(1000)
        producer.flush()
        advance(number % 1000)
    return sum(response.error is None for response in responses)


def read(bootstrap: str, advance: Callable[[int], None]) -> int:
    """Read the topic from the start with our consumer, and return the number of records."""
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        for partition in range(PARTITIONS):
            consumer.add_topic(TOPIC, partition)
        return _count(lambda: len(consumer.poll(500)), advance)


def read_with_stock_client(bootstrap: str, advance: Callable[[int], None]) -> int:
    """Read the topic from the start with confluent-kafka, and return the number of records."""
    consumer = StockConsumer({"bootstrap.servers": bootstrap, "group.id": "quickstart"})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])

    def poll() -> int:
        messages = consumer.consume(10_000, 0.5)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        return len(messages)

    try:
        return _count(poll, advance)
    finally:
        consumer.close()


def _count(poll: Callable[[], int], advance: Callable[[int], None]) -> int:
    """Poll until all flights were read, then once more to detect surplus records; return the number."""
    seen = 0
    last = time.monotonic()
    while seen < COUNT and time.monotonic() - last < QUIET_S:
        count = poll()
        if count:
            seen += count
            last = time.monotonic()
            advance(count)
    return seen + poll()


def spark_jobs(console: Console, bootstrap: str, output: Path) -> None:
    """Run the jobs of pipeline/examples/carriers.py: copy the topic as a stream, write the copy as Parquet,
    and print a table of the airlines."""
    # Imported here so that the earlier steps do not wait for Spark.
    from holdfast_log.pipeline.examples.carriers import by_carrier, local_session, read_flights

    output.mkdir(parents=True, exist_ok=True)
    log_path = output / "spark.log"
    with console.status(f"Starting Spark; its log is {log_path}"), _stderr_to(log_path):
        spark = local_session("quickstart")
    try:
        what = "copied exactly once by a Spark streaming query"
        started = time.monotonic()
        with console.status("A Spark streaming query copies the topic"):
            copied = copy(spark, bootstrap, output / "checkpoint")
            seconds = time.monotonic() - started
            _check(copied, what)
        _report(console, what, seconds)
        what = "kept as Parquet by a Spark job"
        started = time.monotonic()
        with console.status("Spark reads the copy and writes Parquet"):
            parquet = str(output / "flights.parquet")
            read_flights(spark, bootstrap, COPY).write.mode("overwrite").parquet(parquet)
            kept = spark.read.parquet(parquet)
            _check(kept.count(), what)
        _report(console, what, time.monotonic() - started)
        console.print(f"\n{parquet}, summed up by Spark:")
        by_carrier(kept).show(20)
    finally:
        spark.stop()


def copy(spark: SparkSession, bootstrap: str, checkpoint: Path) -> int:
    """Copy the topic by a streaming query with the exactly-once sink, and return the number of records in the
    copy. Raises `QuickstartError` if the query has not read every flight once."""
    from holdfast_log.pipeline.examples.carriers import copy_flights

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(COPY, PARTITIONS)])
    shutil.rmtree(checkpoint, ignore_errors=True)  # of an earlier tour, in a cluster that no longer exists
    query = copy_flights(spark, bootstrap, TOPIC, COPY, str(checkpoint))
    query.awaitTermination()
    _check(sum(batch.numInputRows for batch in query.recentProgress), "read by a Spark streaming query")
    with Consumer({"bootstrap.servers": bootstrap}) as consumer:
        ends = consumer.end_offsets([HoldfastPartition(COPY, partition) for partition in range(PARTITIONS)])
    return sum(ends.values())


def _step(console: Console, what: str, run: Callable[[Callable[[int], None]], int]) -> None:
    started = time.monotonic()
    with _progress(console, what) as advance:
        seen = run(advance)
    _check(seen, what)
    _report(console, what, time.monotonic() - started)


def _check(seen: int, what: str) -> None:
    if seen != COUNT:
        raise QuickstartError(f"{seen:,} flights were {what}, not {COUNT:,}")


def _report(console: Console, what: str, seconds: float) -> None:
    speed = f"{seconds:.1f} s, {COUNT / seconds:,.0f} records/s"
    console.print(f"[green]✓[/green] {COUNT:,} flights {what} ({speed})", soft_wrap=True)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Send standard error to a file for processes started inside the block, such as Spark's Java process."""
    kept = os.dup(2)
    with open(path, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _progress(console: Console, what: str) -> Iterator[Callable[[int], None]]:
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        task = progress.add_task(f"Flights {what}", total=COUNT)
        yield lambda count: progress.advance(task, count)


if __name__ == "__main__":
    main()
